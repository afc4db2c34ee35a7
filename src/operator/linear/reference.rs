//! The operator made of Burn's primitive operations.

use super::{Linear, LinearOp};
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::dtype::{computed_in, narrow, wide};
use crate::operator::inputs::{Held, Spec, Specs};
use crate::operator::kernels::{Operator, Output};
use crate::operator::precision::Rounding;
use crate::operator::rows;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Shape};

impl Operator for LinearOp {
    type Needs = [bool; 3];
    type Statistics<X: Held> = [X; 0];

    fn specs(inputs: &Linear<Specs>) -> (Spec, [Spec; 0]) {
        let shape = Shape::new([inputs.x.shape[0], inputs.weight.shape[1]]);
        (Spec { shape, dtype: inputs.output() }, [])
    }

    fn reference<B: DropoutOps>(inputs: Linear<B>) -> Output<Self, B> {
        (forward::<Reference, B>(inputs), [])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: Linear<B>,
        []: [FloatTensor<B>; 0],
        grad: FloatTensor<B>,
        needs: [bool; 3],
    ) -> Vec<Option<FloatTensor<B>>> {
        backward::<Reference, B>(inputs, grad, needs)
    }
}

/// What the operator is made of on backend `B`.
pub(super) trait Arithmetic<B: Backend> {
    /// A · B in f32, its operands rounded to `dtype`.
    fn product(a: FloatTensor<B>, b: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
        let [a, b] = [a, b].map(|operand| wide::<B>(narrow::<B>(operand, dtype)));
        B::float_matmul(a, b)
    }

    /// A · B + bias for each row, its operands rounded to `dtype`, rounded to `output` once.
    fn affine(
        a: FloatTensor<B>,
        b: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
        dtype: DType,
        output: DType,
    ) -> FloatTensor<B> {
        let sum = Self::product(a, b, dtype);
        let sum = match bias {
            Some(bias) => {
                let bias = rows::vector::<B>(&bias, &sum);
                B::float_add(sum, bias)
            }
            None => sum,
        };
        narrow::<B>(sum, output)
    }

    /// The sum of the rows of `x`, for the vector `of`.
    fn total(x: FloatTensor<B>, of: &FloatTensor<B>) -> FloatTensor<B> {
        rows::total::<B>(wide::<B>(x), of)
    }
}

/// What every backend has.
struct Reference;

impl<B: Backend> Arithmetic<B> for Reference {}

pub(super) fn forward<A: Arithmetic<B>, B: Backend>(inputs: Linear<B>) -> FloatTensor<B> {
    let (dtype, output) = (inputs.rounding.dtype, inputs.output());
    A::affine(inputs.x, inputs.weight, inputs.bias, dtype, output)
}

pub(super) fn backward<A: Arithmetic<B>, B: Backend>(
    inputs: Linear<B>,
    grad: FloatTensor<B>,
    [x, weight, bias]: [bool; 3],
) -> Vec<Option<FloatTensor<B>>> {
    let Rounding { dtype, scale } = inputs.rounding;
    // What a gradient in 16 bits was multiplied with already.
    let scaled = if is_wide::<B>(&grad) { 1.0 } else { scale };
    let bias = inputs.bias.as_ref().filter(|_| bias);
    let bias = bias.map(|bias| times::<B>(A::total(grad.clone(), bias), 1.0 / scaled));
    let grad = times::<B>(grad, scale / scaled);
    let x_grad = x.then(|| {
        let weight = B::float_swap_dims(inputs.weight.clone(), 0, 1);
        let of_x = inputs.x.dtype();
        let product = A::affine(grad.clone(), weight, None, dtype, of_x);
        if is_wide::<B>(&inputs.x) { times::<B>(product, 1.0 / scale) } else { product }
    });
    let weight = weight.then(|| {
        let (x, of_weight) = (B::float_swap_dims(inputs.x, 0, 1), inputs.weight.dtype());
        times::<B>(A::affine(x, grad, None, dtype, of_weight), 1.0 / scale)
    });
    vec![x_grad, weight, bias]
}

fn is_wide<B: Backend>(tensor: &FloatTensor<B>) -> bool {
    computed_in(tensor.dtype()) == tensor.dtype()
}

fn times<B: Backend>(tensor: FloatTensor<B>, factor: f64) -> FloatTensor<B> {
    if factor == 1.0 { tensor } else { B::float_mul_scalar(tensor, factor.into()) }
}
