//! Rows of the logits.

use crate::flex::functions::Functions;
use crate::flex::mask::factors;
use crate::flex::scalar::{Scalar, Wide};
use crate::flex::sums::{dot, max_of, sum_of};
use crate::numerics::philox::Mask;
use pulp::{Simd, WithSimd};

/// What is the same for all rows of a block.
#[derive(Clone, Copy)]
pub(super) struct Scores<'a, T> {
    /// Length of a row.
    pub(super) length: usize,
    pub(super) scale: f64,
    /// The first row of the block in dropout's mask.
    pub(super) first: u64,
    pub(super) mask: Option<&'a Mask>,
    /// The block's rows of the bias, each of `bias_length`.
    pub(super) bias: Option<&'a [T]>,
    pub(super) bias_length: usize,
}

impl<T: Scalar> Scores<'_, T> {
    /// Scales row `row` of a block of products and adds its bias.
    #[inline(always)]
    fn scale(&self, row: usize, products: &mut [T::Wide]) {
        let scale = T::Wide::from_f64(self.scale);
        match self.bias {
            Some(bias) => {
                let bias = &bias[row * self.bias_length..][..self.length];
                products.iter_mut().zip(bias).for_each(|(s, bias)| *s = *s * scale + bias.widen());
            }
            None => products.iter_mut().for_each(|s| *s = *s * scale),
        }
    }
}

/// From products Q·Kᵀ to mask · exp(S − max), row by row.
pub(super) struct SoftMax<'a, T: Scalar> {
    pub(super) scores: Scores<'a, T>,
    pub(super) products: &'a mut [T::Wide],
    pub(super) max: &'a mut [T::Wide],
    pub(super) inverse_sum: &'a mut [T::Wide],
}

impl<T: Scalar> WithSimd for SoftMax<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let scores = self.scores;
        let mut factor = vec![T::Wide::ZERO; if scores.mask.is_some() { scores.length } else { 0 }];
        let rows = self.products.chunks_exact_mut(scores.length).zip(self.max).zip(self.inverse_sum);
        for (row, ((values, max), inverse_sum)) in rows.enumerate() {
            scores.scale(row, values);
            // No exponent is above 0: nothing overflows.
            let highest = max_of(values);
            values.iter_mut().for_each(|s| *s = (*s - highest).exp::<S>());
            let sum = sum_of(values, |e| e).to_f64();
            (*max, *inverse_sum) = (highest, T::Wide::from_f64(1.0 / sum));
            if let Some(mask) = scores.mask {
                factors(simd, mask, scores.first + row as u64, &mut factor);
                values.iter_mut().zip(&factor).for_each(|(e, &factor)| *e = *e * factor);
            }
        }
    }
}

/// From products Q·Kᵀ to mask · P, and from ∂L/∂(mask · P) to scale · ∂L/∂S, row by row.
pub(super) struct SoftMaxBackward<'a, 'b, T: Scalar> {
    pub(super) scores: Scores<'a, T>,
    pub(super) products: &'a mut [T::Wide],
    /// Empty if only V's gradient is asked for.
    pub(super) grad: &'a mut [T::Wide],
    pub(super) max: &'a [T::Wide],
    pub(super) inverse_sum: &'a [T::Wide],
    /// The block's rows of the gradient of the bias, each of `bias_length`.
    pub(super) bias_grad: Option<&'b mut [T]>,
}

impl<T: Scalar> WithSimd for SoftMaxBackward<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let scores = self.scores;
        let scale = T::Wide::from_f64(scores.scale);
        let mut factor = vec![T::Wide::ZERO; if scores.mask.is_some() { scores.length } else { 0 }];
        let mut grads = self.grad.chunks_exact_mut(scores.length);
        let rows = self.products.chunks_exact_mut(scores.length).zip(self.max.iter().zip(self.inverse_sum));
        for (row, (values, (&max, &inverse_sum))) in rows.enumerate() {
            scores.scale(row, values);
            values.iter_mut().for_each(|s| *s = (*s - max).exp::<S>() * inverse_sum);
            if let Some(mask) = scores.mask {
                factors(simd, mask, scores.first + row as u64, &mut factor);
            }
            if let Some(grad) = grads.next() {
                if scores.mask.is_some() {
                    grad.iter_mut().zip(&factor).for_each(|(d, &factor)| *d = *d * factor);
                }
                let along = dot(grad, values);
                grad.iter_mut().zip(&*values).for_each(|(d, &p)| *d = p * (*d - along));
                if let Some(bias) = &mut self.bias_grad {
                    let bias = &mut bias[row * scores.bias_length..][..scores.length];
                    bias.iter_mut().zip(&*grad).for_each(|(bias, &d)| *bias = T::narrow(d));
                }
                // Behind the bias, whose gradient is not scaled.
                grad.iter_mut().for_each(|d| *d = *d * scale);
            }
            if scores.mask.is_some() {
                values.iter_mut().zip(&factor).for_each(|(p, &factor)| *p = *p * factor);
            }
        }
    }
}
