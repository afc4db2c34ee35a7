//! Autodiff over any backend: one step in the graph, with a hand-written backward.

use super::input::AddLayerNorm;
use super::ops::AddLayerNormOps;
use crate::operator::gradients::register;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;

impl<B: AddLayerNormOps, C: CheckpointStrategy> AddLayerNormOps for Autodiff<B, C> {
    fn add_layer_norm(input: AddLayerNorm<Self>) -> FloatTensor<Self> {
        let nodes = input.operands().map(|operand| operand.node());
        let input = inner(input);
        match Step.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (y, mean, rstd) = B::add_layer_norm_with_statistics(input.clone());
                prep.finish(State { input, mean, rstd }, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::add_layer_norm(input)),
        }
    }
}

#[derive(Debug)]
struct Step;

/// What the backward needs: the inputs, and two numbers a row.
#[derive(Clone, Debug)]
struct State<B: AddLayerNormOps> {
    input: AddLayerNorm<B>,
    mean: FloatTensor<B>,
    rstd: FloatTensor<B>,
}

impl<B: AddLayerNormOps> Backward<B, 5> for Step {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 5>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let State { input, mean, rstd } = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        let gradients = B::add_layer_norm_backward(input, mean, rstd, grad, needs);
        register::<B, 5>(parents, gradients, grads);
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
