//! One token: plain loops over H, which the compiler vectorises for the CPU that pulp finds at run time.

use crate::operator::embed_layer_norm::EmbedLayerNorm;
use crate::operator::flex::layer_norm;
use crate::operator::flex::mask::for_groups;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::widened;
use crate::operator::philox::Mask;
use burn::backend::Flex;
use pulp::Simd;

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
pub(super) fn forward<S: Simd, T: Scalar>(
    simd: S,
    token: u64,
    rows: [Option<&[T]>; 3],
    norm: &Norm<T::Wide>,
    sum: &mut [T::Wide],
    y: &mut [T],
) -> (T::Wide, T::Wide) {
    add_rows(rows, sum);
    let (mean, rstd) = layer_norm::statistics(sum, norm.epsilon);
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
pub(super) fn backward<S: Simd, T: Scalar>(
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
    layer_norm::parameters_backward(out.sum, out.normalized, out.gamma, out.beta);
    if !out.sources {
        return;
    }
    layer_norm::backward(out.sum, out.normalized, &norm.gamma, rstd);
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
