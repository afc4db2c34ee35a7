//! LayerNorm of one row.

use super::scalar::Wide;
use super::sums::{dot, sum_of};

/// Mean and rstd of `x`.
#[inline(always)]
pub(crate) fn statistics<W: Wide>(x: &[W], epsilon: f64) -> (W, W) {
    let count = x.len() as f64;
    let mean = W::from_f64(sum_of(x, |x| x).to_f64() / count);
    let squares = sum_of(x, |x| (x - mean) * (x - mean)).to_f64();
    (mean, W::from_f64(1.0 / (squares / count + epsilon).sqrt()))
}

/// Adds a row's share to the gradients of γ and β; `grad` is the gradient of y.
#[inline(always)]
pub(crate) fn parameters_backward<W: Wide>(grad: &[W], normalized: &[W], gamma: &mut [W], beta: &mut [W]) {
    for (((&d, &x), gamma), beta) in grad.iter().zip(normalized).zip(gamma).zip(beta) {
        *gamma += d * x;
        *beta += d;
    }
}

/// From the gradient of y to that of x, in place.
#[inline(always)]
pub(crate) fn backward<W: Wide>(grad: &mut [W], normalized: &[W], gamma: &[W], rstd: W) {
    grad.iter_mut().zip(gamma).for_each(|(d, &gamma)| *d = *d * gamma);
    let count = grad.len() as f64;
    let average = W::from_f64(sum_of(grad, |g| g).to_f64() / count);
    let along = W::from_f64(dot(grad, normalized).to_f64() / count);
    for (d, &x) in grad.iter_mut().zip(normalized) {
        *d = rstd * (*d - average - x * along);
    }
}
