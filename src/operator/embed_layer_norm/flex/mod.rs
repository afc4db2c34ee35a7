//! Flex, Burn's CPU backend: one pass over the tokens, forward and backward, in parallel.
//!
//! Results do not depend on the number of threads: tokens are cut into tasks of a fixed size, and what tasks
//! have in common is added up in their order.

mod backward;
mod forward;
mod row;
mod scatter;
mod source;

use crate::operator::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use crate::operator::flex::scalar::Scalar;
use crate::operator::flex::{HostKernels, tensor};
use crate::operator::kernels::Output;
use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use row::Norm;
use source::{assert_in_range, sources};

impl HostKernels for EmbedLayerNormOp {
    fn forward<T: Scalar>(input: EmbedLayerNorm<Flex>) -> Output<Self, Flex> {
        let [batch, seq] = input.shape;
        let norm = Norm::of::<T>(&input);
        let sources = sources(&input);
        assert_in_range(&input, &sources);
        let (y, mean, rstd) = forward::forward::<T>(&sources, &norm, batch * seq);
        let of_token = |values| tensor(values, Shape::new([batch, seq, 1]));
        (tensor(y, Shape::new([batch, seq, norm.gamma.len()])), [of_token(mean), of_token(rstd)])
    }

    fn backward<T: Scalar>(
        input: EmbedLayerNorm<Flex>,
        [mean, rstd]: [FloatTensor<Flex>; 2],
        grad: FloatTensor<Flex>,
        needs: [bool; 5],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        backward::backward::<T>(&input, &mean, &rstd, &grad, needs)
    }
}

#[cfg(test)]
mod tests;
