//! The dtype that arithmetic is done in.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, FloatDType};

/// Statistics are taken in f32 for 16-bit floats.
pub(crate) fn wide<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => B::float_cast(tensor, FloatDType::F32),
        _ => tensor,
    }
}

/// `tensor` in `dtype`.
pub(crate) fn narrow<B: Backend>(tensor: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if tensor.dtype() == dtype { tensor } else { B::float_cast(tensor, dtype.into()) }
}
