//! Flex, Burn's CPU backend: sequences and heads in parallel, a block of rows of the logits at a time.
//!
//! A block is computed, soft-maxed and multiplied while it is in the cache, by products on views of the inputs. Results do
//! not depend on the number of threads: blocks have a fixed size, each product runs on one thread, and the blocks of a head
//! are added up in their order.

mod softmax;

use super::{Attention, AttentionOp};
use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::sums::accumulate;
use crate::flex::{
    HostKernels, Scalar, Wide, for_each, multiply, of_rows, slice, statistics, tensor, widened,
};
use crate::numerics::philox::Mask;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, Shape};
use softmax::{Scores, softmax, softmax_backward};
use std::ops::Range;

impl HostKernels for AttentionOp {
    fn forward<T: Scalar>(input: Attention<Flex>) -> Output<Self, Flex> {
        let input = with_contiguous_bias(input);
        let (shape, heads, longest) = (input.query.shape(), heads(&input), input.longest());
        let batch = Batch::<T>::new(&input);
        let mut output = vec![T::default(); shape.num_elements()];
        let mut found = vec![[T::Wide::ZERO; 2]; heads.len() * longest];
        let outputs = parts(&heads, &mut output, input.heads);
        let tasks: Vec<_> = heads.iter().zip(outputs).zip(found.chunks_mut(longest)).collect();
        for_each(tasks.len() * longest * longest, tasks.into_iter(), |((head, output), found)| {
            batch.forward(head, output, found);
        });
        let of_row = Shape::new([input.lengths.len(), input.heads, longest, 1]);
        (tensor(output, shape), statistics(&found, of_row))
    }

    fn backward<T: Scalar>(input: Attention<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        let Upstream { statistics, grad, needs: [needs_query, needs_key, needs_value, needs_bias] } =
            upstream;
        let input = with_contiguous_bias(input);
        let (shape, heads, longest) = (input.query.shape(), heads(&input), input.longest());
        let (batch, statistics) = (Batch::<T>::new(&input), of_rows(statistics));
        let buffer = |needed: bool, count| vec![T::default(); if needed { count } else { 0 }];
        let [mut query, mut key, mut value] =
            [needs_query, needs_key, needs_value].map(|needed| buffer(needed, shape.num_elements()));
        let mut bias_grad = buffer(needs_bias, heads.len() * longest * longest);
        let [query_parts, key_parts, value_parts] =
            [&mut query, &mut key, &mut value].map(|values| parts(&heads, values, input.heads));
        let mut bias_parts = bias_grad.chunks_mut(longest * longest);
        let outputs = query_parts.into_iter().zip(key_parts).zip(value_parts);
        let outputs =
            outputs.map(|((query, key), value)| Outputs { query, key, value, bias: bias_parts.next() });
        let tasks: Vec<_> = heads.iter().zip(outputs).collect();
        for_each(tasks.len() * longest * longest, tasks.into_iter(), |(head, outputs)| {
            batch.backward(head, &grad, &statistics, outputs);
        });
        let rows = |needed: bool, values| needed.then(|| tensor(values, shape.clone()));
        vec![
            rows(needs_query, query),
            rows(needs_key, key),
            rows(needs_value, value),
            input.bias.as_ref().filter(|_| needs_bias).map(|bias| tensor(bias_grad, bias.shape())),
        ]
    }
}

fn with_contiguous_bias(input: Attention<Flex>) -> Attention<Flex> {
    Attention { bias: input.bias.map(|bias| bias.to_contiguous()), ..input }
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
    fn new(input: &'a Attention<Flex>) -> Self {
        let (mask, bias) = (input.dropout.mask(), input.bias.as_ref().map(|bias| slice::<T>(bias)));
        Self { input, longest: input.longest(), mask, bias }
    }

    /// The logits of a block of a head's rows, which begins at row `first` of B · A · L.
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

    /// The output of a head, and the statistics of its rows.
    fn forward(&self, head: &Head, mut output: Vec<&mut [T]>, statistics: &mut [[T::Wide; 2]]) {
        let key = head.view::<T>(&self.input.key).transpose(0, 1);
        let value = head.view::<T>(&self.input.value);
        for block in head.blocks() {
            let query = head.view_of::<T>(&self.input.query, block.clone());
            let mut products = multiply(query, key.clone());
            let first = head.index * self.longest + block.start;
            softmax(self.scores(head, first), products.storage_mut(), &mut statistics[block.clone()]);
            let context = multiply(products, value.clone());
            let rows = context.storage::<T::Wide>().chunks_exact(head.columns.len());
            // O is divided by the sums, and not P: d values of a row and not L.
            for ((context, output), &[_, inverse_sum]) in
                rows.zip(&mut output[block.clone()]).zip(&statistics[block])
            {
                output.iter_mut().zip(context).for_each(|(o, &c)| *o = T::narrow(c * inverse_sum));
            }
        }
    }

    /// The gradients of a head, given that of the output and the statistics of all rows, [B, A, L].
    fn backward(
        &self,
        head: &Head,
        grad: &FloatTensor<Flex>,
        statistics: &[[T::Wide; 2]],
        mut outputs: Outputs<T>,
    ) {
        let Batch { input, longest, .. } = *self;
        let key = head.view::<T>(&input.key);
        let value = head.view::<T>(&input.value).transpose(0, 1);
        // Blocks are added up in their order, whatever the threads.
        let [mut key_sum, mut value_sum] =
            [&outputs.key, &outputs.value].map(|parts| vec![T::Wide::ZERO; parts.len() * head.columns.len()]);
        let needs_scores = !outputs.query.is_empty() || !outputs.key.is_empty() || outputs.bias.is_some();
        for block in head.blocks() {
            let query = head.view_of::<T>(&input.query, block.clone());
            let grad = head.view_of::<T>(grad, block.clone());
            let mut weights = multiply(query.clone(), key.clone().transpose(0, 1));
            // V's gradient needs the weights alone.
            let mut scores_grad = needs_scores.then(|| multiply(grad.clone(), value.clone()));
            let first = head.index * longest + block.start;
            softmax_backward(
                self.scores(head, first),
                weights.storage_mut(),
                scores_grad.as_mut().map(|grad| grad.storage_mut()).unwrap_or_default(),
                &statistics[first..][..block.len()],
                outputs.bias.as_mut().map(|bias| &mut bias[block.start * longest..]),
            );
            if !outputs.value.is_empty() {
                accumulate(&mut value_sum, multiply(weights.transpose(0, 1), grad).storage());
            }
            let Some(scores_grad) = scores_grad else { continue };
            if !outputs.key.is_empty() {
                accumulate(&mut key_sum, multiply(scores_grad.transpose(0, 1), query).storage());
            }
            if !outputs.query.is_empty() {
                let grad = multiply(scores_grad, key.clone());
                store(&mut outputs.query[block], grad.storage());
            }
        }
        store(&mut outputs.key, &key_sum);
        store(&mut outputs.value, &value_sum);
    }
}

/// Where a head stores its gradients: one part per row of its sequence, none if they are not asked for.
struct Outputs<'a, T> {
    query: Vec<&'a mut [T]>,
    key: Vec<&'a mut [T]>,
    value: Vec<&'a mut [T]>,
    /// [L, L].
    bias: Option<&'a mut [T]>,
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
        /// Logits of a block.
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
        // Matmuls take f32 and bf16.
        tensor(widened::<T>(&view), view.shape())
    }
}

/// The rows of [N, H] cut up: for each head, its part of each row of its sequence.
fn parts<'a, T>(heads: &[Head], values: &'a mut [T], count: usize) -> Vec<Vec<&'a mut [T]>> {
    // The columns of a head are apart in memory: a slice for each row, so that threads share nothing.
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

/// Stores rows of a head, narrowed.
fn store<T: Scalar>(parts: &mut [&mut [T]], values: &[T::Wide]) {
    let columns = parts.first().map_or(1, |part| part.len());
    for (part, row) in parts.iter_mut().zip(values.chunks_exact(columns)) {
        part.iter_mut().zip(row).for_each(|(part, &value)| *part = T::narrow(value));
    }
}
