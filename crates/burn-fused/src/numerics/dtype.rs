//! The dtype that numbers are computed in.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::DType;

/// The dtype of sums and optimizer state for numbers of `dtype`: f32 for 16-bit floats, otherwise the same.
///
/// ```
/// use burn::tensor::DType;
///
/// assert_eq!(burn_fused::computed_in(DType::BF16), DType::F32);
/// ```
pub fn computed_in(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    }
}

/// `tensor` in the dtype that it is computed in.
pub(crate) fn wide<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let dtype = computed_in(tensor.dtype());
    narrow::<B>(tensor, dtype)
}

/// `tensor` in `dtype`.
pub(crate) fn narrow<B: Backend>(tensor: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if tensor.dtype() == dtype { tensor } else { B::float_cast(tensor, dtype.into()) }
}
