//! From text to batches.
//!
//! [`BertTokenizer`] reads the tokenizer of a Hugging Face checkpoint, and returns the same ids as transformers' tokenizers:
//!
//! ```
//! use burn::prelude::*;
//! use burn_bert::BertEmbeddingsConfig;
//! use burn_bert::text::BertTokenizer;
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n##s\nsat\nslept\n.\n")?;
//!
//! let config = BertEmbeddingsConfig::new().with_vocab_size(11).with_hidden_size(8);
//! let tokenizer = BertTokenizer::from_pretrained(dir)?;
//! let encodings = tokenizer.encode_batch(&["The cats sat.", "The cat [MASK]."])?;
//! assert_eq!(encodings[0].input_ids(), [2, 5, 6, 7, 8, 10, 3]); // [CLS] the cat ##s sat . [SEP]
//!
//! let device = Device::default();
//! let batch = tokenizer.batch(&encodings, &device)?;
//! let vectors = config.init(&device).forward(&batch.input);
//! assert_eq!(vectors.dims(), [2, 7, 8]);
//! assert!(batch.padding.is_some()); // the second text is one token shorter
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Pipeline`](crate::pipeline::Pipeline) is a model with its tokenizer. In a custom loop,
//! [`limit_tokenizer`](crate::model::PretrainedModel::limit_tokenizer) cuts texts to what a model reads. For masked language
//! modelling, `MaskedLmCollatorConfig::for_tokenizer` takes the special ids from the tokenizer, and an [`Encoding`] turns into a
//! [`MaskedLmExample`](crate::data::MaskedLmExample) with token types and words.

mod check;
mod encoding;
mod files;
mod settings;
mod tokenizer;
mod windows;

pub use encoding::{Encoding, TextBatch};
pub use tokenizer::BertTokenizer;
