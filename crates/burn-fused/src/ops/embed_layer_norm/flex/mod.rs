//! Flex, Burn's CPU backend: one pass over the tokens, forward and backward, in parallel.

mod backward;
mod scatter;
mod source;

use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::layer_norm::Norm;
use crate::flex::mask::for_groups;
use crate::flex::{HostKernels, Scalar, Wide, for_each, simd_fn, statistics, tensor};
use crate::ops::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use burn::backend::Flex;
use burn::tensor::Shape;
use source::{Values, assert_in_range, rows, sources, summands_of};

impl HostKernels for EmbedLayerNormOp {
    fn forward<T: Scalar>(input: EmbedLayerNorm<Flex>) -> Output<Self, Flex> {
        let [batch, seq] = input.shape;
        let norm = Norm::new::<T>([&input.gamma, &input.beta], input.epsilon, &input.dropout);
        let sources = sources(&input);
        assert_in_range(&input, &sources);
        let (tokens, hidden) = (batch * seq, norm.gamma.len());
        let summands = summands_of(&sources);
        let mut y = vec![T::default(); tokens * hidden];
        let mut found = vec![[T::Wide::ZERO; 2]; tokens];
        let tasks = y.chunks_mut(TASK * hidden).zip(found.chunks_mut(TASK));
        for_each(tokens * hidden, tasks.enumerate(), |(task, (y, found))| {
            forward(task * TASK, summands, &norm, y, found);
        });
        (tensor(y, Shape::new([batch, seq, hidden])), statistics(&found, Shape::new([batch, seq, 1])))
    }

    fn backward<T: Scalar>(input: EmbedLayerNorm<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        backward::backward::<T>(&input, upstream)
    }
}

simd_fn! {
    /// Tokens from `first` on.
    fn forward<S, T: Scalar>(
        simd,
        first: usize,
        summands: [Values<'a, T>; 3],
        norm: &'a Norm<T::Wide>,
        y: &'a mut [T],
        statistics: &'a mut [[T::Wide; 2]],
    ) {
        let hidden = norm.gamma.len();
        let [mut sum, mut scaled] = [(); 2].map(|()| vec![T::Wide::ZERO; hidden]);
        for (token, (y, statistics)) in (first..).zip(y.chunks_exact_mut(hidden).zip(statistics)) {
            add_rows(rows(&summands, token, hidden), &mut sum);
            *statistics = match &norm.mask {
                None => norm.forward(&sum, y),
                Some(mask) => {
                    // Wide, for the mask's loop to read: it draws words for whole groups.
                    let statistics = norm.forward(&sum, &mut scaled);
                    for_groups(simd, mask, token as u64, y, &scaled, |factor, y, x| *y = T::narrow(x * factor));
                    statistics
                }
            };
        }
    }
}

/// Tokens that are worked on in one go.
const TASK: usize = 64;

/// `sum` = the rows added up, each addition rounded to `T`.
#[inline(always)]
fn add_rows<T: Scalar>(rows: [Option<&[T]>; 3], sum: &mut [T::Wide]) {
    // As Burn's additions round: the reference adds tensors.
    let round = |wide: T::Wide| T::narrow(wide).widen();
    let mut present = rows.into_iter().flatten();
    match (present.next(), present.next(), present.next()) {
        (Some(a), Some(b), Some(c)) => {
            for (((x, a), b), c) in sum.iter_mut().zip(a).zip(b).zip(c) {
                *x = round(round(a.widen() + b.widen()) + c.widen());
            }
        }
        (Some(a), Some(b), None) => {
            sum.iter_mut().zip(a).zip(b).for_each(|((x, a), b)| *x = round(a.widen() + b.widen()));
        }
        (Some(a), None, None) => sum.iter_mut().zip(a).for_each(|(x, a)| *x = a.widen()),
        _ => sum.fill(T::Wide::ZERO),
    }
}
