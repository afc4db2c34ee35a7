//! Rows of the logits.

use crate::flex::functions::Functions;
use crate::flex::mask::factors;
use crate::flex::sums::{dot, max_of, sum_of};
use crate::flex::{Scalar, Wide, simd_fn};
use crate::numerics::philox::Mask;

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

simd_fn! {
    /// From products Q·Kᵀ to mask · exp(S − max), row by row. The statistics are max and 1 / Σ exp(S − max).
    pub(super) fn softmax<S, T: Scalar>(
        simd,
        scores: Scores<'a, T>,
        products: &'a mut [T::Wide],
        statistics: &'a mut [[T::Wide; 2]],
    ) {
        let mut factor = vec![T::Wide::ZERO; if scores.mask.is_some() { scores.length } else { 0 }];
        let rows = products.chunks_exact_mut(scores.length).zip(statistics);
        for (row, (values, statistics)) in rows.enumerate() {
            scores.scale(row, values);
            // No exponent is above 0: nothing overflows.
            let highest = max_of(values);
            values.iter_mut().for_each(|s| *s = (*s - highest).exp::<S>());
            let sum = sum_of(values, |e| e).to_f64();
            *statistics = [highest, T::Wide::from_f64(1.0 / sum)];
            if let Some(mask) = scores.mask {
                factors(simd, mask, scores.first + row as u64, &mut factor);
                values.iter_mut().zip(&factor).for_each(|(e, &factor)| *e = *e * factor);
            }
        }
    }
}

simd_fn! {
    /// From products Q·Kᵀ to mask · P, and from ∂L/∂(mask · P) to scale · ∂L/∂S, row by row.
    ///
    /// `grad` is empty if only V's gradient is asked for; `bias_grad` has the block's rows, each of `bias_length`.
    pub(super) fn softmax_backward<S, T: Scalar>(
        simd,
        scores: Scores<'a, T>,
        products: &'a mut [T::Wide],
        grad: &'a mut [T::Wide],
        statistics: &'a [[T::Wide; 2]],
        bias_grad: Option<&'a mut [T]>,
    ) {
        let (scale, mut bias_grad) = (T::Wide::from_f64(scores.scale), bias_grad);
        let mut factor = vec![T::Wide::ZERO; if scores.mask.is_some() { scores.length } else { 0 }];
        let mut grads = grad.chunks_exact_mut(scores.length);
        let rows = products.chunks_exact_mut(scores.length).zip(statistics);
        for (row, (values, &[max, inverse_sum])) in rows.enumerate() {
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
                if let Some(bias) = &mut bias_grad {
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
