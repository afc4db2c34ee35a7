//! Flex, Burn's CPU backend: one pass over the tokens, forward and backward, in parallel.

mod backward;
mod scatter;
mod source;

use crate::engine::operator::Output;
use crate::flex::mask::for_groups;
use crate::flex::scalar::{Scalar, Wide};
use crate::flex::{HostKernels, for_each, sums, tensor, widened};
use crate::numerics::philox::Mask;
use crate::ops::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use pulp::{Arch, Simd, WithSimd};
use source::{Values, assert_in_range, rows, sources, summands_of};

impl HostKernels for EmbedLayerNormOp {
    fn forward<T: Scalar>(input: EmbedLayerNorm<Flex>) -> Output<Self, Flex> {
        let [batch, seq] = input.shape;
        let norm = Norm::of::<T>(&input);
        let sources = sources(&input);
        assert_in_range(&input, &sources);
        let (tokens, hidden) = (batch * seq, norm.gamma.len());
        let summands = summands_of(&sources);
        let mut y = vec![T::default(); tokens * hidden];
        let [mut mean, mut rstd] = [(); 2].map(|()| vec![T::Wide::ZERO; tokens]);
        let statistics = mean.chunks_mut(TASK).zip(rstd.chunks_mut(TASK));
        let tasks =
            y.chunks_mut(TASK * hidden).zip(statistics).enumerate().map(|(task, (y, (mean, rstd)))| Task {
                first: task * TASK,
                summands,
                norm: &norm,
                y,
                mean,
                rstd,
            });
        for_each(tokens * hidden, tasks, |task| Arch::new().dispatch(task));
        let of_token = |values| tensor(values, Shape::new([batch, seq, 1]));
        (tensor(y, Shape::new([batch, seq, hidden])), [mean, rstd].map(of_token))
    }

    fn backward<T: Scalar>(
        input: EmbedLayerNorm<Flex>,
        statistics: [FloatTensor<Flex>; 2],
        grad: FloatTensor<Flex>,
        needs: [bool; 5],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        backward::backward::<T>(&input, statistics, grad, needs)
    }
}

/// Consecutive tokens.
struct Task<'a, T: Scalar> {
    first: usize,
    summands: [Values<'a, T>; 3],
    norm: &'a Norm<T::Wide>,
    y: &'a mut [T],
    mean: &'a mut [T::Wide],
    rstd: &'a mut [T::Wide],
}

impl<T: Scalar> WithSimd for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Norm { gamma, beta, epsilon, mask } = self.norm;
        let hidden = gamma.len();
        let mut sum = vec![T::Wide::ZERO; hidden];
        let statistics = self.mean.iter_mut().zip(self.rstd);
        let tokens = self.y.chunks_exact_mut(hidden).zip(statistics);
        for (token, (y, (mean, rstd))) in (self.first..).zip(tokens) {
            add_rows(rows(&self.summands, token, hidden), &mut sum);
            (*mean, *rstd) = sums::layer_norm_statistics(&sum, *epsilon);
            let (mean, rstd) = (*mean, *rstd);
            let scaled = |x: T::Wide, gamma, beta| (x - mean) * rstd * gamma + beta;
            match mask {
                None => {
                    for (((&x, &gamma), &beta), y) in sum.iter().zip(gamma).zip(beta).zip(y) {
                        *y = T::narrow(scaled(x, gamma, beta));
                    }
                }
                Some(mask) => {
                    // In place, for the mask's loop to read: it draws words for whole groups.
                    for ((x, &gamma), &beta) in sum.iter_mut().zip(gamma).zip(beta) {
                        *x = scaled(*x, gamma, beta);
                    }
                    for_groups(simd, mask, token as u64, y, &sum, |factor, y, x| *y = T::narrow(x * factor));
                }
            }
        }
    }
}

/// Tokens that are worked on in one go.
pub(super) const TASK: usize = 64;

/// LayerNorm's and dropout's constants.
pub(super) struct Norm<W> {
    pub(super) gamma: Vec<W>,
    pub(super) beta: Vec<W>,
    pub(super) epsilon: f64,
    pub(super) mask: Option<Mask>,
}

impl<W: Wide> Norm<W> {
    pub(super) fn of<T: Scalar<Wide = W>>(input: &EmbedLayerNorm<Flex>) -> Self {
        let [gamma, beta] = [&input.gamma, &input.beta].map(widened::<T>);
        Self { gamma, beta, epsilon: input.epsilon, mask: input.dropout.mask() }
    }
}

/// `sum` = the rows added up, each addition rounded to `T`.
#[inline(always)]
pub(super) fn add_rows<T: Scalar>(rows: [Option<&[T]>; 3], sum: &mut [T::Wide]) {
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
