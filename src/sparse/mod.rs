//! Row-sparse training
mod gradients;
#[cfg(feature = "flex")]
mod host;
mod optimizer;
mod record;
mod rows;
mod rules;
mod step;
mod table;

pub use gradients::RowGradients;
pub use optimizer::SparseOptimizer;
pub use rows::TouchedRows;
pub use rules::{LazyAdamWConfig, RowSgdConfig, SparseAdamConfig};
