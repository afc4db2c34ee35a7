//! The operator made of Burn's primitive operations.

use super::{BiasGelu, BiasGeluOp, CUBIC};
use crate::engine::inputs::{Held, Spec, Specs};
use crate::engine::operator::{Operator, Output};
use crate::numerics::activation::Activation;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::sums;
use crate::numerics::sums::{narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

impl Operator for BiasGeluOp {
    type Needs = [bool; 2];
    type Statistics<X: Held> = [X; 0];

    fn specs(inputs: &BiasGelu<Specs>) -> (Spec, [Spec; 0]) {
        (inputs.x.clone(), [])
    }

    fn reference<B: DropoutOps>(inputs: BiasGelu<B>) -> Output<Self, B> {
        let z = biased::<B>(&inputs);
        let y = match inputs.activation {
            Activation::Gelu => B::float_mul(cumulative::<B>(z.clone()), z),
            Activation::GeluTanh | Activation::GeluFast => {
                let tanh = B::float_tanh(cubic::<B>(&z, inputs.activation.slope(), 1.0));
                B::float_mul(half_above::<B>(tanh), z)
            }
            Activation::Relu => B::relu(z),
            Activation::Tanh => B::float_tanh(z),
            Activation::Sigmoid => sigmoid::<B>(z),
            Activation::Identity => z,
        };
        (narrow::<B>(y, inputs.x.dtype()), [])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: BiasGelu<B>,
        []: [FloatTensor<B>; 0],
        grad: FloatTensor<B>,
        [x, bias]: [bool; 2],
    ) -> Vec<Option<FloatTensor<B>>> {
        let z = biased::<B>(&inputs);
        let grad = wide::<B>(grad);
        let grad = match inputs.activation {
            Activation::Gelu => {
                let half_square = B::float_mul_scalar(B::float_mul(z.clone(), z.clone()), (-0.5).into());
                let density =
                    B::float_mul_scalar(B::float_exp(half_square), (1.0 / (2.0 * PI).sqrt()).into());
                let slope = B::float_add(cumulative::<B>(z.clone()), B::float_mul(z, density));
                B::float_mul(grad, slope)
            }
            Activation::GeluTanh | Activation::GeluFast => {
                let slope = inputs.activation.slope();
                let tanh = B::float_tanh(cubic::<B>(&z, slope, 1.0));
                let square = B::float_mul(tanh.clone(), tanh.clone());
                let rest = B::float_add_scalar(B::float_mul_scalar(square, (-0.5).into()), 0.5.into());
                // z times the derivative of the cubic is the cubic with three times its last term.
                let inner = B::float_mul(rest, cubic::<B>(&z, slope, 3.0));
                B::float_mul(grad, B::float_add(half_above::<B>(tanh), inner))
            }
            Activation::Relu => B::relu_backward(B::relu(z), grad),
            Activation::Tanh => {
                let y = B::float_tanh(z);
                B::float_sub(grad.clone(), B::float_mul(grad, B::float_mul(y.clone(), y)))
            }
            Activation::Sigmoid => {
                let y = sigmoid::<B>(z);
                let slope = B::float_sub(y.clone(), B::float_mul(y.clone(), y));
                B::float_mul(grad, slope)
            }
            Activation::Identity => grad,
        };
        let bias = bias.then(|| sums::total::<B>(grad.clone(), &inputs.bias));
        vec![x.then(|| narrow::<B>(grad, inputs.x.dtype())), bias]
    }
}

/// x + bias, wide.
fn biased<B: Backend>(inputs: &BiasGelu<B>) -> FloatTensor<B> {
    let x = wide::<B>(inputs.x.clone());
    let bias = sums::vector::<B>(&inputs.bias, &x);
    B::float_add(x, bias)
}

/// Φ(z).
fn cumulative<B: Backend>(z: FloatTensor<B>) -> FloatTensor<B> {
    half_above::<B>(B::float_erf(B::float_mul_scalar(z, FRAC_1_SQRT_2.into())))
}

/// (1 + x) / 2.
fn half_above<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mul_scalar(B::float_add_scalar(x, 1.0.into()), 0.5.into())
}

/// 1 / (1 + e⁻ᶻ). Burn's own passes through f32 on some backends.
fn sigmoid<B: Backend>(z: FloatTensor<B>) -> FloatTensor<B> {
    B::float_recip(B::float_add_scalar(B::float_exp(B::float_neg(z)), 1.0.into()))
}

/// `slope` · (z + `weight` · 0.044715 z³).
fn cubic<B: Backend>(z: &FloatTensor<B>, slope: f64, weight: f64) -> FloatTensor<B> {
    let square = B::float_mul(z.clone(), z.clone());
    let factor = B::float_add_scalar(B::float_mul_scalar(square, (weight * CUBIC).into()), 1.0.into());
    B::float_mul_scalar(B::float_mul(factor, z.clone()), slope.into())
}
