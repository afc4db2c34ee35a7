//! Every CubeCL runtime: wgpu, Vulkan, Metal, WebGPU, CUDA, ROCm and the CPU one.
//!
//! The forward is one kernel. The backward is one that makes the sum's gradient and its part of each total, and one or
//! two for each gradient that is asked for, four for a table that is looked up by id, with one more for each factor of
//! eight in tokens beyond 1,024. None uses atomics, planes or anything else whose order varies: two runs are equal bit
//! for bit. All are launched with bounds checks.

mod backward;
mod forward;
mod launch;
pub(super) mod metadata;
mod scatter;
mod setup;
mod sort;
mod source;
mod tables;
#[cfg(test)]
mod tests;

use crate::operator::embed_layer_norm::input::{EmbedLayerNorm, EmbedLayerNormGradients, Needs};
use crate::operator::embed_layer_norm::ops::EmbeddingOps;
use crate::operator::embed_layer_norm::reference;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use setup::Setup;

impl EmbeddingOps for CubeBackend {
    fn embed_layer_norm(input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        match Setup::new(&input) {
            Some(setup) => setup.forward(&input, false).0,
            None => reference::embed_layer_norm::<Self>(input),
        }
    }

    fn embed_layer_norm_with_statistics(
        input: EmbedLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        match Setup::new(&input).map(|setup| setup.forward(&input, true)) {
            Some((y, Some([mean, rstd]))) => (y, mean, rstd),
            _ => reference::with_statistics::<Self>(input),
        }
    }

    fn embed_layer_norm_backward(
        input: EmbedLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: Needs,
    ) -> EmbedLayerNormGradients<Self> {
        match Setup::new(&input) {
            Some(setup) => setup.backward(&input, mean, rstd, grad, needs),
            None => reference::backward::<Self>(input, mean, rstd, grad, needs),
        }
    }
}

/// Whether the kernels take the input, rather than leave it to the reference.
#[cfg(all(test, feature = "flex"))]
pub(super) fn takes(input: &EmbedLayerNorm<burn::backend::Cube>) -> bool {
    setup::ids_dtype(input).is_some()
}
