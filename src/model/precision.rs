//! 16-bit floats, which are computed in f32.

use burn::prelude::*;
use burn::tensor::{DType, FloatDType};

/// 16-bit numbers as f32.
pub(super) fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.cast(FloatDType::F32),
        _ => tensor,
    }
}

/// `tensor` in `dtype`.
pub(super) fn narrowed<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype { tensor } else { tensor.cast(dtype) }
}
