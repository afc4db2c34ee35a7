//! Flex, Burn's CPU backend: the matmuls of `burn-fused-matmul`, in f32 or bf16.

use super::{Linear, LinearOp};
use crate::engine::call::Path;
use crate::engine::operator::{Gradients, Kernels, Output, Upstream};
use crate::engine::run::plain;
use crate::flex::{
    Scalar, for_each, rows_per_task, simd_fn, slice, tensor, total_of_each, vector_gradient, widened,
    with_matrix, with_scalar,
};
use crate::numerics::precision::narrow;
use burn::backend::flex::FlexQTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{BackendTensor, DispatchKindConversion, DispatchTensor, Flex, TensorMetadata};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused_matmul::{Int8Kernel, Int8Matrix, Kernel, product, product_bf16, product_int8};
use std::borrow::Cow;
use std::cell::OnceCell;

impl Kernels<Flex> for LinearOp {
    fn forward(input: Linear<Flex>) -> Output<Self, Flex> {
        let y = affine(&input.x, &input.weight, input.bias, input.dtype, input.output);
        // Matmuls round their operands block by block: there are no rounded ones to keep.
        (y, [input.x, input.weight])
    }

    fn backward(input: Linear<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
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

/// Whether matmuls of these are this crate's.
pub(super) fn has_matmuls<const D: usize>(x: &Tensor<D>, weight: &Tensor<2>) -> bool {
    let device = x.device().inner();
    device == Device::flex() && weight.device().inner() == device && x.dtype() == weight.dtype()
}

/// x · W + b in f32 with W in integers, where there is a kernel for them.
pub(super) fn quantized<const D: usize>(
    x: &Tensor<D>,
    weight: &Tensor<2>,
    bias: Option<&Tensor<1>>,
) -> Option<Tensor<D>> {
    let DType::QFloat(scheme) = weight.dtype() else { return None };
    let is_float = matches!(x.dtype(), DType::F32 | DType::BF16);
    let mut devices = [x.device(), weight.device()].into_iter().chain(bias.map(Tensor::device));
    // Under autodiff x may need a gradient, which Burn has.
    let is_here = devices.all(|device| device == Device::flex() && !device.is_autodiff());
    if Path::current() == Path::Reference || !is_float || !is_here {
        return None;
    }
    let ([k, n], mut dims) = (weight.dims(), x.dims());
    let [block, width] = scheme.block_size().map_or([k, n], |size| size.as_dim::<2>().map(usize::from));
    // Burn says what does not fit, and knows empty tensors and blocks that are cut.
    let fits = dims[D - 1] == k
        && n > 0
        && !dims.contains(&0)
        && bias.is_none_or(|bias| bias.dims() == [n])
        && k.is_multiple_of(block)
        && n.is_multiple_of(width);
    // Burn's two-level schemes do not show their second one. Short blocks are mostly their scales' work.
    let is_one_level = scheme.num_levels() == 1;
    if !fits || !is_one_level || !(SHORTEST_BLOCK..=Int8Matrix::LONGEST_BLOCK).contains(&block) {
        return None;
    }
    let weight = plain::<Flex>(weight.clone().into_dispatch()).quantized();
    let scales = weight.scales();
    let scales = match width {
        1 => Cow::from(scales),
        _ => (0..k / block * n).map(|index| scales[index / n * (n / width) + index % n / width]).collect(),
    };
    let (transposed, rows) = (weight.tensor().transpose(0, 1), OnceCell::new());
    let weight = match transposed.as_slice() {
        Some(columns) => Int8Matrix::by_columns(columns, &scales, [k, n], block),
        None => {
            let rows = rows.get_or_init(|| weight.tensor().to_contiguous());
            Int8Matrix::new(rows.as_slice().expect("contiguous integers"), &scales, [k, n], block)
        }
    };
    let bias = bias.map(|bias| plain::<Flex>(bias.clone().dequantize().into_dispatch()).float());
    let bias = bias.map(|bias| widened::<f32>(&narrow::<Flex>(bias, DType::F32)));
    let rows = plain::<Flex>(x.clone().reshape([-1, k as i32]).into_dispatch()).float();
    let y = with_matrix(&rows, |rows| product_int8(rows, weight, bias.as_deref(), Int8Kernel::best()));
    dims[D - 1] = n;
    Some(Tensor::<D>::from_primitive::<Flex>(tensor(y, Shape::new(dims))))
}

/// A quantised weight whose values lie column by column; others stay as they are.
pub(super) fn by_columns(weight: Tensor<2>) -> Tensor<2> {
    let (DType::QFloat(scheme), device) = (weight.dtype(), weight.device()) else { return weight };
    if device != Device::flex() || device.is_autodiff() || scheme.num_levels() != 1 {
        return weight;
    }
    let weight = plain::<Flex>(weight.into_dispatch()).quantized();
    let values = weight.tensor().transpose(0, 1).to_contiguous().transpose(0, 1);
    let weight = FlexQTensor::new(values, scheme, weight.scales().to_vec(), None);
    Tensor::from_dispatch(DispatchTensor::from_backend(BackendTensor::<Flex>::Quantized(weight)))
}

/// The fewest rows of a weight that share a scale for which it is multiplied in integers; shorter blocks, which
/// are mostly their scales' work, Burn dequantises. Not tuned.
const SHORTEST_BLOCK: usize = 16;

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
    // The matmul rounds its own sums.
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
        vector_gradient(total, of)
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
    fn add_up<S, T: Scalar>(simd, rows: &'a [T], total: &'a mut [T::Wide]) {
        for row in rows.chunks_exact(total.len()) {
            total.iter_mut().zip(row).for_each(|(total, x)| *total += x.widen());
        }
    }
}
