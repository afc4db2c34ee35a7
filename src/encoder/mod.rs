//! BERT's transformer layers.

mod attention;
mod config;
mod layer;
mod packing;
mod relative;
mod stack;

pub use attention::BertSelfAttention;
pub use config::BertEncoderConfig;
pub use layer::BertLayer;
pub(crate) use layer::linear_gelu;
pub use packing::Packing;
pub use relative::RelativePositions;
pub use stack::{BertEncoder, BertEncoderOutput, PackedHidden};
