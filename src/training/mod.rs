//! Fine-tuning.
//!
//! [`Trainer`] goes from a checkpoint, data and [`TrainingArguments`] to the best model with its tokenizer. [`Training`] makes any
//! model trainable by Burn's `Learner`.

mod arguments;
mod checkpoints;
mod heads;
mod history;
mod keeper;
mod learner;
mod metric_set;
mod outputs;
mod progress;
mod run;
mod trainer;
mod training_data;

pub use arguments::{EvalStrategy, TrainingArguments, Tuning};
pub use history::{Evaluation, History};
pub use learner::{TrainableModel, Training};
pub use metric_set::Metrics;
pub use outputs::{ClassificationItem, SentenceEmbeddingItem};
pub use trainer::{Trained, Trainer, evaluate};
pub use training_data::{Reader, TrainingData};
