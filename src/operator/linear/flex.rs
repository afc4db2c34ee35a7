//! Flex, Burn's CPU backend: operands are rounded in parallel and multiplied in f32.

use super::reference::{Arithmetic, backward, forward};
use super::{Linear, LinearOp};
use crate::operator::flex::scalar::Scalar;
use crate::operator::flex::sums::accumulate;
use crate::operator::flex::{rows_per_task, slice, tensor};
use crate::operator::kernels::{Kernels, Operator, Output};
use crate::operator::parallel;
use crate::operator::path::Path;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, bf16, f16};
use pulp::{Arch, Simd, WithSimd};

impl Kernels<Flex> for LinearOp {
    fn forward(input: Linear<Flex>) -> Output<Self, Flex> {
        match input.path {
            Path::Fused => (forward::<Host, Flex>(input), []),
            Path::Reference => Self::reference(input),
        }
    }

    fn backward(
        input: Linear<Flex>,
        []: [FloatTensor<Flex>; 0],
        grad: FloatTensor<Flex>,
        needs: [bool; 3],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        match input.path {
            Path::Fused => backward::<Host, Flex>(input, grad, needs),
            Path::Reference => Self::reference_backward(input, [], grad, needs),
        }
    }
}

/// Runs `$body` with the type alias `$scalar` for a dtype whose arithmetic is f32.
macro_rules! with_f32 {
    ($dtype:expr, $scalar:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $scalar = f32;
                $body
            }
            DType::F16 => {
                type $scalar = f16;
                $body
            }
            DType::BF16 => {
                type $scalar = bf16;
                $body
            }
            other => panic!("linear: a tensor in {other:?}"),
        }
    };
}

struct Host;

impl Arithmetic<Flex> for Host {
    fn product(a: FloatTensor<Flex>, b: FloatTensor<Flex>, dtype: DType) -> FloatTensor<Flex> {
        Flex::float_matmul(rounded(&a, dtype), rounded(&b, dtype))
    }

    fn finish(x: FloatTensor<Flex>, bias: Option<FloatTensor<Flex>>, dtype: DType) -> FloatTensor<Flex> {
        if bias.is_none() && dtype == DType::F32 {
            return x;
        }
        let columns = x.shape()[1];
        let bias = bias.map(|bias| slice::<f32>(&bias.to_contiguous()).to_vec());
        let bias = bias.unwrap_or_else(|| vec![0.0; columns]);
        let values = slice::<f32>(&x);
        with_f32!(dtype, T => {
            let mut y = vec![T::default(); values.len()];
            let size = rows_per_task(columns) * columns;
            let tasks = values.chunks(size).zip(y.chunks_mut(size));
            parallel::for_each(values.len(), tasks, |(x, y)| {
                Arch::new().dispatch(Finish { x, bias: &bias, y });
            });
            tensor(y, x.shape())
        })
    }

    fn total(x: FloatTensor<Flex>, of: &FloatTensor<Flex>) -> FloatTensor<Flex> {
        let columns = x.shape()[1];
        let x = x.to_contiguous();
        with_f32!(x.dtype(), T => {
            let values = slice::<T>(&x);
            let size = rows_per_task(columns) * columns;
            let mut partials = vec![vec![0.0; columns]; values.len().div_ceil(size)];
            parallel::for_each(values.len(), values.chunks(size).zip(&mut partials), |(rows, total)| {
                Arch::new().dispatch(Total { rows, total });
            });
            let mut total = vec![0.0; columns];
            partials.iter().for_each(|partial| accumulate(&mut total, partial));
            tensor(total, of.shape())
        })
    }
}

/// A matrix in f32 with the values that it has in `dtype`; what is transposed stays so.
fn rounded(matrix: &FloatTensor<Flex>, dtype: DType) -> FloatTensor<Flex> {
    if !matrix.is_contiguous() {
        let transposed = matrix.transpose(0, 1);
        if transposed.is_contiguous() {
            return rounded(&transposed, dtype).transpose(0, 1);
        }
    }
    let matrix = matrix.to_contiguous();
    with_f32!(matrix.dtype(), T => {
        let values = slice::<T>(&matrix);
        let y = match dtype {
            DType::F16 => round::<T, f16>(values),
            _ => round::<T, bf16>(values),
        };
        tensor(y, matrix.shape())
    })
}

fn round<T: Scalar<Wide = f32>, U: Scalar<Wide = f32>>(values: &[T]) -> Vec<f32> {
    /// Values of a task.
    const PIECE: usize = 16 * 1024;
    let mut y = vec![0.0; values.len()];
    let tasks = values.chunks(PIECE).zip(y.chunks_mut(PIECE));
    parallel::for_each(values.len(), tasks, |(x, y)| {
        Arch::new().dispatch(Round::<T, U> { x, y, to: std::marker::PhantomData });
    });
    y
}

struct Round<'a, T, U> {
    x: &'a [T],
    y: &'a mut [f32],
    to: std::marker::PhantomData<U>,
}

impl<T: Scalar<Wide = f32>, U: Scalar<Wide = f32>> WithSimd for Round<'_, T, U> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.x.iter().zip(self.y).for_each(|(x, y)| *y = U::narrow(x.widen()).widen());
    }
}

/// Consecutive rows.
struct Finish<'a, T> {
    x: &'a [f32],
    bias: &'a [f32],
    y: &'a mut [T],
}

impl<T: Scalar<Wide = f32>> WithSimd for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let columns = self.bias.len();
        for (x, y) in self.x.chunks_exact(columns).zip(self.y.chunks_exact_mut(columns)) {
            x.iter().zip(self.bias).zip(y).for_each(|((x, bias), y)| *y = T::narrow(x + bias));
        }
    }
}

/// Consecutive rows.
struct Total<'a, T> {
    rows: &'a [T],
    total: &'a mut [f32],
}

impl<T: Scalar<Wide = f32>> WithSimd for Total<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for row in self.rows.chunks_exact(self.total.len()) {
            self.total.iter_mut().zip(row).for_each(|(total, x)| *total += x.widen());
        }
    }
}
