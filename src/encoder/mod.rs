//! BERT's transformer layers.

mod attention;
mod config;
mod layer;
mod stack;

pub use attention::BertSelfAttention;
pub use config::BertEncoderConfig;
pub use layer::BertLayer;
pub use stack::{BertEncoder, BertEncoderOutput};
