//! Fine-tuning.
//!
//! [`Trainer`] goes from a checkpoint, data and [`TrainingArguments`] to the best model with its tokenizer. [`ForLearner`] gives any
//! model to Burn's `Learner`.

mod adamw_record;
mod arguments;
mod callback;
mod checkpoints;
mod console;
mod disk;
mod folder;
mod heads;
mod history;
mod learner;
mod metric_set;
mod outputs;
mod plan;
mod reader;
mod run;
mod trainer;
mod training_data;
mod tuning;

pub use arguments::{EvalStrategy, TrainingArguments, TrainingPrompts};
pub use callback::{Callback, JsonLines, LogEntry, Progress};
pub use history::{Evaluation, History};
pub use learner::ForLearner;
pub use metric_set::Metrics;
pub use outputs::{ClassificationItem, Outcome, SentenceEmbeddingItem, Shared};
pub use reader::Reader;
#[doc(hidden)]
pub use run::Run;
pub use run::{TrainableModel, Trained};
pub use trainer::{Trainer, evaluate};
pub use training_data::TrainingData;
pub use tuning::Tuning;
