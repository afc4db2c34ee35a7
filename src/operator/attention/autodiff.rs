//! Autodiff over any backend.

use super::input::{Attention, ScoreBias};
use super::ops::AttentionOps;
use crate::operator::graph::Operator;
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: AttentionOps, C: CheckpointStrategy> AttentionOps for Autodiff<B, C> {
    fn packed_attention(input: Attention<Self>) -> FloatTensor<Self> {
        let bias = match input.bias.added() {
            Some(bias) => bias.node(),
            None => Self::from_inner(input.query.primitive().clone()).node(), // stands for a constant
        };
        let nodes = [input.query.node(), input.key.node(), input.value.node(), bias];
        let operator = Operator::<B, _, _, 4> {
            forward: B::packed_attention,
            with_statistics: |input| {
                let (output, max, inverse_sum) = B::packed_attention_with_statistics(input);
                (output, [max, inverse_sum])
            },
            backward: |input, [max, inverse_sum], grad, needs| {
                B::packed_attention_backward(input, max, inverse_sum, grad, needs)
            },
        };
        operator.record::<C>(nodes, inner(input))
    }
}

fn inner<B: AttentionOps, C: CheckpointStrategy>(input: Attention<Autodiff<B, C>>) -> Attention<B> {
    Attention {
        query: input.query.into_primitive(),
        key: input.key.into_primitive(),
        value: input.value.into_primitive(),
        lengths: input.lengths,
        starts: input.starts,
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
