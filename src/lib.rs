//! BERT's input layer as a [Burn](https://burn.dev) module that people train.
//!
//! [`BertEmbeddings`] turns token ids into the vectors that a transformer reads:
//!
//! ```text
//! y = Dropout(LayerNorm(W[input_ids] + S[token_type_ids] + P[position_ids]))
//! ```
//!
//! It equals Hugging Face's `BertEmbeddings` (and `RobertaEmbeddings`, with
//! [`PositionEmbeddingType::AfterPadding`]) in values and gradients: the padding row gets a gradient of exactly
//! 0.0, dropout is active in training alone, and bad input is an [`Error`] that says what was found, where, what
//! is allowed, and the way out.
//!
//! ```
//! use burn::prelude::*;
//! use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput};
//!
//! let device = Device::default().autodiff(); // any of Burn's devices; drop `.autodiff()` for inference
//! let embeddings = BertEmbeddingsConfig::bert_base_uncased().with_vocab_size(1000).init(&device);
//!
//! let input = BertEmbeddingsInput::from_rows(&[[101, 592, 102, 0], [101, 88, 999, 102]], &device)?;
//! let vectors = embeddings.forward(&input);
//! assert_eq!(vectors.dims(), [2, 4, 768]);
//!
//! let gradients = vectors.square().sum().backward();
//! let words = embeddings.word_embeddings.weight.grad(&gradients).unwrap();
//! assert_eq!(words.narrow(0, 0, 1).abs().sum().into_scalar::<f32>(), 0.0); // [PAD]
//! # Ok::<(), burn_bert::Error>(())
//! ```
//!
//! # Generic over backend
//!
//! Since Burn 0.22 the backend is a property of the [`Device`](burn::tensor::Device) and not a type parameter.
//! So [`BertEmbeddings`] names none: one compiled type runs on every device that a cargo feature compiled in
//! (`flex`, `ndarray`, `wgpu`, `vulkan`, `metal`, `webgpu`, `cuda`, `rocm`, `cpu`), chosen at run time, several
//! side by side in one process if need be.
//!
//! # What is here
//!
//! - [`BertEmbeddingsConfig`] → [`BertEmbeddings`], fed with a [`BertEmbeddingsInput`];
//! - [`TokenEmbedding`], a lookup table with a padding index, of use by itself;
//! - [`text`]: UTF-8 files line by line, and with the feature `tokenizers` text to batches as transformers makes them;
//! - [`model`] and [`training`]: BERT with its masked-language-model head, and what trains it;
//! - [`BertEmbeddings::from_pretrained`], [`load`](BertEmbeddings::load) and
//!   [`save_pretrained`](BertEmbeddings::save_pretrained): Hugging Face checkpoints, in and out;
//! - [`resize_vocabulary`](BertEmbeddings::resize_vocabulary) and
//!   [`extend_positions`](BertEmbeddings::extend_positions): more tokens, longer sequences;
//! - [`sparse`]: training steps whose cost follows the batch, not the vocabulary;
//! - [`gradcheck`]: any Burn module's gradient against central differences;
//! - [`functional`] and [`ops`]: the layer as one operator, for tensors and for backends;
//! - [`clip_by_global_norm`]: gradient clipping as PyTorch has it;
//! - [`cast_module`]: any Burn module in another float dtype.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(feature = "checkpoint")]
mod checkpoint;
mod embeddings;
pub mod encoder;
mod error;
pub mod model;
mod operator;
pub mod optim;
#[cfg(any(feature = "checkpoint", feature = "tokenizers"))]
mod regular_file;
pub mod sparse;
pub mod text;
pub mod training;

pub use burn_gradcheck as gradcheck;
pub use burn_gradcheck::cast_module;
pub use embeddings::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingInitializer, IntoIds, NewRows,
    PaddingMask, PositionEmbeddingType, PositionFill, TokenEmbedding, TokenEmbeddingConfig, VocabularyResize,
};
pub use error::{EmbeddingTable, Error, Result};
#[cfg(feature = "flex")]
pub use operator::cpu::matrix_kernel;
pub use operator::{functional, ops};
pub use optim::clip_by_global_norm;

/// The README's examples, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
