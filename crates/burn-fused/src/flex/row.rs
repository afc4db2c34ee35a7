//! Loops over one row, which the compiler vectorises for the CPU that pulp finds at run time.

use crate::flex::{Scalar, Wide, widened};
use crate::numerics::dropout::Dropout;
use crate::numerics::philox::Mask;
use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use std::ops::Add;

/// Partial sums that are carried side by side: four AVX2 registers of f32.
const LANES: usize = 32;

/// `to += from`.
#[inline(always)]
pub(crate) fn accumulate<W: Wide>(to: &mut [W], from: &[W]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += from);
}

/// All pairs of values folded from `start`, in an order that depends on their number alone.
#[inline(always)]
fn fold<W: Wide>([a, b]: [&[W]; 2], start: W, fold: impl Fn(W, W, W) -> W, join: impl Fn(W, W) -> W) -> W {
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [start; LANES];
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        lanes.iter_mut().zip(a).zip(b).for_each(|((lane, &a), &b)| *lane = fold(*lane, a, b));
    }
    lanes.iter_mut().zip(a_rest).zip(b_rest).for_each(|((lane, &a), &b)| *lane = fold(*lane, a, b));
    joined(lanes, join)
}

/// The lanes, half of them joined to the other half until one is left: an order that depends on no CPU, and few steps that wait for
/// each other.
#[inline(always)]
fn joined<W: Wide>(mut lanes: [W; LANES], join: impl Fn(W, W) -> W) -> W {
    let mut half = LANES;
    while half > 1 {
        half /= 2;
        let (left, right) = lanes.split_at_mut(half);
        left.iter_mut().zip(right).for_each(|(left, right)| *left = join(*left, *right));
    }
    lanes[0]
}

/// Σ term(x).
#[inline(always)]
pub(crate) fn sum_of<W: Wide>(values: &[W], term: impl Fn(W) -> W) -> W {
    fold([values; 2], W::ZERO, |sum, x, _| sum + term(x), Add::add)
}

/// The largest of `values`, or −∞; what is not a number is passed over.
#[inline(always)]
pub(crate) fn max_of<W: Wide>(values: &[W]) -> W {
    let higher = |a: W, b: W| if b > a { b } else { a };
    fold([values; 2], W::from_f64(f64::NEG_INFINITY), |most, x, _| higher(most, x), higher)
}

/// Σ a · b.
#[inline(always)]
pub(crate) fn dot<W: Wide>(a: &[W], b: &[W]) -> W {
    fold([a, b], W::ZERO, |sum, a, b| sum + a * b, Add::add)
}

/// Σ d and Σ d² of d = x − mean, in one pass.
#[inline(always)]
fn deviations<W: Wide>(values: &[W], mean: W) -> [W; 2] {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let [mut sums, mut squares] = [[W::ZERO; LANES]; 2];
    let add = |[sum, square]: [&mut W; 2], x: W| {
        let d = x - mean;
        *sum += d;
        *square += d * d;
    };
    for block in blocks {
        let lanes = sums.iter_mut().zip(&mut squares).zip(block);
        lanes.for_each(|((sum, square), &x)| add([sum, square], x));
    }
    let lanes = sums.iter_mut().zip(&mut squares).zip(rest);
    lanes.for_each(|((sum, square), &x)| add([sum, square], x));
    [sums, squares].map(|lanes| joined(lanes, Add::add))
}

/// LayerNorm's and dropout's constants.
pub(crate) struct RowNorm<W> {
    pub(crate) gamma: Vec<W>,
    beta: Vec<W>,
    epsilon: f64,
    pub(crate) mask: Option<Mask>,
}

impl<W: Wide> RowNorm<W> {
    pub(crate) fn new<T: Scalar<Wide = W>>(
        [gamma, beta]: [&FloatTensor<Flex>; 2],
        epsilon: f64,
        dropout: &Dropout<Flex>,
    ) -> Self {
        Self { gamma: widened::<T>(gamma), beta: widened::<T>(beta), epsilon, mask: dropout.mask() }
    }

    /// `y` of the row `x`, and its mean and rstd.
    #[inline(always)]
    pub(crate) fn forward<T: Scalar<Wide = W>>(&self, x: &[W], y: &mut [T]) -> [W; 2] {
        let count = x.len() as f64;
        // One division a row costs nothing in f64.
        let mean = W::from_f64(sum_of(x, |x| x).to_f64() / count);
        // A second pass over a row in the cache: Σ x² / H − mean² would cancel.
        let [off, square] = deviations(x, mean).map(|sum| sum.to_f64() / count);
        // Of large values the sum has lost digits: the mean is off by what deviations from it add up to.
        let variance = square - off * off;
        // Of equal values rounding makes it negative. Not `max`, which would hide NaN.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        let (off, rstd) = (W::from_f64(off), W::from_f64(1.0 / (variance + self.epsilon).sqrt()));
        for (((&x, &gamma), &beta), y) in x.iter().zip(&self.gamma).zip(&self.beta).zip(y) {
            // One after the other: the mean itself may not have the digits.
            *y = T::narrow((x - mean - off) * rstd * gamma + beta);
        }
        [mean + off, rstd]
    }

    /// Replaces the gradient of y by that of the row `x`, and adds to those of γ and β.
    #[inline(always)]
    pub(crate) fn backward(
        &self,
        x: &mut [W],
        [mean, rstd]: [W; 2],
        grad: &mut [W],
        [gamma_grad, beta_grad]: [&mut [W]; 2],
    ) {
        x.iter_mut().for_each(|x| *x = (*x - mean) * rstd);
        for (((&d, &x), gamma), beta) in grad.iter().zip(&*x).zip(gamma_grad).zip(beta_grad) {
            *gamma += d * x;
            *beta += d;
        }
        // In place: γ and β have had the gradient of y.
        grad.iter_mut().zip(&self.gamma).for_each(|(d, &gamma)| *d = *d * gamma);
        let count = grad.len() as f64;
        let average = W::from_f64(sum_of(grad, |g| g).to_f64() / count);
        let along = W::from_f64(dot(grad, x).to_f64() / count);
        for (d, &x) in grad.iter_mut().zip(&*x) {
            *d = rstd * (*d - average - x * along);
        }
    }
}
