//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.
//!
//! Results do not depend on the number of threads: rows are cut into tasks of a fixed size, and what tasks have in
//! common is added up in their order.

mod backward;
mod forward;

use super::{AddLayerNorm, AddLayerNormOp};
use crate::operator::flex::mask::factors;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::{HostKernels, Rows, slice, tensor, widened};
use crate::operator::kernels::Output;
use crate::operator::philox::Mask;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use pulp::Simd;

impl HostKernels for AddLayerNormOp {
    fn forward<T: Scalar>(input: AddLayerNorm<Flex>) -> Output<Self, Flex> {
        let block = Block::new::<T>(&input);
        let of_rows = Shape::new([input.x.shape()[0], 1]);
        let (mut rows, residual) = (Rows::new(input.x), input.residual.to_contiguous());
        let statistics = forward::forward::<T>(&mut rows, slice(&residual), &block);
        (rows.output(), <[_; 2]>::from(statistics).map(|values| tensor(values, of_rows.clone())))
    }

    fn backward<T: Scalar>(
        input: AddLayerNorm<Flex>,
        [mean, rstd]: [FloatTensor<Flex>; 2],
        grad: FloatTensor<Flex>,
        needs: [bool; 5],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        backward::backward::<T>(&input, &mean, &rstd, &grad, needs)
    }
}

/// What is the same for all rows.
struct Block<W> {
    bias: Vec<W>,
    gamma: Vec<W>,
    beta: Vec<W>,
    epsilon: f64,
    mask: Option<Mask>,
}

impl<W: Wide> Block<W> {
    fn new<T: Scalar<Wide = W>>(input: &AddLayerNorm<Flex>) -> Self {
        Self {
            bias: widened::<T>(&input.bias),
            gamma: widened::<T>(&input.gamma),
            beta: widened::<T>(&input.beta),
            epsilon: input.epsilon,
            mask: input.dropout.mask(),
        }
    }

    /// `sum` = residual + mask · (x + bias) of one row, and the mask's `factor`s, which are left alone without dropout.
    #[inline(always)]
    fn add<S: Simd, T: Scalar<Wide = W>>(
        &self,
        simd: S,
        row: usize,
        [x, residual]: [&[T]; 2],
        sum: &mut [W],
        factor: &mut [W],
    ) {
        let summands = sum.iter_mut().zip(x).zip(&self.bias).zip(residual);
        match &self.mask {
            None => summands.for_each(|(((sum, x), &bias), residual)| {
                *sum = x.widen() + bias + residual.widen();
            }),
            Some(mask) => {
                factors(simd, mask, row as u64, factor);
                summands.zip(&*factor).for_each(|((((sum, x), &bias), residual), &factor)| {
                    *sum = (x.widen() + bias) * factor + residual.widen();
                });
            }
        }
    }
}
