//! The operator made of Burn's primitive operations.

use super::{MoveRows, MoveRowsOp};
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::inputs::{Held, Spec, Specs};
use crate::operator::kernels::{Operator, Output};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

impl Operator for MoveRowsOp {
    type Needs = [bool; 1];
    type Statistics<X: Held> = [X; 0];

    fn specs(inputs: &MoveRows<Specs>) -> (Spec, [Spec; 0]) {
        let shape = Shape::new([inputs.rows, inputs.x.shape[1]]);
        (Spec { shape, dtype: inputs.x.dtype }, [])
    }

    fn reference<B: DropoutOps>(inputs: MoveRows<B>) -> Output<Self, B> {
        (gather::<B>(inputs.x, inputs.from, inputs.moved < inputs.rows), [])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: MoveRows<B>,
        []: [FloatTensor<B>; 0],
        grad: FloatTensor<B>,
        [x]: [bool; 1],
    ) -> Vec<Option<FloatTensor<B>>> {
        let has_others = inputs.moved < inputs.x.shape()[0];
        vec![x.then(|| gather::<B>(grad, inputs.to, has_others))]
    }
}

/// The rows of `x` with these indices; that behind the last is zero, which some are if `has_zeros`.
fn gather<B: Backend>(x: FloatTensor<B>, index: IntTensor<B>, has_zeros: bool) -> FloatTensor<B> {
    if !has_zeros {
        return B::float_select(x, 0, index);
    }
    let zero = B::float_zeros(Shape::new([1, x.shape()[1]]), &x.device(), x.dtype().into());
    B::float_select(B::float_cat(vec![x, zero], 0), 0, index)
}
