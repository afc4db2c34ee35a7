//! Models in Burn's trainer.
//!
//! [`Training`] makes any model trainable by Burn's `Learner`; [`Run`], [`Patience`] and [`progress()`] are for stopping,
//! resuming and showing a run.

mod arguments;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod batches;
mod checkpoints;
mod classification;
mod exchange;
mod history;
mod learner;
mod losses;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod metric_set;
mod progress;
mod run;
mod sentence_embedding;
mod steps;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod tasks;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
mod trainer;

pub use arguments::{EvalStrategy, TrainingArguments, Tuning};
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
pub use batches::{Batches, TrainingData};
pub use classification::{SequenceClassificationItem, TokenClassificationItem};
pub use history::{Evaluation, History};
pub use learner::Training;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
pub use metric_set::{Metrics, TrainableModel};
pub use sentence_embedding::SentenceEmbeddingItem;
#[cfg(all(feature = "checkpoint", feature = "tokenizers"))]
pub use trainer::{Trained, Trainer, evaluate};
