//! Parameters that hold quantised values.

use burn::module::Param;
use burn::prelude::*;
use burn::tensor::DType;

/// Whether a parameter holds quantised values. Does not initialise it.
pub(crate) fn is_quantized<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.is_initialized() && matches!(param.base().dtype(), DType::QFloat(_))
}
