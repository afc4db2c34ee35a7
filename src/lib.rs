//! BERT and fifteen related encoders for [Burn](https://burn.dev), in Rust: the embedding layer, whole models and their training, with
//! outputs and gradients that match Hugging Face transformers, loaded from and saved as Hugging Face checkpoints.
//!
//! A `pipeline::Pipeline` is a model with its tokenizer; a `training::Trainer` fine-tunes it:
//!
#![cfg_attr(feature = "train", doc = "```no_run")]
#![cfg_attr(not(feature = "train"), doc = "```ignore")]
//! use burn::prelude::*;
//! use burn_bert::data::{Columns, LabelledTexts};
//! use burn_bert::model::BertForSequenceClassification;
//! use burn_bert::pipeline::{Pipeline, TextOptions};
//! use burn_bert::training::{Trainer, TrainingArguments};
//!
//! let train = LabelledTexts::open("train.csv", &Columns::default())?;
//! Trainer::from_pretrained("google-bert/bert-base-uncased", train, TrainingArguments::new("out"))?.train()?;
//!
//! let pipeline = Pipeline::<BertForSequenceClassification>::from_pretrained("out", &Device::default())?;
//! let found = pipeline.classify(&["A film to remember.", "Dull."], &TextOptions::new())?;
//! println!("{} ({:.2})", found[0][0].label, found[0][0].score);
//! # Ok::<(), burn_bert::Error>(())
//! ```
//!
//! [`BertEmbeddings`] is the embedding layer, one operator with its own backward:
//!
//! ```
//! use burn::prelude::*;
//! use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput};
//!
//! let device = Device::default().autodiff(); // for inference, without `.autodiff()`
//! let embeddings = BertEmbeddingsConfig::bert_base_uncased().with_vocab_size(1000).init(&device);
//! let input = BertEmbeddingsInput::from_rows(&[[101, 592, 102, 0], [101, 88, 999, 102]], &device)?;
//! let vectors = embeddings.forward(&input); // [2, 4, 768]
//! let gradients = vectors.square().sum().backward();
//! let words = embeddings.word_embeddings.weight.grad(&gradients).unwrap();
//! assert_eq!(words.narrow(0, 0, 1).abs().sum().into_scalar::<f32>(), 0.0); // [PAD]
//! # Ok::<(), burn_bert::Error>(())
//! ```
//!
//! **Generic over backend**: since Burn 0.22 the backend is part of the [`Device`](burn::tensor::Device), not a type parameter.
//! One compiled model runs on every device that a cargo feature compiles in, chosen at run time, also on several at once.
//!
//! # Features
//!
//! | feature | enables |
//! |---|---|
//! | `flex` (default), `ndarray`, `wgpu`, `vulkan`, `metal`, `webgpu`, `cuda`, `rocm`, `cpu` | Burn's devices, under Burn's names |
//! | `cuda-cpp` | `cuda` with kernels compiled by NVRTC, not by LLVM |
//! | `hub` | models by their names on the Hugging Face Hub, wherever a directory is taken: `owner/name` or `owner/name@revision`, downloaded into the cache that Python shares |
//! | `tokenizers` | text in: transformers' tokenizers and pipelines |
//! | `train` | training on Burn's trainer |
//! | `mpi` | distributed training: `mpirun` and [`distributed`] |
//! | `x86-v4` | Burn's own matmuls of Flex (`Tensor::matmul`, f64) with AVX-512 on CPUs that have it |
//!
//! # Threads
//!
//! Inference from many threads at once is safe, on one model too, and each call has the bits that it has alone. `autocast` holds for a
//! closure on its thread; inside a rayon pool, state the precision in each job that runs in it, as
//! [burn-fused](burn_fused#calls-at-once) explains. Train a model from one thread at a time: forward and backward on two
//! threads deadlock inside burn-autodiff 0.22.1 where they share parameters, as clones do.
//!
//! # Errors
//!
//! Functions that can fail return an [`Error`]. Only `forward` and `init`, names of Burn's, panic with its message; their
//! fallible forms are `try_forward` and `try_init`.
//!
//! # Guides
//!
//! The pages of the repository's folder `docs` are the modules of [`guides`]: tasks, training, questions and answers, migrating.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod checkpoint;
pub mod data;
pub mod distributed;
mod embeddings;
pub mod encoder;
mod error;
mod family;
mod files;
mod layers;
#[cfg(feature = "train")]
pub mod metrics;
pub mod model;
pub mod optim;
#[cfg(feature = "tokenizers")]
pub mod pipeline;
#[cfg(feature = "tokenizers")]
pub mod text;
#[cfg(feature = "train")]
pub mod training;

pub use embeddings::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
pub use error::{EmbeddingTable, Error, Result};
pub use family::{Family, PositionEmbeddingType};
pub use layers::{
    EmbeddingInitializer, IntoIds, LayerNorm, NewRows, PaddingMask, PositionFill, TokenEmbedding,
    TokenEmbeddingConfig, VocabularyResize, cast_module, prepare_linear_layers, quantize_linear_layers,
};

/// The fused operators on tensors, without a module: those of [burn-fused](burn_fused) that a model's code calls.
pub mod functional {
    #[cfg(feature = "flex")]
    pub use burn_fused::matrix_kernel;
    pub use burn_fused::{
        Norm, Positions, Precision, Rows, Sequences, add_layer_norm, attention, autocast, bias_gelu,
        cross_entropy, embed_layer_norm, linear, on_reference_path, rotary,
    };
}

/// The guides, one a page. Their examples are documentation tests.
#[cfg(any(doc, doctest))]
pub mod guides {
    #[cfg(feature = "train")]
    #[doc = include_str!("../README.md")]
    pub mod readme {}
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/tasks.md")]
    pub mod tasks {}
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/training.md")]
    pub mod training {}
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/distributed.md")]
    pub mod distributed {}
    #[cfg(feature = "train")]
    #[doc = include_str!("../docs/faq.md")]
    pub mod faq {}
    #[cfg(feature = "tokenizers")]
    #[doc = include_str!("../docs/migrating.md")]
    pub mod migrating {}
    #[cfg(feature = "tokenizers")]
    #[doc = include_str!("../docs/checkpoints.md")]
    pub mod checkpoints {}
    #[doc = include_str!("../docs/embeddings.md")]
    pub mod embeddings {}
    #[doc = include_str!("../docs/devices.md")]
    pub mod devices {}
    #[doc = include_str!("../docs/performance.md")]
    pub mod performance {}
}
