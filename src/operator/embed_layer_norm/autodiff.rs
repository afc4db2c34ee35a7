//! Autodiff over any backend.

use super::input::{EmbedLayerNorm, Rows};
use super::ops::EmbeddingOps;
use crate::operator::graph::Operator;
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::ops::NodeGuard;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: EmbeddingOps, C: CheckpointStrategy> EmbeddingOps for Autodiff<B, C> {
    fn embed_layer_norm(input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        let operator = Operator::<B, _, _, 5> {
            forward: B::embed_layer_norm,
            with_statistics: |input| {
                let (y, mean, rstd) = B::embed_layer_norm_with_statistics(input);
                (y, [mean, rstd])
            },
            backward: |input, [mean, rstd], grad, needs| {
                B::embed_layer_norm_backward(input, mean, rstd, grad, needs).into_array().into()
            },
        };
        operator.record::<C>(nodes(&input), input.map(|tensor| tensor.into_primitive(), |ids| ids))
    }
}

/// The graph nodes of words, token types, positions, γ and β. What is absent stands as a constant.
fn nodes<B: EmbeddingOps, C: CheckpointStrategy>(input: &EmbedLayerNorm<Autodiff<B, C>>) -> [NodeGuard; 5] {
    let [words, token_types, positions] =
        [&input.words, &input.token_types, &input.positions].map(Rows::source);
    [words, token_types, positions, Some(&input.gamma), Some(&input.beta)].map(|source| match source {
        Some(tensor) => tensor.node(),
        None => Autodiff::<B, C>::from_inner(input.gamma.primitive().clone()).node(),
    })
}
