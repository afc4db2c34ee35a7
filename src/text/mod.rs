//! From text to batches.
//!
//! [`Lines`] reads a corpus of any size line by line. With the feature `tokenizers`, `BertTokenizer` reads the
//! tokenizer of a Hugging Face checkpoint, and returns the same ids as transformers' tokenizers:
//!
#![cfg_attr(feature = "tokenizers", doc = "```")]
#![cfg_attr(not(feature = "tokenizers"), doc = "```ignore")]
//! use burn::prelude::*;
//! use burn_bert::BertEmbeddingsConfig;
//! use burn_bert::text::{BertTokenizer, Lines};
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n##s\nsat\nslept\n.\n")?;
//! std::fs::write(dir.join("corpus.txt"), "The cats sat.\n\nThe cat [MASK].\n")?;
//!
//! let config = BertEmbeddingsConfig::new().with_vocab_size(11).with_hidden_size(8);
//! let tokenizer = BertTokenizer::from_pretrained(dir)?;
//! let lines = Lines::open(dir.join("corpus.txt"))?.collect::<Result<Vec<_>, _>>()?;
//! let encodings = tokenizer.encode_batch(&lines)?;
//! assert_eq!(encodings[0].input_ids(), [2, 5, 6, 7, 8, 10, 3]); // [CLS] the cat ##s sat . [SEP]
//!
//! let device = Device::default();
//! let batch = tokenizer.batch(&encodings, &device)?;
//! let vectors = config.init(&device).forward(&batch.input);
//! assert_eq!(vectors.dims(), [2, 7, 8]);
//! assert!(batch.padding.is_some()); // the second line is one token shorter
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A `Pipeline` is a model with its tokenizer. In a custom loop, `PretrainedModel::limit_tokenizer` cuts texts to what a model
//! reads. For masked language modelling, `MaskedLmCollatorConfig::for_tokenizer` takes the special ids from the tokenizer,
//! and an `Encoding` turns into a [`MaskedLmExample`](crate::data::MaskedLmExample) with token types and words.

#[cfg(feature = "tokenizers")]
mod check;
#[cfg(feature = "tokenizers")]
mod encoding;
#[cfg(feature = "tokenizers")]
mod files;
mod lines;
#[cfg(feature = "tokenizers")]
mod settings;
#[cfg(feature = "tokenizers")]
mod tokenizer;
#[cfg(feature = "tokenizers")]
mod windows;

#[cfg(feature = "tokenizers")]
pub use encoding::{Encoding, TextBatch};
pub use lines::Lines;
#[cfg(feature = "tokenizers")]
pub use tokenizer::BertTokenizer;
