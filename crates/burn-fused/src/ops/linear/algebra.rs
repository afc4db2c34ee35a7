//! The algebra that all backends share, made of three kinds of arithmetic that each may have kernels for, and the
//! reference, which has none.

use super::{Linear, LinearOp};
use crate::engine::inputs::{Held, Spec, Specs};
use crate::engine::operator::{Operator, Output};
#[cfg(any(feature = "flex", feature = "_cubecl"))]
use crate::engine::run::Path;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::sums::{self, narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Shape};

/// What a linear layer is made of on backend `B`: here of Burn's primitive operations.
pub(super) trait Arithmetic<B: Backend> {
    /// A · B in f32, its operands rounded to `dtype`.
    fn matmul(&self, a: FloatTensor<B>, b: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
        // Rounded operands are widened again, so that sums are f32 on every backend.
        let [a, b] = [a, b].map(|operand| wide::<B>(narrow::<B>(operand, dtype)));
        B::float_matmul(a, b)
    }

    /// A · B + bias for each row, its operands rounded to `dtype`, rounded to `output` once.
    fn affine(
        &self,
        a: FloatTensor<B>,
        b: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
        dtype: DType,
        output: DType,
    ) -> FloatTensor<B> {
        let sum = self.matmul(a, b, dtype);
        let sum = match bias {
            Some(bias) => {
                let bias = sums::vector::<B>(&bias, &sum);
                B::float_add(sum, bias)
            }
            None => sum,
        };
        narrow::<B>(sum, output)
    }

    /// The sum of the rows of `x`, for the vector `of`.
    fn total(&self, x: FloatTensor<B>, of: &FloatTensor<B>) -> FloatTensor<B> {
        sums::total::<B>(wide::<B>(x), of)
    }
}

/// What every backend has.
pub(super) struct Reference;

impl<B: Backend> Arithmetic<B> for Reference {}

/// The arithmetic of `input`: a backend's own, or the reference's.
#[cfg(any(feature = "flex", feature = "_cubecl"))]
pub(super) fn arithmetic<B: Backend>(
    input: &Linear<B>,
    own: &'static dyn Arithmetic<B>,
) -> &'static dyn Arithmetic<B> {
    match input.path {
        Path::Fused => own,
        Path::Reference => &Reference,
    }
}

pub(super) fn forward<B: Backend>(by: &dyn Arithmetic<B>, input: Linear<B>) -> FloatTensor<B> {
    let output = input.output();
    by.affine(input.x, input.weight, input.bias, input.dtype, output)
}

pub(super) fn backward<B: Backend>(
    by: &dyn Arithmetic<B>,
    input: Linear<B>,
    grad: FloatTensor<B>,
    [x, weight, bias]: [bool; 3],
) -> Vec<Option<FloatTensor<B>>> {
    let bias = input.bias.as_ref().filter(|_| bias).map(|bias| by.total(grad.clone(), bias));
    let x_grad = x.then(|| {
        let weight = B::float_swap_dims(input.weight.clone(), 0, 1);
        by.affine(grad.clone(), weight, None, input.dtype, input.x.dtype())
    });
    let weight = weight.then(|| {
        let (x, of_weight) = (B::float_swap_dims(input.x, 0, 1), input.weight.dtype());
        by.affine(x, grad, None, input.dtype, of_weight)
    });
    vec![x_grad, weight, bias]
}

impl Operator for LinearOp {
    type Needs = [bool; 3];
    type Statistics<X: Held> = [X; 0];

    fn specs(inputs: &Linear<Specs>) -> (Spec, [Spec; 0]) {
        let shape = Shape::new([inputs.x.shape[0], inputs.weight.shape[1]]);
        (Spec { shape, dtype: inputs.output() }, [])
    }

    fn reference<B: DropoutOps>(inputs: Linear<B>) -> Output<Self, B> {
        (forward::<B>(&Reference, inputs), [])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: Linear<B>,
        []: [FloatTensor<B>; 0],
        grad: FloatTensor<B>,
        needs: [bool; 3],
    ) -> Vec<Option<FloatTensor<B>>> {
        backward::<B>(&Reference, inputs, grad, needs)
    }
}
