//! CubeCL's devices: the kernels of `cube/layer_norm.rs`, with a block's output and its residual as summands.

use super::{AddLayerNorm, AddLayerNormOp};
use crate::cube::launch::RowLaunch;
use crate::cube::layer_norm::{SummandsLaunch, source};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;

type Input = AddLayerNorm<CubeBackend>;

/// The most buffers of a kernel, the backward's: x, bias, residual, γ, the seeds, two statistics, y's gradient, the gradients of x and
/// the residual, and shares of the totals.
const BUFFERS: usize = 11;

fn launch(input: &Input) -> Option<RowLaunch> {
    let AddLayerNorm { x, bias, residual, gamma, beta, .. } = input;
    RowLaunch::for_norm(&[x, bias, residual], [gamma, beta], x.meta.shape().dims(), BUFFERS)
}

fn summands<T: Float>(input: &Input) -> SummandsLaunch<T> {
    let rows = input.x.meta.shape()[0];
    let tensors = [(&input.x, rows), (&input.bias, 1), (&input.residual, rows)];
    let [x, bias, residual] = tensors.map(|(tensor, period)| {
        let table = into_contiguous(tensor.clone());
        Some(source::<T>(table, None, [0, period])).into()
    });
    SummandsLaunch::new(x, bias, residual, true)
}

impl Kernels<CubeBackend> for AddLayerNormOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference(input) };
        on.layer_norm(&[on.rows], summands(&input), [input.gamma, input.beta], input.epsilon, &input.dropout)
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference_backward(input, upstream) };
        let Upstream { statistics, grad, needs: [x, bias, residual, gamma, beta] } = upstream;
        let matrix = |needed: bool| needed.then(|| on.empty([on.rows, on.hidden], on.float));
        let (dx, d_residual) = (matrix(x), matrix(residual));
        let partials = on.partials(if bias || gamma || beta { 3 } else { 0 });
        let (summands, outputs) = (summands(&input), [&dx, &d_residual, &partials]);
        on.layer_norm_backward(summands, input.gamma.clone(), &input.dropout, statistics, grad, outputs);
        // The kernel stores γ, β and the bias, in this order.
        let dtype = input.gamma.dtype;
        let totals = partials.map_or_else(Vec::new, |partials| on.totals(&partials, 3, dtype));
        let vector = |needed: bool, i: usize, of: &CubeTensor| {
            totals.get(i).filter(|_| needed).map(|total| cast(total.clone(), of.dtype))
        };
        let [bias, gamma, beta] =
            [vector(bias, 2, &input.bias), vector(gamma, 0, &input.gamma), vector(beta, 1, &input.beta)];
        vec![dx, bias, d_residual, gamma, beta]
    }
}
