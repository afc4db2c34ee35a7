//! Flex, Burn's CPU backend: one pass over the tokens, forward and backward, in parallel.
//!
//! Results do not depend on the number of threads: tokens are cut into tasks of a fixed size, and what tasks
//! have in common is added up in their order.

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
use source::{Source, Values, assert_in_range, rows, sources, summands_of};

impl HostKernels for EmbedLayerNormOp {
    fn forward<T: Scalar>(input: EmbedLayerNorm<Flex>) -> Output<Self, Flex> {
        let [batch, seq] = input.shape;
        let norm = Norm::of::<T>(&input);
        let sources = sources(&input);
        assert_in_range(&input, &sources);
        let (y, mean, rstd) = forward::<T>(&sources, &norm, batch * seq);
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

/// y [tokens, H], mean and rstd [tokens].
fn forward<T: Scalar>(
    sources: &[Option<Source>; 3],
    norm: &Norm<T::Wide>,
    tokens: usize,
) -> (Vec<T>, Vec<T::Wide>, Vec<T::Wide>) {
    let hidden = norm.gamma.len();
    let summands = summands_of(sources);
    let mut y = vec![T::default(); tokens * hidden];
    let mut mean = vec![T::Wide::ZERO; tokens];
    let mut rstd = vec![T::Wide::ZERO; tokens];
    let tasks = y.chunks_mut(TASK * hidden).zip(mean.chunks_mut(TASK)).zip(rstd.chunks_mut(TASK)).enumerate();
    let tasks =
        tasks.map(|(task, ((y, mean), rstd))| Task { first: task * TASK, summands, norm, y, mean, rstd });
    for_each(tokens * hidden, tasks, |task| Arch::new().dispatch(task));
    (y, mean, rstd)
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
        let hidden = self.norm.gamma.len();
        let mut sum = vec![T::Wide::ZERO; hidden];
        let tokens = self.y.chunks_exact_mut(hidden).zip(self.mean).zip(self.rstd);
        for (token, ((y, mean), rstd)) in (self.first..).zip(tokens) {
            let rows = rows(&self.summands, token, hidden);
            (*mean, *rstd) = forward_token(simd, token as u64, rows, self.norm, &mut sum, y);
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

/// y of one token. Returns its mean and rstd; `sum` is scratch of length H.
#[inline(always)]
fn forward_token<S: Simd, T: Scalar>(
    simd: S,
    token: u64,
    rows: [Option<&[T]>; 3],
    norm: &Norm<T::Wide>,
    sum: &mut [T::Wide],
    y: &mut [T],
) -> (T::Wide, T::Wide) {
    add_rows(rows, sum);
    let (mean, rstd) = sums::layer_norm_statistics(sum, norm.epsilon);
    let scaled = |x: T::Wide, gamma, beta| (x - mean) * rstd * gamma + beta;
    match &norm.mask {
        None => {
            for (((&x, &gamma), &beta), y) in sum.iter().zip(&norm.gamma).zip(&norm.beta).zip(y) {
                *y = T::narrow(scaled(x, gamma, beta));
            }
        }
        Some(mask) => {
            for ((x, &gamma), &beta) in sum.iter_mut().zip(&norm.gamma).zip(&norm.beta) {
                *x = scaled(*x, gamma, beta);
            }
            for_groups(simd, mask, token, y, sum, |factor, y, x| *y = T::narrow(x * factor));
        }
    }
    (mean, rstd)
}

/// Where the backward of one token adds and stores, each of length H.
pub(super) struct Gradients<'a, W> {
    /// Scratch: x̂.
    pub(super) normalized: &'a mut [W],
    /// ∂L/∂x, if `sources` asks for it.
    pub(super) sum: &'a mut [W],
    pub(super) sources: bool,
    pub(super) gamma: &'a mut [W],
    pub(super) beta: &'a mut [W],
}

/// The backward of one token.
#[inline(always)]
pub(super) fn backward_token<S: Simd, T: Scalar>(
    simd: S,
    token: u64,
    rows: [Option<&[T]>; 3],
    norm: &Norm<T::Wide>,
    [mean, rstd]: [T::Wide; 2],
    grad: &[T],
    out: &mut Gradients<T::Wide>,
) {
    add_rows(rows, out.normalized);
    out.normalized.iter_mut().for_each(|x| *x = (*x - mean) * rstd);
    match &norm.mask {
        Some(mask) => {
            for_groups(simd, mask, token, out.sum, grad, |factor, d, grad| *d = grad.widen() * factor)
        }
        None => out.sum.iter_mut().zip(grad).for_each(|(d, grad)| *d = grad.widen()),
    }
    sums::layer_norm_parameters_backward(out.sum, out.normalized, out.gamma, out.beta);
    if !out.sources {
        return;
    }
    sums::layer_norm_backward(out.sum, out.normalized, &norm.gamma, rstd);
}

/// `sum` = the rows added up, each addition rounded to `T`.
#[inline(always)]
fn add_rows<T: Scalar>(rows: [Option<&[T]>; 3], sum: &mut [T::Wide]) {
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
