//! Matrix products.

use super::tensor;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, bf16};
use burn_bert_products::{Kernel, Matrix, product};

/// A · B. If one of the two is in bf16, the other is rounded to it, and the product is in f32.
pub(crate) fn multiply(a: FloatTensor<Flex>, b: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let dtypes = [a.dtype(), b.dtype()];
    if dtypes.contains(&DType::F64) {
        return Flex::float_matmul(a, b);
    }
    let kernel = if dtypes.contains(&DType::BF16) { Kernel::bf16() } else { Kernel::F32 };
    let shape = Shape::new([a.shape()[0], b.shape()[1]]);
    tensor(with_matrix(&a, |a| with_matrix(&b, |b| product(a, b, kernel))), shape)
}

/// Calls `f` with a matrix in f32 or bf16, which is copied only if it runs backwards.
pub(crate) fn with_matrix<R>(matrix: &FloatTensor<Flex>, f: impl FnOnce(Matrix) -> R) -> R {
    let layout = matrix.layout();
    let (Ok(row), Ok(column)) = (layout.strides()[0].try_into(), layout.strides()[1].try_into()) else {
        return with_matrix(&matrix.to_contiguous(), f);
    };
    let (shape, strides, start) = (layout.shape().dims(), [row, column], layout.start_offset());
    match matrix.dtype() {
        DType::BF16 => f(Matrix::new(&matrix.storage::<bf16>()[start..], shape, strides)),
        _ => f(Matrix::new(&matrix.storage::<f32>()[start..], shape, strides)),
    }
}
