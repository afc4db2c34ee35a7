//! Autodiff over any backend.

use super::input::AddLayerNorm;
use super::ops::AddLayerNormOps;
use crate::operator::graph::Operator;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: AddLayerNormOps, C: CheckpointStrategy> AddLayerNormOps for Autodiff<B, C> {
    fn add_layer_norm(input: AddLayerNorm<Self>) -> FloatTensor<Self> {
        let nodes = input.operands().map(|operand| operand.node());
        let operator = Operator::<B, _, _, 5> {
            forward: B::add_layer_norm,
            with_statistics: |input| {
                let (y, mean, rstd) = B::add_layer_norm_with_statistics(input);
                (y, [mean, rstd])
            },
            backward: |input, [mean, rstd], grad, needs| {
                B::add_layer_norm_backward(input, mean, rstd, grad, needs)
            },
        };
        operator.record::<C>(nodes, inner(input))
    }
}

fn inner<B: AddLayerNormOps, C: CheckpointStrategy>(input: AddLayerNorm<Autodiff<B, C>>) -> AddLayerNorm<B> {
    AddLayerNorm {
        x: input.x.into_primitive(),
        bias: input.bias.into_primitive(),
        residual: input.residual.into_primitive(),
        gamma: input.gamma.into_primitive(),
        beta: input.beta.into_primitive(),
        epsilon: input.epsilon,
        dropout: input.dropout.into_inner(),
        path: input.path,
    }
}
