//! Flex, Burn's CPU backend: sequences and heads in parallel, a block of rows of the scores at a time.
//!
//! A block is computed, soft-maxed and multiplied while it is in the cache, by products on views of the inputs. Results do
//! not depend on the number of threads: blocks have a fixed size, each product runs on one thread, and the blocks of a head
//! are added up in their order.

mod backward;
mod forward;
mod rows;

use super::{Attention, AttentionOp};
use crate::operator::flex::scalar::Scalar;
use crate::operator::flex::{HostKernels, slice, tensor, widened};
use crate::operator::kernels::Output;
use crate::operator::philox::Mask;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use rows::Scores;
use std::ops::Range;

impl HostKernels for AttentionOp {
    fn forward<T: Scalar>(input: Attention<Flex>) -> Output<Self, Flex> {
        let shape = Shape::new([input.lengths.len(), input.heads, input.longest(), 1]);
        let (output, max, inverse_sum) = forward::forward::<T>(&input);
        (output, [tensor(max, shape.clone()), tensor(inverse_sum, shape)])
    }

    fn backward<T: Scalar>(
        input: Attention<Flex>,
        [max, inverse_sum]: [FloatTensor<Flex>; 2],
        grad: FloatTensor<Flex>,
        needs: [bool; 4],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        backward::backward::<T>(&input, &max, &inverse_sum, &grad, needs)
    }
}

/// What all heads read.
struct Batch<'a, T> {
    input: &'a Attention<Flex>,
    longest: usize,
    mask: Option<Mask>,
    /// [B, A, L, L].
    bias: Option<&'a [T]>,
}

impl<'a, T: Scalar> Batch<'a, T> {
    /// `bias` is the input's, contiguous.
    fn new(input: &'a Attention<Flex>, bias: &'a Option<FloatTensor<Flex>>) -> Self {
        let (mask, bias) = (input.dropout.mask(), bias.as_ref().map(|bias| slice::<T>(bias)));
        Self { input, longest: input.longest(), mask, bias }
    }

    /// The scores of a block of a head's rows, which begins at row `first` of B · A · L.
    fn scores(&self, head: &Head, first: usize) -> Scores<'_, T> {
        Scores {
            length: head.length(),
            scale: self.input.scale,
            first: first as u64,
            mask: self.mask.as_ref(),
            bias: self.bias.map(|bias| &bias[first * self.longest..]),
            bias_length: self.longest,
        }
    }
}

/// One head of one sequence.
#[derive(Clone)]
struct Head {
    /// Which of B · A.
    index: usize,
    /// Rows of the sequence in [N, H].
    rows: Range<usize>,
    /// Columns of the head.
    columns: Range<usize>,
}

/// All heads of the first sequence, then all of the second.
fn heads(input: &Attention<Flex>) -> Vec<Head> {
    let columns = input.query.shape()[1] / input.heads;
    let mut heads = Vec::with_capacity(input.lengths.len() * input.heads);
    let mut first = 0;
    for &length in &input.lengths {
        for head in 0..input.heads {
            heads.push(Head {
                index: heads.len(),
                rows: first..first + length,
                columns: head * columns..(head + 1) * columns,
            });
        }
        first += length;
    }
    heads
}

impl Head {
    fn length(&self) -> usize {
        self.rows.len()
    }

    /// The rows of each block: few enough for the block to stay in a core's cache, and for each of its products to run on one
    /// thread.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        const BLOCK: usize = 128;
        /// Scores of a block.
        const VALUES: usize = 64 * 1024;
        /// Below it, a product runs on one thread.
        const PRODUCT: usize = 192 * 192 * 192;
        let length = self.length();
        let fits = (PRODUCT - 1) / (length * self.columns.len()).max(1);
        let step = BLOCK.min(VALUES / length.max(1)).min(fits).max(1);
        (0..length).step_by(step).map(move |first| first..length.min(first + step))
    }

    /// The head's part of rows [N, H] for a product: a view, but of f16 a copy that is wide.
    fn view<T: Scalar>(&self, rows: &FloatTensor<Flex>) -> FloatTensor<Flex> {
        self.view_of::<T>(rows, 0..self.length())
    }

    /// Some rows of [`view`](Self::view).
    fn view_of<T: Scalar>(&self, rows: &FloatTensor<Flex>, block: Range<usize>) -> FloatTensor<Flex> {
        let view = rows.narrow(0, self.rows.start + block.start, block.len());
        let view = view.narrow(1, self.columns.start, self.columns.len());
        if T::dtype() != DType::F16 {
            return view;
        }
        tensor(widened::<T>(&view), view.shape())
    }
}

/// The rows of [N, H] cut up: for each head, its part of each row of its sequence.
fn parts<'a, T>(heads: &[Head], values: &'a mut [T], count: usize) -> Vec<Vec<&'a mut [T]>> {
    let mut parts: Vec<Vec<_>> = heads.iter().map(|head| Vec::with_capacity(head.length())).collect();
    let Some(columns) = heads.first().map(|head| head.columns.len()) else { return parts };
    let mut rows = values.chunks_exact_mut(columns * count);
    for (sequence, parts) in heads.chunks(count).zip(parts.chunks_mut(count)) {
        for row in rows.by_ref().take(sequence[0].length()) {
            for (part, columns) in parts.iter_mut().zip(row.chunks_exact_mut(columns)) {
                part.push(columns);
            }
        }
    }
    parts
}
