//! Scores of predictions.

mod confusion;
mod entities;
mod metric;
mod retrieval;
mod score;

pub use confusion::{ConfusionMatrix, spearman};
pub use entities::{EntityCounts, EntityInput, EntityMetric, EntityScores};
pub use metric::{ConfusionMetric, SpearmanInput, SpearmanMetric};
pub use retrieval::{RetrievalInput, RetrievalMetric, RetrievalScores, TripletInput, TripletMetric};
