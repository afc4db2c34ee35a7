//! What the kernels for Flex, Burn's CPU backend, have in common.

pub(crate) mod mask;
pub(crate) mod scalar;
pub(crate) mod sums;

use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Shape, TensorData};
use scalar::Scalar;

/// Runs `$body` with the type alias `$scalar` for the dtype `$dtype`, or `$other` if that is `None` or has no kernel.
macro_rules! with_scalar {
    ($dtype:expr, $scalar:ident => $body:expr, $other:expr) => {
        match $dtype {
            Some(burn::tensor::DType::F32) => {
                type $scalar = f32;
                $body
            }
            Some(burn::tensor::DType::F64) => {
                type $scalar = f64;
                $body
            }
            Some(burn::tensor::DType::F16) => {
                type $scalar = burn::tensor::f16;
                $body
            }
            Some(burn::tensor::DType::BF16) => {
                type $scalar = burn::tensor::bf16;
                $body
            }
            _ => $other,
        }
    };
}
pub(crate) use with_scalar;

/// All values, row-major.
pub(crate) fn values<T: Scalar>(tensor: &FloatTensor<Flex>) -> Vec<T> {
    tensor.to_contiguous().as_slice().map(<[T]>::to_vec).unwrap_or_default()
}

/// A tensor of `values`.
pub(crate) fn tensor<T: Scalar>(values: Vec<T>, shape: Shape) -> FloatTensor<Flex> {
    Flex::float_from_data(TensorData::new(values, shape), &Default::default())
}
