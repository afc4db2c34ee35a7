//! Flex, Burn's CPU backend: one pass over the rows, forward and backward, in parallel.
//!
//! Results do not depend on the number of threads: rows are cut into tasks of a fixed size, and what tasks have in
//! common is added up in their order.

use super::{BiasGelu, BiasGeluOp};
use crate::operator::flex::functions::Functions;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::sums::accumulate;
use crate::operator::flex::{kernel_dtype, rows_per_task, slice, tensor, widened, with_scalar};
use crate::operator::inputs::Fields;
use crate::operator::kernels::{Kernels, Operator, Output};
use crate::operator::parallel;
use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};

impl Kernels<Flex> for BiasGeluOp {
    fn forward(input: BiasGelu<Flex>) -> Output<Self, Flex> {
        with_scalar!(dtype(&input), T => (forward::<T>(&input), []), Self::reference::<Flex>(input))
    }

    fn backward(
        input: BiasGelu<Flex>,
        []: [FloatTensor<Flex>; 0],
        grad: FloatTensor<Flex>,
        needs: [bool; 2],
    ) -> Vec<Option<FloatTensor<Flex>>> {
        with_scalar!(
            dtype(&input),
            T => backward::<T>(&input, &grad, needs),
            Self::reference_backward::<Flex>(input, [], grad, needs)
        )
    }
}

fn dtype(input: &BiasGelu<Flex>) -> Option<DType> {
    kernel_dtype(input.path, BiasGeluOp::operands::<Flex>(input))
}

fn forward<T: Scalar>(input: &BiasGelu<Flex>) -> FloatTensor<Flex> {
    let bias = widened::<T>(&input.bias);
    let x = input.x.to_contiguous();
    let x = slice::<T>(&x);
    let mut y = vec![T::default(); x.len()];
    let size = rows_per_task(bias.len()) * bias.len();
    let tasks = x.chunks(size).zip(y.chunks_mut(size)).map(|(x, y)| Forward { bias: &bias, x, y });
    parallel::for_each(WORK * x.len(), tasks, |task| Arch::new().dispatch(task));
    tensor(y, input.x.shape())
}

/// A value takes as long as so many of LayerNorm.
const WORK: usize = 4;

fn backward<T: Scalar>(
    input: &BiasGelu<Flex>,
    grad: &FloatTensor<Flex>,
    [needs_x, needs_bias]: [bool; 2],
) -> Vec<Option<FloatTensor<Flex>>> {
    let bias = widened::<T>(&input.bias);
    let columns = bias.len();
    let (x, grad) = (input.x.to_contiguous(), grad.to_contiguous());
    let (x, grad) = (slice::<T>(&x), slice::<T>(&grad));
    let mut x_grad = vec![T::default(); x.len()];
    let size = rows_per_task(columns) * columns;
    let mut partials = vec![vec![T::Wide::ZERO; columns]; x.len().div_ceil(size)];
    let tasks = x.chunks(size).zip(grad.chunks(size)).zip(x_grad.chunks_mut(size)).zip(&mut partials);
    let tasks = tasks.map(|(((x, grad), x_grad), total)| Backward { bias: &bias, x, grad, x_grad, total });
    parallel::for_each(WORK * x.len(), tasks, |task| Arch::new().dispatch(task));
    let mut total = vec![T::Wide::ZERO; columns];
    partials.iter().for_each(|partial| accumulate(&mut total, partial));
    vec![
        needs_x.then(|| tensor(x_grad, input.x.shape())),
        needs_bias.then(|| tensor(T::narrow_all(total), input.bias.shape())),
    ]
}

/// Consecutive rows.
struct Forward<'a, T: Scalar> {
    bias: &'a [T::Wide],
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Scalar> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let columns = self.bias.len();
        for (x, y) in self.x.chunks_exact(columns).zip(self.y.chunks_exact_mut(columns)) {
            for ((x, &bias), y) in x.iter().zip(self.bias).zip(y) {
                let z = x.widen() + bias;
                *y = T::narrow(z * z.normal().0);
            }
        }
    }
}

/// Consecutive rows.
struct Backward<'a, T: Scalar> {
    bias: &'a [T::Wide],
    x: &'a [T],
    grad: &'a [T],
    x_grad: &'a mut [T],
    /// Sums the gradients of x.
    total: &'a mut [T::Wide],
}

impl<T: Scalar> WithSimd for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let columns = self.bias.len();
        let mut d = vec![T::Wide::ZERO; columns];
        let inputs = self.x.chunks_exact(columns).zip(self.grad.chunks_exact(columns));
        for ((x, grad), x_grad) in inputs.zip(self.x_grad.chunks_exact_mut(columns)) {
            for (((x, &bias), grad), d) in x.iter().zip(self.bias).zip(grad).zip(&mut d) {
                let z = x.widen() + bias;
                let (cumulative, density) = z.normal();
                *d = grad.widen() * (cumulative + z * density);
            }
            x_grad.iter_mut().zip(&d).for_each(|(x_grad, &d)| *x_grad = T::narrow(d));
            accumulate(self.total, &d);
        }
    }
}
