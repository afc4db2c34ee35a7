//! Every CubeCL runtime: wgpu, Vulkan, Metal, WebGPU, CUDA, ROCm and the CPU one.
//!
//! The forward is one kernel. The backward is one that makes the sum's gradient and its part of each total, and one or
//! two for each gradient that is asked for, four for a table that is looked up by id, with one more for each factor of
//! eight in tokens beyond 1,024. None uses atomics, planes or anything else whose order varies: two runs are equal bit
//! for bit. All are launched with bounds checks.

mod backward;
mod forward;
mod launch;
mod scatter;
mod setup;
mod sort;
mod source;
mod tables;
#[cfg(test)]
mod tests;

use crate::operator::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use crate::operator::kernels::{Kernels, Operator, Output};
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use setup::Setup;

impl Kernels<CubeBackend> for EmbedLayerNormOp {
    fn forward(input: EmbedLayerNorm<CubeBackend>) -> Output<Self, CubeBackend> {
        match Setup::new(&input) {
            Some(setup) => setup.forward(&input),
            None => Self::reference::<CubeBackend>(input),
        }
    }

    fn backward(
        input: EmbedLayerNorm<CubeBackend>,
        [mean, rstd]: [FloatTensor<CubeBackend>; 2],
        grad: FloatTensor<CubeBackend>,
        needs: [bool; 5],
    ) -> Vec<Option<FloatTensor<CubeBackend>>> {
        match Setup::new(&input) {
            Some(setup) => setup.backward(&input, mean, rstd, grad, needs),
            None => Self::reference_backward::<CubeBackend>(input, [mean, rstd], grad, needs),
        }
    }
}

#[cfg(all(test, feature = "flex"))]
pub(super) fn takes(input: &EmbedLayerNorm<CubeBackend>) -> bool {
    Setup::new(input).is_some()
}
