//! The operator made of Burn's primitive operations.

use super::input::{BiasGelu, BiasGeluNeeds};
use crate::operator::dtype::{narrow, wide};
use crate::operator::rows;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// y, [N, I].
pub(super) fn bias_gelu<B: Backend>(input: BiasGelu<B>) -> FloatTensor<B> {
    let z = biased::<B>(&input);
    narrow::<B>(B::float_mul(cumulative::<B>(z.clone()), z), input.x.dtype())
}

/// The gradients that `needs` asks for, each in the dtype of its operand.
pub(super) fn backward<B: Backend>(
    input: BiasGelu<B>,
    grad: FloatTensor<B>,
    [x, bias]: BiasGeluNeeds,
) -> Vec<Option<FloatTensor<B>>> {
    let z = biased::<B>(&input);
    let half_square = B::float_mul_scalar(B::float_mul(z.clone(), z.clone()), (-0.5).into());
    let density = B::float_mul_scalar(B::float_exp(half_square), (1.0 / (2.0 * PI).sqrt()).into());
    let slope = B::float_add(cumulative::<B>(z.clone()), B::float_mul(z, density));
    let grad = B::float_mul(wide::<B>(grad), slope);
    let bias = bias.then(|| rows::total::<B>(grad.clone(), &input.bias));
    vec![x.then(|| narrow::<B>(grad, input.x.dtype())), bias]
}

/// x + bias, wide.
fn biased<B: Backend>(input: &BiasGelu<B>) -> FloatTensor<B> {
    let x = wide::<B>(input.x.clone());
    let bias = rows::vector::<B>(&input.bias, &x);
    B::float_add(x, bias)
}

/// Φ(z).
fn cumulative<B: Backend>(z: FloatTensor<B>) -> FloatTensor<B> {
    let erf = B::float_erf(B::float_mul_scalar(z, FRAC_1_SQRT_2.into()));
    B::float_mul_scalar(B::float_add_scalar(erf, 1.0.into()), 0.5.into())
}
