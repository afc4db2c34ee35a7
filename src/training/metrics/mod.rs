//! Scores of predictions.

mod confusion;
mod metric;

pub use confusion::{ConfusionMatrix, spearman};
pub use metric::{ConfusionMetric, SpearmanInput, SpearmanMetric};
