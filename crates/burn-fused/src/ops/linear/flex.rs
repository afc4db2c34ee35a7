//! Flex, Burn's CPU backend: the matmuls of `burn-fused-matmul`, in f32 or bf16.

use super::{Arithmetic, Linear, LinearOp, Reference, backward, forward};
use crate::engine::operator::{Gradients, Kernels, Output, Path, Upstream};
use crate::flex::{
    Scalar, for_each, rows_per_task, simd_fn, slice, tensor, total_of_each, widened, with_matrix, with_scalar,
};
use crate::numerics::sums::narrow;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_fused_matmul::{Kernel, product, product_bf16};

impl Kernels<Flex> for LinearOp {
    fn forward(input: Linear<Flex>) -> Output<Self, Flex> {
        (forward(arithmetic(), input), [])
    }

    fn backward(input: Linear<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        backward(arithmetic(), input, upstream)
    }
}

fn arithmetic() -> &'static dyn Arithmetic<Flex> {
    match Path::current() {
        Path::Fused => &Host,
        Path::Reference => &Reference,
    }
}

struct Host;

impl Arithmetic<Flex> for Host {
    fn affine(
        &self,
        a: FloatTensor<Flex>,
        b: FloatTensor<Flex>,
        bias: Option<FloatTensor<Flex>>,
        dtype: DType,
        output: DType,
    ) -> FloatTensor<Flex> {
        // Sums are f32 until they are rounded, the bias among them.
        let bias = bias.map(|bias| widened::<f32>(&narrow::<Flex>(bias, DType::F32)));
        let shape = Shape::new([a.shape()[0], b.shape()[1]]);
        let kernel = if dtype == DType::BF16 { Kernel::bf16() } else { Kernel::F32 };
        // The matmul rounds its own sums: no f32 matrix is written.
        if [dtype, output] == [DType::BF16; 2] {
            let product =
                with_matrix(&a, |a| with_matrix(&b, |b| product_bf16(a, b, bias.as_deref(), kernel)));
            return tensor(product, shape);
        }
        let mut sums = with_matrix(&a, |a| with_matrix(&b, |b| product(a, b, kernel)));
        if let Some(bias) = bias {
            let size = rows_per_task(bias.len()) * bias.len();
            for_each(sums.len(), sums.chunks_mut(size), |rows| add_bias(rows, &bias));
        }
        narrow::<Flex>(tensor(sums, shape), output)
    }

    fn weight_grad(
        &self,
        x: FloatTensor<Flex>,
        grad: FloatTensor<Flex>,
        weight: &FloatTensor<Flex>,
        dtype: DType,
    ) -> FloatTensor<Flex> {
        // Gᵀ · X where the weight is a transposed table, as that of a tied decoder is: the gradient is laid out as the table
        // is, and adding up the table's gradients is one pass over memory in order.
        let is_transposed = weight.layout().strides()[0] == 1 && weight.shape()[1] > 1;
        let [a, b] = if is_transposed { [grad, x] } else { [x, grad] };
        let product = self.affine(Flex::float_swap_dims(a, 0, 1), b, None, dtype, weight.dtype());
        if is_transposed { Flex::float_swap_dims(product, 0, 1) } else { product }
    }

    fn total(&self, x: FloatTensor<Flex>, of: &FloatTensor<Flex>) -> FloatTensor<Flex> {
        let columns = x.shape()[1];
        let x = x.to_contiguous();
        with_scalar!(Some(x.dtype()), T => {
            let values = slice::<T>(&x);
            let size = rows_per_task(columns) * columns;
            let total = total_of_each(values.len(), values.chunks(size), columns, |rows, total| {
                add_up(rows, total);
            });
            narrow::<Flex>(tensor(total, of.shape()), of.dtype())
        }, panic!("linear: a tensor in {:?}", x.dtype()))
    }
}

simd_fn! {
    fn add_bias<S>(simd, rows: &'a mut [f32], bias: &'a [f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
        }
    }
}

simd_fn! {
    /// Adds rows to their `total`.
    fn add_up<S, T: Scalar>(simd, rows: &'a [T], total: &'a mut [T::Wide]) {
        for row in rows.chunks_exact(total.len()) {
            total.iter_mut().zip(row).for_each(|(total, x)| *total += x.widen());
        }
    }
}
