//! Flex, Burn's CPU backend: the matmuls of `burn-fused-matmul`, in f32 or bf16.

use super::{Linear, LinearOp};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Path, Upstream};
use crate::flex::{
    Scalar, for_each, rows_per_task, simd_fn, slice, tensor, total_of_each, widened, with_matrix, with_scalar,
};
use crate::numerics::dtype::narrow;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_fused_matmul::{Kernel, product, product_bf16};

impl Kernels<Flex> for LinearOp {
    fn forward(input: Linear<Flex>) -> Output<Self, Flex> {
        if Path::current() == Path::Reference {
            return Self::reference(input);
        }
        let output = input.output();
        let y = affine(&input.x, &input.weight, input.bias, input.dtype, output);
        // Matmuls round their operands block by block: there are no rounded ones to keep.
        (y, [input.x, input.weight])
    }

    fn backward(input: Linear<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        if Path::current() == Path::Reference {
            return Self::reference_backward(input, upstream);
        }
        let Linear { x, weight, bias, dtype, .. } = input;
        let Upstream { grad, needs: [needs_x, needs_weight, needs_bias], .. } = upstream;
        vec![
            needs_x.then(|| affine(&grad, &weight.transpose(0, 1), None, dtype, x.dtype())),
            needs_weight.then(|| {
                let gradient =
                    |a: &FloatTensor<Flex>, b| affine(&a.transpose(0, 1), b, None, dtype, weight.dtype());
                // Gᵀ · X where the weight is a transposed table, as that of a tied decoder is: the gradient is laid out as
                // the table is, and adding up the table's gradients is one pass over memory in order.
                let is_transposed = weight.layout().strides()[0] == 1 && weight.shape()[1] > 1;
                if is_transposed { gradient(&grad, &x).transpose(0, 1) } else { gradient(&x, &grad) }
            }),
            bias.filter(|_| needs_bias).map(|bias| total(&grad, &bias)),
        ]
    }
}

/// A · B + bias for each row, its operands rounded to `dtype`, rounded to `output` once.
fn affine(
    a: &FloatTensor<Flex>,
    b: &FloatTensor<Flex>,
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
        let product = with_matrix(a, |a| with_matrix(b, |b| product_bf16(a, b, bias.as_deref(), kernel)));
        return tensor(product, shape);
    }
    let mut sums = with_matrix(a, |a| with_matrix(b, |b| product(a, b, kernel)));
    if let Some(bias) = bias {
        let size = rows_per_task(bias.len()) * bias.len();
        for_each(sums.len(), sums.chunks_mut(size), |rows| add_bias(rows, &bias));
    }
    narrow::<Flex>(tensor(sums, shape), output)
}

/// The sum of the rows of `x`, for the vector `of`.
fn total(x: &FloatTensor<Flex>, of: &FloatTensor<Flex>) -> FloatTensor<Flex> {
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
