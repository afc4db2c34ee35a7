//! Fused operators. Each is a trait, generic over the backend, with a reference implementation and its own backward.

mod add_layer_norm;
mod attention;
mod bias_gelu;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
mod cross_entropy;
#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(any(feature = "ndarray", feature = "_cubecl"))]
mod default_bodies;
pub(crate) mod device;
mod dropout;
pub(crate) mod dtype;
mod embed_layer_norm;
#[cfg(feature = "flex")]
pub(crate) mod flex;
mod graph;
#[cfg(feature = "flex")]
pub(crate) mod parallel;
mod path;
mod philox;
#[cfg(feature = "remote")]
pub(crate) mod remote;
mod rows;

/// The fused operators on tensors, without a module.
pub mod functional {
    pub use super::add_layer_norm::functional::add_layer_norm;
    pub(crate) use super::attention::functional::attention_weights;
    pub use super::attention::functional::{Sequences, attention};
    pub use super::bias_gelu::functional::bias_gelu;
    pub use super::cross_entropy::functional::cross_entropy;
    pub(crate) use super::embed_layer_norm::functional::lookup;
    pub use super::embed_layer_norm::functional::{Norm, Rows, embed_layer_norm};
    pub use super::path::on_reference_path;
}

/// The operators as extensions of Burn's backends. To call them on tensors, use [`functional`]; to add a backend,
/// implement the traits.
pub mod ops {
    pub use super::add_layer_norm::input::{AddLayerNorm, AddLayerNormNeeds};
    pub use super::add_layer_norm::ops::AddLayerNormOps;
    pub use super::attention::input::{Attention, AttentionNeeds, ScoreBias};
    pub use super::attention::ops::AttentionOps;
    pub use super::bias_gelu::input::{BiasGelu, BiasGeluNeeds};
    pub use super::bias_gelu::ops::BiasGeluOps;
    pub use super::cross_entropy::input::CrossEntropy;
    pub use super::cross_entropy::ops::CrossEntropyOps;
    pub use super::dropout::Dropout;
    pub use super::dropout::ops::DropoutOps;
    pub use super::embed_layer_norm::input::{
        EmbedLayerNorm, EmbedLayerNormGradients, Gradient, Needs, Rows,
    };
    pub use super::embed_layer_norm::ops::EmbeddingOps;
}
