//! Autodiff over any backend: one step in the graph, with a hand-written backward.

use crate::operator::embed_layer_norm::input::{EmbedLayerNorm, Operand};
use crate::operator::embed_layer_norm::ops::EmbeddingOps;
use crate::operator::gradients::register;
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;

impl<B: EmbeddingOps, C: CheckpointStrategy> EmbeddingOps for Autodiff<B, C> {
    fn embed_layer_norm(input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        let nodes = nodes(&input);
        let input = input.map(|tensor| tensor.into_primitive(), |ids| ids);
        match Step.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (y, mean, rstd) = B::embed_layer_norm_with_statistics(input.clone());
                prep.finish(State { input, mean, rstd }, y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::embed_layer_norm(input)),
        }
    }
}

#[derive(Debug)]
struct Step;

/// What the backward needs: the inputs, which live as long as the module does, and two numbers a token.
#[derive(Clone, Debug)]
struct State<B: EmbeddingOps> {
    input: EmbedLayerNorm<B>,
    mean: FloatTensor<B>,
    rstd: FloatTensor<B>,
}

impl<B: EmbeddingOps> Backward<B, 5> for Step {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 5>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let State { input, mean, rstd } = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        register::<B, 5>(parents, B::embed_layer_norm_backward(input, mean, rstd, grad, needs), grads);
    }
}

/// The graph nodes of the five operands. What is absent stands as a constant.
fn nodes<B: EmbeddingOps, C: CheckpointStrategy>(input: &EmbedLayerNorm<Autodiff<B, C>>) -> [NodeGuard; 5] {
    Operand::ALL.map(|operand| {
        let source = match operand {
            Operand::Words => input.words.source(),
            Operand::TokenTypes => input.token_types.source(),
            Operand::Positions => input.positions.source(),
            Operand::Gamma => Some(&input.gamma),
            Operand::Beta => Some(&input.beta),
        };
        match source {
            Some(tensor) => tensor.node(),
            None => Autodiff::<B, C>::from_inner(input.gamma.primitive().clone()).node(),
        }
    })
}
