//! Flex, Burn's CPU backend: a block of rows of the logits at a time. Heads of sequences are tasks for threads, in the forward their
//! blocks; the longest come first.
//!
//! A block is computed, soft-maxed and multiplied while it is in the cache, by products on views of the inputs. Of a long
//! sequence it is a part of the keys at a time, with the softmax of those before it rescaled (Milakov and Gimelshein, 2018,
//! <https://arxiv.org/abs/1805.02867>). Results do not depend on the number of threads: blocks have a fixed size, products do
//! not depend on it either, and the blocks of a head are added up in their order.

mod blocks;

use super::{Attention, AttentionOp};
use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::mask::factors;
use crate::flex::row::{accumulate, dot, max_of, sum_of};
use crate::flex::scalar::Functions;
use crate::flex::{
    HostKernels, Scalar, Wide, for_each, multiply, row_statistics, simd_fn, statistics, tensor,
};
use crate::numerics::philox::GROUP;
use blocks::{Block, Head, heads, parts, store};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use std::cmp::Reverse;

impl HostKernels for AttentionOp {
    fn forward<T: Scalar>(input: Attention<Flex>) -> Output<Self, Flex> {
        let input = with_contiguous_bias(input);
        let (shape, heads, longest) = (input.query.shape(), heads::<T>(&input), input.longest);
        let mut output = vec![T::default(); shape.num_elements()];
        let mut found = vec![[T::Wide::ZERO; 2]; heads.len() * longest];
        let outputs = parts(&heads, &mut output, input.heads);
        let mut tasks = Vec::new();
        for ((head, rows), mut found) in heads.iter().zip(outputs).zip(found.chunks_mut(longest)) {
            let mut rows = rows.into_iter();
            for block in head.blocks() {
                let (own, others) = found.split_at_mut(block.queries.len());
                found = others;
                let rows: Vec<_> = rows.by_ref().take(own.len()).collect();
                tasks.push((block, rows, own));
            }
        }
        tasks.sort_by_key(|(block, ..)| Reverse(block.queries.len() * block.keys.len()));
        for_each(heads.len() * longest * longest, tasks.into_iter(), |(block, rows, found)| {
            block.forward(rows, found);
        });
        let of_row = Shape::new([input.lengths.len(), input.heads, longest, 1]);
        let (output, [max, inverse_sum]) = (tensor(output, shape), statistics(&found, of_row));
        (output.clone(), [max, inverse_sum, output])
    }

    fn backward<T: Scalar>(input: Attention<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        let Upstream { statistics: [max, inverse_sum, _], grad, needs } = upstream;
        let [needs_query, needs_key, needs_value, needs_bias, needs_by_query, needs_by_key] = needs;
        let input = with_contiguous_bias(input);
        let (shape, heads, longest) = (input.query.shape(), heads::<T>(&input), input.longest);
        let statistics = row_statistics([max, inverse_sum]);
        let buffer = |needed: bool, count| vec![T::default(); if needed { count } else { 0 }];
        let mut grads =
            [needs_query, needs_key, needs_value].map(|needed| buffer(needed, shape.num_elements()));
        // Sequences that share a bias add to one gradient, one after the other.
        let shared = input.bias.as_ref().filter(|_| needs_bias).map(|bias| bias.shape()[0] * input.heads);
        let groups = shared.unwrap_or(heads.len());
        let mut bias_grad = vec![T::Wide::ZERO; shared.map_or(0, |groups| groups * longest * longest)];
        // Apart for each sequence, and added up in their order: heads are worked on in parallel.
        let columns = shape[1] / input.heads;
        let distances =
            |needed: bool| vec![T::Wide::ZERO; if needed { (2 * longest - 1) * columns } else { 0 }];
        let mut vectors: Vec<_> =
            heads.iter().map(|_| [needs_by_query, needs_by_key].map(distances)).collect();
        let [query, key, value] = grads.each_mut().map(|values| parts(&heads, values, input.heads));
        let mut bias_parts = bias_grad.chunks_mut(longest * longest);
        let rows = query.into_iter().zip(key).zip(value).map(|((query, key), value)| [query, key, value]);
        let mut tasks: Vec<Vec<_>> = (0..groups).map(|_| Vec::new()).collect();
        for (i, task) in heads.iter().zip(rows).zip(&mut vectors).enumerate() {
            tasks[i % groups].push(task);
        }
        let mut tasks: Vec<_> = tasks.into_iter().map(|task| (task, bias_parts.next())).collect();
        tasks.sort_by_key(|(heads, _)| Reverse(heads[0].0.0.rows.len()));
        for_each(heads.len() * longest * longest, tasks.into_iter(), |(heads, mut bias)| {
            for ((head, rows), vectors) in heads {
                head.backward(&grad, &statistics, rows, bias.as_deref_mut(), vectors);
            }
        });
        // What is not needed has no values.
        let gradient = |rows: Vec<T>| (!rows.is_empty()).then(|| tensor(rows, shape.clone()));
        let mut grads = Vec::from(grads.map(gradient));
        let bias_tensor = |bias: &FloatTensor<Flex>| tensor(T::narrow_all(bias_grad), bias.shape());
        grads.push(input.bias.as_ref().filter(|_| needs_bias).map(bias_tensor));
        grads.push(needs_by_query.then(|| joined(&heads, &vectors, 0)));
        grads.push(needs_by_key.then(|| joined(&heads, &vectors, 1)));
        grads
    }
}

fn with_contiguous_bias(input: Attention<Flex>) -> Attention<Flex> {
    // Once for all heads, which read it as slices.
    Attention { bias: input.bias.map(|bias| bias.to_contiguous()), ..input }
}

impl<T: Scalar> Block<'_, T> {
    /// The output, and the statistics of its rows.
    fn forward(&self, output: Vec<&mut [T]>, statistics: &mut [[T::Wide; 2]]) {
        let width = self.head.columns.len();
        let mut context = vec![T::Wide::ZERO; output.len() * width];
        statistics.fill([T::Wide::from_f64(f64::NEG_INFINITY), T::Wide::ZERO]);
        for part in self.parts() {
            let mut products = part.products();
            softmax(&part, products.storage_mut(), statistics, &mut context);
            add_product(Some(&mut context[..]), products, part.view(&self.head.input.value, &part.keys));
        }
        // O is divided by the sums, and not P: d values of a row and not L.
        for ((context, output), [_, sum]) in context.chunks_exact(width).zip(output).zip(statistics) {
            *sum = T::Wide::from_f64(1.0 / sum.to_f64());
            output.iter_mut().zip(context).for_each(|(o, &c)| *o = T::narrow(c * *sum));
        }
    }
}

impl<T: Scalar> Head<'_, T> {
    /// Stores the gradients: of query, key and value, a part for each row of the sequence, and of `by_query` and `by_key`,
    /// [2L − 1, d]; adds to that of the bias, [L, L]. What is not asked for is empty or `None`. The output's gradient and the
    /// statistics are those of all rows.
    fn backward(
        &self,
        grad: &FloatTensor<Flex>,
        statistics: &[[T::Wide; 2]],
        [mut query_grad, mut key_grad, mut value_grad]: [Vec<&mut [T]>; 3],
        mut bias_grad: Option<&mut [T::Wide]>,
        [of_query, of_key]: &mut [Vec<T::Wide>; 2],
    ) {
        let (input, longest, width) = (self.input, self.input.longest, self.columns.len());
        // Blocks are added up in their order, whatever the threads; what is not asked for stays empty.
        let [mut key_sum, mut value_sum] =
            [&key_grad, &value_grad].map(|parts| vec![T::Wide::ZERO; parts.len() * width]);
        let needs_vectors = !of_query.is_empty() || !of_key.is_empty();
        let needs_scores =
            !query_grad.is_empty() || !key_grad.is_empty() || bias_grad.is_some() || needs_vectors;
        // What a part of a block multiplies: weights, and the logits' gradient, which V's gradient does not need.
        let soften = |part: &Block<T>, along: &mut [T::Wide], is_known, bias_grad: Option<&mut [T::Wide]>| {
            let mut weights = part.products();
            let mut scores_grad = needs_scores.then(|| {
                let value = part.view(&input.value, &part.keys);
                multiply(part.view(grad, &part.queries), value.transpose(0, 1))
            });
            softmax_backward(
                part,
                weights.storage_mut(),
                scores_grad.as_mut().map(|grad| grad.storage_mut()).unwrap_or_default(),
                &statistics[part.row(0)..][..part.queries.len()],
                along,
                is_known,
                bias_grad.map(|bias| &mut bias[part.queries.start * longest..]),
            );
            (weights, scores_grad)
        };
        for block in self.blocks() {
            let queries = block.queries.clone();
            let [query, grad] = [&input.query, grad].map(|rows| block.view(rows, &queries));
            let mut along = vec![T::Wide::ZERO; queries.len()];
            // Sums over all keys come first.
            let is_known = needs_scores && block.parts().len() > 1;
            if is_known {
                block.parts().for_each(|part| drop(soften(&part, &mut along, false, None)));
            }
            let mut of_queries =
                vec![T::Wide::ZERO; query_grad.get(queries.clone()).map_or(0, <[_]>::len) * width];
            for block in block.parts() {
                let keys = block.keys.clone();
                // A view: matmuls read any strides.
                let key = block.view(&input.key, &keys);
                let (weights, scores_grad) = soften(&block, &mut along, is_known, bias_grad.as_deref_mut());
                let values = keys.start * width..keys.end * width;
                add_product(value_sum.get_mut(values.clone()), weights.transpose(0, 1), grad.clone());
                let Some(mut scores_grad) = scores_grad else { continue };
                add_product(Some(&mut of_queries[..]), scores_grad.clone(), key);
                if let Some(vectors) = &input.by_query {
                    let grad = block.by_query(scores_grad.storage());
                    add_product(Some(&mut of_queries[..]), grad.clone(), block.vectors(vectors));
                    let of_query = of_query.get_mut(block.first_distance() * width..);
                    add_product(of_query, grad.transpose(0, 1), query.clone());
                }
                let squares =
                    input.by_key.iter().flat_map(|vectors| block.squares().map(move |part| (vectors, part)));
                for (vectors, part) in squares {
                    let grad = part.by_key(&block.keys, scores_grad.storage_mut());
                    let of_keys = key_sum.get_mut(part.keys.start * width..part.keys.end * width);
                    add_product(of_keys, grad.clone(), part.vectors(vectors));
                    let of_key = of_key.get_mut(part.first_distance() * width..);
                    add_product(of_key, grad.transpose(0, 1), part.view(&input.key, &part.keys));
                }
                add_product(key_sum.get_mut(values), scores_grad.transpose(0, 1), query.clone());
            }
            store(query_grad.get_mut(queries).unwrap_or_default(), &of_queries);
        }
        store(&mut key_grad, &key_sum);
        store(&mut value_grad, &value_sum);
    }
}

/// `to += a · b`, where there is room for it.
fn add_product<W: Wide>(to: Option<&mut [W]>, a: FloatTensor<Flex>, b: FloatTensor<Flex>) {
    if let Some(to) = to.filter(|to| !to.is_empty()) {
        accumulate(to, multiply(a, b).storage());
    }
}

/// The gradient of vectors of distances, [2L − 1, H], of what each head of each sequence adds to it.
fn joined<T: Scalar>(heads: &[Head<T>], parts: &[[Vec<T::Wide>; 2]], which: usize) -> FloatTensor<Flex> {
    let [_, hidden] = heads[0].input.query.shape().dims();
    let distances = parts[0][which].len() / heads[0].columns.len();
    let mut sums = vec![T::Wide::ZERO; distances * hidden];
    for (head, part) in heads.iter().zip(parts) {
        let rows = sums.chunks_exact_mut(hidden).zip(part[which].chunks_exact(head.columns.len()));
        rows.for_each(|(sum, row)| accumulate(&mut sum[head.columns.clone()], row));
    }
    tensor(T::narrow_all(sums), Shape::new([distances, hidden]))
}

simd_fn! {
    /// From products Q·Kᵀ to mask · exp(S − max), row by row. The statistics are max and Σ exp(S − max) of the keys so far, and
    /// `context` has the sum of mask · exp(S − max) · V of those before.
    fn softmax<S, T: Scalar>(
        simd,
        block: &'a Block<'a, T>,
        products: &'a mut [T::Wide],
        statistics: &'a mut [[T::Wide; 2]],
        context: &'a mut [T::Wide],
    ) {
        let (group, mut factor) = block.factors();
        let width = context.len() / statistics.len().max(1);
        let contexts = context.chunks_exact_mut(width.max(1));
        let rows = products.chunks_exact_mut(block.keys.len()).zip(statistics).zip(contexts);
        for (row, ((values, [max, sum]), context)) in rows.enumerate() {
            let keys = block.keys_of(row);
            let values = block.inside(values, &keys);
            block.scale(row, &keys, values);
            // No exponent is above 0: nothing overflows.
            let highest = max_of(values);
            if highest > *max {
                let rescale = (*max - highest).exp::<S>();
                *max = highest;
                *sum = *sum * rescale;
                context.iter_mut().for_each(|c| *c = *c * rescale);
            } else if highest == T::Wide::from_f64(f64::NEG_INFINITY) && values.iter().all(|s| *s == highest) {
                // No key of these counts: e^(−∞ + ∞) would be no number, though others may.
                values.fill(T::Wide::ZERO);
                continue;
            }
            values.iter_mut().for_each(|s| *s = (*s - *max).exp::<S>());
            *sum += sum_of(values, |e| e);
            if let Some(mask) = &block.head.mask {
                factors(simd, mask, block.row(row) as u64, group, &mut factor);
                let factor = &factor[keys.start - GROUP * group as usize..];
                values.iter_mut().zip(factor).for_each(|(e, &factor)| *e = *e * factor);
            }
        }
    }
}

simd_fn! {
    /// From products Q·Kᵀ to mask · P, and from ∂L/∂(mask · P) to scale · ∂L/∂S, row by row.
    ///
    /// `grad` is empty if only V's gradient is asked for; `bias_grad` has the block's rows of all L keys. `along` is Σ P · ∂L/∂P of
    /// all keys of a row if it is known. If not, that of these keys is added to it, and what it is then is taken for all.
    fn softmax_backward<S, T: Scalar>(
        simd,
        block: &'a Block<'a, T>,
        products: &'a mut [T::Wide],
        grad: &'a mut [T::Wide],
        statistics: &'a [[T::Wide; 2]],
        along: &'a mut [T::Wide],
        is_known: bool,
        bias_grad: Option<&'a mut [T::Wide]>,
    ) {
        let Head { input, mask, .. } = block.head;
        let (scale, mut bias_grad) = (T::Wide::from_f64(input.scale), bias_grad);
        let (group, mut factor) = block.factors();
        let mut grads = grad.chunks_exact_mut(block.keys.len());
        let rows = products.chunks_exact_mut(block.keys.len()).zip(statistics);
        for (row, (values, &[max, inverse_sum])) in rows.enumerate() {
            let keys = block.keys_of(row);
            let values = block.inside(values, &keys);
            block.scale(row, &keys, values);
            values.iter_mut().for_each(|s| *s = (*s - max).exp::<S>() * inverse_sum);
            if let Some(mask) = mask {
                factors(simd, mask, block.row(row) as u64, group, &mut factor);
            }
            let factor = factor.get(keys.start - GROUP * group as usize..).unwrap_or_default();
            if let Some(grad) = grads.next() {
                let grad = block.inside(grad, &keys);
                if mask.is_some() {
                    grad.iter_mut().zip(factor).for_each(|(d, &factor)| *d = *d * factor);
                }
                if !is_known {
                    along[row] += dot(grad, values);
                }
                grad.iter_mut().zip(&*values).for_each(|(d, &p)| *d = p * (*d - along[row]));
                if let Some(bias) = &mut bias_grad {
                    let bias = &mut bias[row * input.longest..][keys.clone()];
                    accumulate(bias, grad);
                }
                // Behind the bias, whose gradient is not scaled.
                grad.iter_mut().for_each(|d| *d = *d * scale);
            }
            if mask.is_some() {
                values.iter_mut().zip(factor).for_each(|(p, &factor)| *p = *p * factor);
            }
        }
    }
}
