//! Fine-tuning.
//!
//! `Trainer` goes from a checkpoint, data and [`TrainingArguments`] to the best model with its tokenizer (features `checkpoint` and
//! `tokenizers`). [`Training`] makes any model trainable by Burn's `Learner`.

mod arguments;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod batches;
mod checkpoints;
mod classification;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod evaluation;
mod history;
mod learner;
mod losses;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod metric_set;
mod outputs;
mod progress;
mod run;
#[cfg(test)]
mod run_tests;
mod sentence_embedding;
mod steps;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod tasks;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod trainer;

pub use arguments::{EvalStrategy, TrainingArguments, Tuning};
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
pub use batches::{Batches, Reader, TrainingData};
pub use classification::{SequenceClassificationItem, TokenClassificationItem};
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
pub use evaluation::evaluate;
pub use history::{Evaluation, History};
pub use learner::Training;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
pub use metric_set::{Metrics, TrainableModel};
pub use sentence_embedding::SentenceEmbeddingItem;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
pub use trainer::{Trained, Trainer};
