//! Fused operators. Each has a reference, generic over the backend, a backward of its own, and kernels.

mod activation;
mod add_layer_norm;
mod attention;
mod bias_gelu;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
mod cross_entropy;
#[cfg(feature = "_cubecl")]
mod cube;
pub(crate) mod device;
mod dropout;
pub(crate) mod dtype;
mod embed_layer_norm;
#[cfg(feature = "flex")]
pub(crate) mod flex;
#[cfg(feature = "_cubecl")]
mod fusion;
mod graph;
mod inputs;
mod kernels;
#[cfg(any(feature = "remote", feature = "_cubecl"))]
mod later;
mod linear;
mod move_rows;
#[cfg(feature = "flex")]
pub(crate) mod parallel;
mod path;
mod philox;
pub(crate) mod precision;
pub(crate) mod recompute;
#[cfg(feature = "remote")]
pub(crate) mod remote;
mod rows;
mod run;
pub(crate) mod squares;
#[cfg(test)]
mod testing;
#[cfg(feature = "remote")]
mod wire;

pub use activation::Activation;

/// The fused operators on tensors, without a module.
///
/// # Devices
///
/// Flex and the CubeCL devices (wgpu, Vulkan, Metal, WebGPU, CUDA, ROCm, cpu) have kernels. NdArray runs the reference, made
/// of Burn's own operations, with a backward that saves as little; so does a CubeCL device if dtypes are mixed or it has too
/// few buffer bindings. A remote device runs what its worker's device does. Every other device runs the reference with Burn's
/// backward, and dropout's mask is Burn's own there. [`on_reference_path`](functional::on_reference_path) runs the reference
/// everywhere.
pub mod functional {
    pub use super::add_layer_norm::functional::add_layer_norm;
    pub(crate) use super::attention::functional::attention_weights;
    pub use super::attention::functional::{Sequences, attention};
    pub(crate) use super::bias_gelu::functional::bias_activation;
    pub use super::bias_gelu::functional::bias_gelu;
    pub use super::cross_entropy::functional::cross_entropy;
    pub(crate) use super::dropout::with_one_draw;
    pub(crate) use super::embed_layer_norm::functional::lookup;
    pub use super::embed_layer_norm::functional::{Norm, Rows, embed_layer_norm};
    pub use super::linear::functional::linear;
    pub(crate) use super::linear::functional::linear_narrow;
    pub(crate) use super::move_rows::functional::{Moves, indices};
    pub use super::path::on_reference_path;
    pub use super::precision::{Precision, autocast};
}
