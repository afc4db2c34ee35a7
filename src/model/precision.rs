//! 16-bit floats, which are computed in f32.

use crate::operator::dtype::computed_in;
use burn::prelude::*;
use burn::tensor::DType;

/// 16-bit numbers as f32.
pub(super) fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let dtype = computed_in(tensor.dtype());
    narrowed(tensor, dtype)
}

/// `tensor` in `dtype`.
pub(super) fn narrowed<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype { tensor } else { tensor.cast(dtype) }
}
