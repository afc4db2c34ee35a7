//! The operator made of Burn's primitive operations.

use super::{BiasGelu, BiasGeluOp};
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::dtype::{narrow, wide};
use crate::operator::inputs::{Held, Spec, Specs};
use crate::operator::kernels::{Operator, Output};
use crate::operator::rows;
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
        (narrow::<B>(B::float_mul(cumulative::<B>(z.clone()), z), inputs.x.dtype()), [])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: BiasGelu<B>,
        []: [FloatTensor<B>; 0],
        grad: FloatTensor<B>,
        [x, bias]: [bool; 2],
    ) -> Vec<Option<FloatTensor<B>>> {
        let z = biased::<B>(&inputs);
        let half_square = B::float_mul_scalar(B::float_mul(z.clone(), z.clone()), (-0.5).into());
        let density = B::float_mul_scalar(B::float_exp(half_square), (1.0 / (2.0 * PI).sqrt()).into());
        let slope = B::float_add(cumulative::<B>(z.clone()), B::float_mul(z, density));
        let grad = B::float_mul(wide::<B>(grad), slope);
        let bias = bias.then(|| rows::total::<B>(grad.clone(), &inputs.bias));
        vec![x.then(|| narrow::<B>(grad, inputs.x.dtype())), bias]
    }
}

/// x + bias, wide.
fn biased<B: Backend>(inputs: &BiasGelu<B>) -> FloatTensor<B> {
    let x = wide::<B>(inputs.x.clone());
    let bias = rows::vector::<B>(&inputs.bias, &x);
    B::float_add(x, bias)
}

/// Φ(z).
fn cumulative<B: Backend>(z: FloatTensor<B>) -> FloatTensor<B> {
    let erf = B::float_erf(B::float_mul_scalar(z, FRAC_1_SQRT_2.into()));
    B::float_mul_scalar(B::float_add_scalar(erf, 1.0.into()), 0.5.into())
}
