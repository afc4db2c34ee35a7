//! CubeCL's devices: the kernels of `cube/layer_norm.rs`, with a block's output and its residual as summands.

use super::{AddLayerNorm, AddLayerNormOp};
use crate::cube::launch::{RowLaunch, buffer};
use crate::cube::layer_norm::{ResidualLaunch, SummandsArgs};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;

type Input = AddLayerNorm<CubeBackend>;

const BINDINGS: u32 = 13;

fn launch(input: &Input) -> Option<RowLaunch> {
    let AddLayerNorm { x, bias, residual, gamma, beta, .. } = input;
    RowLaunch::of(&[x, bias, residual, gamma, beta], x.meta.shape().dims(), BINDINGS)
}

fn summands<T: Float>(input: &Input) -> SummandsArgs<T> {
    let [x, bias, residual] = [&input.x, &input.bias, &input.residual].map(|tensor| buffer(tensor.clone()));
    SummandsArgs::Residual(ResidualLaunch::new(x, bias, residual))
}

impl Kernels<CubeBackend> for AddLayerNormOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference(input) };
        let vectors = [input.gamma.clone(), input.beta.clone()];
        on.layer_norm(&[on.rows], summands(&input), vectors, input.epsilon, &input.dropout)
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference_backward(input, upstream) };
        let Upstream { statistics, grad, needs: [x, bias, residual, gamma, beta] } = upstream;
        let matrix = |needed: bool| needed.then(|| on.empty([on.rows, on.hidden], on.float));
        let (dx, d_residual) = (matrix(x), matrix(residual));
        let partials = on.partials(if bias || gamma || beta { 3 } else { 0 });
        let (summands, outputs) = (summands(&input), [&dx, &d_residual, &partials]);
        on.layer_norm_backward(summands, input.gamma, &input.dropout, statistics, grad, outputs);
        // The kernel stores γ, β and the bias, in this order.
        let totals = partials.map_or_else(Vec::new, |partials| on.totals(&partials, 3));
        let vector = |needed: bool, i: usize| totals.get(i).filter(|_| needed).cloned();
        vec![dx, vector(bias, 2), d_residual, vector(gamma, 0), vector(beta, 1)]
    }
}
