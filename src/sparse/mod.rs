//! Row-sparse training
mod gradients;
mod optimizer;
mod record;
mod rows;
mod rules;
mod table;

pub use gradients::RowGradients;
pub use optimizer::SparseOptimizer;
pub use rows::TouchedRows;
pub use rules::{LazyAdamWConfig, RowSgdConfig, SparseAdamConfig};
