//! Scores of predictions.

mod confusion;
mod entities;
mod metric;

pub use confusion::{ConfusionMatrix, spearman};
pub use entities::{EntityCounts, EntityInput, EntityMetric, EntityScores};
pub use metric::{ConfusionMetric, SpearmanInput, SpearmanMetric};
