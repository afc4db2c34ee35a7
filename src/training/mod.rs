//! Fine-tuning.
//!
//! [`Trainer`] goes from a checkpoint, data and [`TrainingArguments`] to the best model with its tokenizer. [`Training`] makes any
//! model trainable by Burn's `Learner`.

mod arguments;
mod batches;
mod checkpoints;
mod classification;
mod evaluation;
mod history;
mod learner;
mod metric_set;
mod outputs;
mod progress;
mod run;
#[cfg(test)]
mod run_tests;
mod sentence_embedding;
mod steps;
mod tasks;
mod trainer;

pub use arguments::{EvalStrategy, TrainingArguments, Tuning};
pub use batches::{Batches, Reader, TrainingData};
pub use classification::{SequenceClassificationItem, TokenClassificationItem};
pub use evaluation::evaluate;
pub use history::{Evaluation, History};
pub use learner::Training;
pub use metric_set::{Metrics, TrainableModel};
pub use sentence_embedding::SentenceEmbeddingItem;
pub use trainer::{Trained, Trainer};
