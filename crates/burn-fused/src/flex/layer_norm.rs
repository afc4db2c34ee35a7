//! LayerNorm of one row, as `add_layer_norm` and `embed_layer_norm` have it.

use crate::flex::sums::{dot, sum_of};
use crate::flex::{Scalar, Wide, widened};
use crate::numerics::dropout::Dropout;
use crate::numerics::philox::Mask;
use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;

/// LayerNorm's and dropout's constants.
pub(crate) struct Norm<W> {
    pub(crate) gamma: Vec<W>,
    beta: Vec<W>,
    epsilon: f64,
    pub(crate) mask: Option<Mask>,
}

impl<W: Wide> Norm<W> {
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
        let squares = sum_of(x, |x| (x - mean) * (x - mean)).to_f64();
        let rstd = W::from_f64(1.0 / (squares / count + self.epsilon).sqrt());
        for (((&x, &gamma), &beta), y) in x.iter().zip(&self.gamma).zip(&self.beta).zip(y) {
            *y = T::narrow((x - mean) * rstd * gamma + beta);
        }
        [mean, rstd]
    }

    /// From the gradient of y to that of x, in place.
    #[inline(always)]
    pub(crate) fn backward(&self, grad: &mut [W], normalized: &[W], rstd: W) {
        grad.iter_mut().zip(&self.gamma).for_each(|(d, &gamma)| *d = *d * gamma);
        let count = grad.len() as f64;
        let average = W::from_f64(sum_of(grad, |g| g).to_f64() / count);
        let along = W::from_f64(dot(grad, normalized).to_f64() / count);
        for (d, &x) in grad.iter_mut().zip(normalized) {
            *d = rstd * (*d - average - x * along);
        }
    }
}

/// Adds a row's share to the gradients of γ and β; `grad` is the gradient of y.
#[inline(always)]
pub(crate) fn parameters_backward<W: Wide>(grad: &[W], normalized: &[W], gamma: &mut [W], beta: &mut [W]) {
    for (((&d, &x), gamma), beta) in grad.iter().zip(normalized).zip(gamma).zip(beta) {
        *gamma += d * x;
        *beta += d;
    }
}
