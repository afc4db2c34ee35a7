//! Autodiff over any backend: one step in the graph, with a hand-written backward.

use super::input::{Attention, ScoreBias};
use super::ops::AttentionOps;
use crate::operator::gradients::register;
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;

impl<B: AttentionOps, C: CheckpointStrategy> AttentionOps for Autodiff<B, C> {
    fn packed_attention(input: Attention<Self>) -> FloatTensor<Self> {
        let bias = match input.bias.added() {
            Some(bias) => bias.node(),
            None => Self::from_inner(input.query.primitive().clone()).node(), // stands for a constant
        };
        let nodes = [input.query.node(), input.key.node(), input.value.node(), bias];
        let input = inner(input);
        match Step.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (output, max, inverse_sum) = B::packed_attention_with_statistics(input.clone());
                prep.finish(State { input, max, inverse_sum }, output)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::packed_attention(input)),
        }
    }
}

#[derive(Debug)]
struct Step;

/// What the backward needs: the inputs, and two numbers for each row of the scores.
#[derive(Clone, Debug)]
struct State<B: AttentionOps> {
    input: Attention<B>,
    max: FloatTensor<B>,
    inverse_sum: FloatTensor<B>,
}

impl<B: AttentionOps> Backward<B, 4> for Step {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 4>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let State { input, max, inverse_sum } = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        let gradients = B::packed_attention_backward(input, max, inverse_sum, grad, needs);
        register::<B, 4>(parents, gradients, grads);
    }
}

fn inner<B: AttentionOps, C: CheckpointStrategy>(input: Attention<Autodiff<B, C>>) -> Attention<B> {
    Attention {
        query: input.query.into_primitive(),
        key: input.key.into_primitive(),
        value: input.value.into_primitive(),
        lengths: input.lengths,
        heads: input.heads,
        scale: input.scale,
        bias: match input.bias {
            ScoreBias::Absent => ScoreBias::Absent,
            ScoreBias::Added(bias) => ScoreBias::Added(bias.into_primitive()),
        },
        dropout: input.dropout.into_inner(),
        path: input.path,
    }
}
