//! What depends on a device's random numbers. It has one generator for all threads: each test that draws takes its [`turn`].

#[path = "../support/mod.rs"]
mod support;

use support::*;

/// What most of these tests use.
#[cfg(feature = "train")]
mod prelude {
    pub use crate::files::{tokenizer_of, vocabulary};
    pub use crate::hook::Hook;
    pub(crate) use crate::refusals::fails;
    pub use crate::refusals::{panic_of, says};
    pub use crate::tolerance::*;
    pub(crate) use crate::{small_bert, turn};
    pub use burn::data::dataset::{Dataset, InMemDataset};
    pub use burn::module::{Module, ParamGroup};
    pub use burn::prelude::*;
    pub use burn::train::metric::{Adaptor, Metric, Numeric};
    pub use burn::train::{InferenceStep, Interrupter, TrainStep};
    pub use burn_bert::data::*;
    pub use burn_bert::functional::Precision;
    pub use burn_bert::metrics::*;
    pub use burn_bert::model::*;
    pub use burn_bert::optim::*;
    pub use burn_bert::pipeline::{Pipeline, TextOptions};
    pub use burn_bert::text::BertTokenizer;
    pub use burn_bert::training::*;
    pub use burn_bert::{BertEmbeddingsInput, Error, PaddingMask, Result};
    pub use std::fs;
    pub use std::path::Path;
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicUsize, Ordering};
    pub use tempfile::{TempDir, tempdir};
}

#[cfg(feature = "train")]
mod best_model;
#[cfg(feature = "train")]
mod checkpoint;
mod dropout;
#[cfg(feature = "train")]
mod fine_tune;
#[cfg(feature = "train")]
mod history;
#[cfg(feature = "train")]
mod loss_curves;
#[cfg(feature = "train")]
mod run_folder;
#[cfg(feature = "train")]
mod runs;
#[cfg(feature = "train")]
mod sentences;
#[cfg(feature = "train")]
mod tasks;
mod token_embedding;
#[cfg(feature = "train")]
mod trainer;
#[cfg(feature = "train")]
mod tuning;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test draws.
fn turn() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A layer of 16 values a token that drops a tenth.
#[cfg(feature = "train")]
fn small_bert(vocab_size: usize) -> burn_bert::model::BertModelConfig {
    let mut bert = small_bert::small_bert(vocab_size, 16).with_intermediate_size(32);
    bert.embeddings.hidden_dropout_prob = 0.1;
    bert.with_attention_probs_dropout_prob(0.1)
}
