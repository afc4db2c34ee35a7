//! Flex, Burn's CPU backend: the matmuls of `burn-fused-matmul`, in f32 or bf16.

use super::{Arithmetic, Linear, LinearOp, arithmetic, backward, forward};
use crate::engine::operator::{Kernels, Output};
use crate::flex::for_each;
use crate::flex::scalar::Scalar;
use crate::flex::sums::accumulate;
use crate::flex::with_matrix;
use crate::flex::{rows_per_task, slice, tensor, widened};
use crate::numerics::sums::narrow;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, bf16, f16};
use burn_fused_matmul::{Kernel, product, product_bf16};
use pulp::{Arch, Simd, WithSimd};

impl Kernels<Flex> for LinearOp {
    fn forward(input: Linear<Flex>) -> Output<Self, Flex> {
        (forward(arithmetic(&input, &Host), input), [])
    }

    fn backward(
        input: Linear<Flex>,
        []: [FloatTensor<Flex>; 0],
        grad: FloatTensor<Flex>,
        needs: [bool; 3],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        backward(arithmetic(&input, &Host), input, grad, needs)
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
    fn matmul(&self, a: FloatTensor<Flex>, b: FloatTensor<Flex>, dtype: DType) -> FloatTensor<Flex> {
        let shape = Shape::new([a.shape()[0], b.shape()[1]]);
        tensor(multiplied(&a, &b, dtype), shape)
    }

    fn affine(
        &self,
        a: FloatTensor<Flex>,
        b: FloatTensor<Flex>,
        bias: Option<FloatTensor<Flex>>,
        dtype: DType,
        output: DType,
    ) -> FloatTensor<Flex> {
        let bias = bias.map(|bias| with_f32!(bias.dtype(), T => widened::<T>(&bias)));
        let shape = Shape::new([a.shape()[0], b.shape()[1]]);
        // The matmul rounds its own sums: no f32 matrix is written.
        if [dtype, output] == [DType::BF16; 2] {
            let product =
                with_matrix(&a, |a| with_matrix(&b, |b| product_bf16(a, b, bias.as_deref(), Kernel::bf16())));
            return tensor(product, shape);
        }
        let mut sums = multiplied(&a, &b, dtype);
        let (count, columns) = (sums.len(), shape[1]);
        let size = rows_per_task(columns) * columns;
        if output == DType::F32 {
            if let Some(bias) = bias {
                for_each(count, sums.chunks_mut(size), |rows| {
                    Arch::new().dispatch(AddBias { rows, bias: &bias });
                });
            }
            return tensor(sums, shape);
        }
        // One loop for both cases: adding 0 costs less than a pass.
        let bias = bias.unwrap_or_else(|| vec![0.0; columns]);
        with_f32!(output, T => {
            let mut y = vec![T::default(); count];
            let tasks = sums.chunks(size).zip(y.chunks_mut(size));
            for_each(count, tasks, |(x, y)| {
                Arch::new().dispatch(Finish { x, bias: &bias, y });
            });
            tensor(y, shape)
        })
    }

    fn total(&self, x: FloatTensor<Flex>, of: &FloatTensor<Flex>) -> FloatTensor<Flex> {
        let columns = x.shape()[1];
        let x = x.to_contiguous();
        with_f32!(x.dtype(), T => {
            let values = slice::<T>(&x);
            let size = rows_per_task(columns) * columns;
            let mut partials = vec![vec![0.0; columns]; values.len().div_ceil(size)];
            for_each(values.len(), values.chunks(size).zip(&mut partials), |(rows, total)| {
                Arch::new().dispatch(Total { rows, total });
            });
            let mut total = vec![0.0; columns];
            partials.iter().for_each(|partial| accumulate(&mut total, partial));
            narrow::<Flex>(tensor(total, of.shape()), of.dtype())
        })
    }
}

/// A · B in f32, row-major, the operands rounded to `dtype`.
fn multiplied(a: &FloatTensor<Flex>, b: &FloatTensor<Flex>, dtype: DType) -> Vec<f32> {
    let kernel = if dtype == DType::BF16 { Kernel::bf16() } else { Kernel::F32 };
    with_matrix(a, |a| with_matrix(b, |b| product(a, b, kernel)))
}

/// Consecutive rows.
struct AddBias<'a> {
    rows: &'a mut [f32],
    bias: &'a [f32],
}

impl WithSimd for AddBias<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for row in self.rows.chunks_exact_mut(self.bias.len()) {
            row.iter_mut().zip(self.bias).for_each(|(x, bias)| *x += bias);
        }
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
