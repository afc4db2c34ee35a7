//! Scores of predictions, and metrics of them for Burn's trainer.
//!
//! ```
//! use burn::train::metric::LossMetric;
//! use burn_bert::metrics::{ConfusionMetric, EntityMetric, LabelMetric, RetrievalMetric, SpearmanMetric, TripletMetric};
//!
//! // Each tuple is an argument of `SupervisedTraining::metrics`.
//! let classification = (LossMetric::new(), ConfusionMetric::macro_f1(), ConfusionMetric::f1(1, "positive"));
//! let labels = (LossMetric::new(), LabelMetric::micro_f1(), LabelMetric::macro_f1());
//! let names = ["O", "B-PER", "I-PER"].map(String::from); // of the model: id2label
//! let tokens = (LossMetric::new(), EntityMetric::f1(&names), EntityMetric::recall(&names));
//! let sentences = (LossMetric::new(), SpearmanMetric::new(), RetrievalMetric::mrr(10));
//! let triplets = (LossMetric::new(), TripletMetric::new().with_margin(0.1));
//! ```

mod confusion_matrix;
mod entities;
mod epoch_metric;
mod label_scores;
mod retrieval;
mod spearman;
mod squad_scores;

pub use confusion_matrix::{ConfusionMatrix, ConfusionMetric};
pub use entities::{EntityCounts, EntityInput, EntityMetric, EntityScores};
pub use epoch_metric::EpochMetric;
pub use label_scores::{LabelInput, LabelMetric, LabelScores, best_threshold};
pub use retrieval::{RetrievalInput, RetrievalMetric, RetrievalScores, TripletInput, TripletMetric};
pub use spearman::{SpearmanInput, SpearmanMetric, spearman};
pub use squad_scores::SquadScores;
