//! Fused operators: one trait each, generic over the backend, with a reference and a backward of its own.

mod device;
mod dropout;
mod dtype;
mod embed_layer_norm;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "flex")]
pub(crate) mod parallel;
mod path;
mod philox;

/// The layer's arithmetic on tensors, without a module.
pub mod functional {
    pub(crate) use super::embed_layer_norm::functional::lookup;
    pub use super::embed_layer_norm::functional::{Norm, Rows, embed_layer_norm};
    pub use super::path::on_reference_path;
}

/// The operator as an extension of Burn's backends. To call it on tensors, use
/// [`functional::embed_layer_norm`](crate::functional::embed_layer_norm); to add a backend, implement
/// [`EmbeddingOps`](ops::EmbeddingOps).
pub mod ops {
    pub use super::dropout::Dropout;
    pub use super::embed_layer_norm::input::{EmbedLayerNorm, Needs, Operand, Rows};
    pub use super::embed_layer_norm::ops::EmbeddingOps;
}
