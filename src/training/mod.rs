//! Models in Burn's trainer.
//!
//! [`Training`] makes any model trainable by Burn's `Learner`; [`Run`], [`Patience`] and [`progress()`] are for stopping,
//! resuming and showing a run.

mod checkpoints;
mod classification;
mod learner;
mod losses;
mod outputs;
mod progress;
mod run;
mod sentence_embedding;
mod steps;

pub use classification::{SequenceClassificationItem, TokenClassificationItem};
pub use learner::Training;
pub use losses::{Losses, Patience};
pub use progress::{ProgressLines, progress};
pub use run::Run;
pub use sentence_embedding::SentenceEmbeddingItem;
