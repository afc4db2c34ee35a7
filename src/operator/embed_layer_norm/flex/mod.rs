//! Flex, Burn's CPU backend: one pass over the tokens, forward and backward, in parallel.
//!
//! Results do not depend on the number of threads: tokens are cut into tasks of a fixed size, and what tasks
//! have in common is added up in their order.

mod backward;
mod forward;
mod row;
mod scatter;
mod source;

use crate::operator::embed_layer_norm::check::kernel_dtype;
use crate::operator::embed_layer_norm::input::{EmbedLayerNorm, EmbedLayerNormGradients, Needs};
use crate::operator::embed_layer_norm::ops::EmbeddingOps;
use crate::operator::embed_layer_norm::reference;
use crate::operator::flex::scalar::Scalar;
use crate::operator::flex::{tensor, with_scalar};
use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use row::Norm;
use source::{assert_in_range, sources};

impl EmbeddingOps for Flex {
    fn embed_layer_norm(input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        with_scalar!(kernel_dtype(&input), T => forward::<T>(&input).0, reference::embed_layer_norm::<Self>(input))
    }

    fn embed_layer_norm_with_statistics(
        input: EmbedLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        with_scalar!(kernel_dtype(&input), T => {
            let (y, mean, rstd) = forward::<T>(&input);
            let [batch, seq] = input.shape;
            let [mean, rstd] = [mean, rstd].map(|values| tensor(values, Shape::new([batch, seq, 1])));
            (y, mean, rstd)
        }, reference::with_statistics::<Self>(input))
    }

    fn embed_layer_norm_backward(
        input: EmbedLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: Needs,
    ) -> EmbedLayerNormGradients<Self> {
        with_scalar!(
            kernel_dtype(&input),
            T => backward::backward::<T>(&input, &mean, &rstd, &grad, needs),
            reference::backward::<Self>(input, mean, rstd, grad, needs)
        )
    }
}

fn forward<T: Scalar>(input: &EmbedLayerNorm<Flex>) -> (FloatTensor<Flex>, Vec<T::Wide>, Vec<T::Wide>) {
    let [batch, seq] = input.shape;
    let norm = Norm::of::<T>(input);
    let sources = sources(input);
    assert_in_range(input, &sources);
    let (y, mean, rstd) = forward::forward::<T>(&sources, &norm, batch * seq);
    (tensor(y, Shape::new([batch, seq, norm.gamma.len()])), mean, rstd)
}

#[cfg(test)]
mod tests;
