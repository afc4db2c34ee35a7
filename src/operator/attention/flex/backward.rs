//! The backward pass.

use super::rows::SoftMaxBackward;
use super::{Batch, Head, heads, parts};
use crate::operator::attention::Attention;
use crate::operator::flex::products::multiply;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::sums::accumulate;
use crate::operator::flex::{slice, tensor};
use crate::operator::parallel;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use pulp::Arch;

/// The gradients of query, key, value and bias that `needs` asks for.
pub(super) fn backward<T: Scalar>(
    input: &Attention<Flex>,
    max: &FloatTensor<Flex>,
    inverse_sum: &FloatTensor<Flex>,
    grad: &FloatTensor<Flex>,
    needs: [bool; 4],
) -> Vec<Option<FloatTensor<Flex>>> {
    let [needs_query, needs_key, needs_value, needs_bias] = needs;
    let shape = input.query.shape();
    let heads = heads(input);
    let longest = input.longest();
    let bias = input.bias.as_ref().map(FloatTensor::<Flex>::to_contiguous);
    let [max, inverse_sum] = [max, inverse_sum].map(|values| values.to_contiguous());
    let batch = Gradients {
        batch: Batch::new(input, &bias),
        grad,
        max: slice::<T::Wide>(&max),
        inverse_sum: slice::<T::Wide>(&inverse_sum),
    };
    let buffer = |needed: bool, count| vec![T::default(); if needed { count } else { 0 }];
    let [mut query, mut key, mut value] =
        [needs_query, needs_key, needs_value].map(|needed| buffer(needed, shape.num_elements()));
    let mut bias_grad = buffer(needs_bias, heads.len() * longest * longest);
    let [query_parts, key_parts, value_parts] =
        [&mut query, &mut key, &mut value].map(|values| parts(&heads, values, input.heads));
    let mut bias_parts = bias_grad.chunks_mut(longest * longest);
    let outputs = query_parts.into_iter().zip(key_parts).zip(value_parts);
    let tasks: Vec<_> = heads
        .iter()
        .zip(outputs)
        .map(|(head, ((query, key), value))| (head, Outputs { query, key, value, bias: bias_parts.next() }))
        .collect();
    let work = tasks.len() * longest * longest;
    parallel::for_each(work, tasks.into_iter(), |(head, outputs)| batch.head(head, outputs));
    let rows = |needed: bool, values| needed.then(|| tensor(values, shape.clone()));
    vec![
        rows(needs_query, query),
        rows(needs_key, key),
        rows(needs_value, value),
        input.bias.as_ref().filter(|_| needs_bias).map(|bias| tensor(bias_grad, bias.shape())),
    ]
}

/// What all heads read.
struct Gradients<'a, T: Scalar> {
    batch: Batch<'a, T>,
    grad: &'a FloatTensor<Flex>,
    /// [B, A, L].
    max: &'a [T::Wide],
    inverse_sum: &'a [T::Wide],
}

/// Where a head stores its gradients: one part per row of its sequence, none if they are not asked for.
struct Outputs<'a, T> {
    query: Vec<&'a mut [T]>,
    key: Vec<&'a mut [T]>,
    value: Vec<&'a mut [T]>,
    /// [L, L].
    bias: Option<&'a mut [T]>,
}

impl<T: Scalar> Gradients<'_, T> {
    fn head(&self, head: &Head, mut outputs: Outputs<T>) {
        let Batch { input, longest, .. } = self.batch;
        let key = head.view::<T>(&input.key);
        let value = head.view::<T>(&input.value).transpose(0, 1);
        let [mut key_sum, mut value_sum] = [&outputs.key, &outputs.value]
            .map(|parts| Sum::<T::Wide> { values: vec![T::Wide::ZERO; parts.len() * head.columns.len()] });
        let needs_scores = !outputs.query.is_empty() || !outputs.key.is_empty() || outputs.bias.is_some();
        for block in head.blocks() {
            let query = head.view_of::<T>(&input.query, block.clone());
            let grad = head.view_of::<T>(self.grad, block.clone());
            let mut weights = multiply(query.clone(), key.clone().transpose(0, 1));
            let mut scores_grad = needs_scores.then(|| multiply(grad.clone(), value.clone()));
            let first = head.index * longest + block.start;
            Arch::new().dispatch(SoftMaxBackward {
                scores: self.batch.scores(head, first),
                products: weights.storage_mut(),
                grad: scores_grad.as_mut().map(|grad| grad.storage_mut()).unwrap_or_default(),
                max: &self.max[first..][..block.len()],
                inverse_sum: &self.inverse_sum[first..][..block.len()],
                bias_grad: outputs.bias.as_mut().map(|bias| &mut bias[block.start * longest..]),
            });
            if !outputs.value.is_empty() {
                value_sum.add(multiply(weights.transpose(0, 1), grad));
            }
            let Some(scores_grad) = scores_grad else { continue };
            if !outputs.key.is_empty() {
                key_sum.add(multiply(scores_grad.transpose(0, 1), query));
            }
            if !outputs.query.is_empty() {
                let grad = multiply(scores_grad, key.clone());
                store(&mut outputs.query[block], grad.storage());
            }
        }
        store(&mut outputs.key, &key_sum.values);
        store(&mut outputs.value, &value_sum.values);
    }
}

/// The sum of a head's blocks.
struct Sum<W> {
    values: Vec<W>,
}

impl<W: Wide> Sum<W> {
    fn add(&mut self, block: FloatTensor<Flex>) {
        accumulate(&mut self.values, block.storage());
    }
}

/// Stores rows of a head, narrowed.
fn store<T: Scalar>(parts: &mut [&mut [T]], values: &[T::Wide]) {
    let columns = parts.first().map_or(1, |part| part.len());
    for (part, row) in parts.iter_mut().zip(values.chunks_exact(columns)) {
        part.iter_mut().zip(row).for_each(|(part, &value)| *part = T::narrow(value));
    }
}
