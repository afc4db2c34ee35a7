//! Flex, Burn's CPU backend: the matmuls of `burn-fused-matmul`, in f32 or bf16.

use super::{Linear, LinearOp};
use crate::engine::call::Path;
use crate::engine::operator::{Gradients, Kernels, Output, Upstream};
use crate::engine::run::plain;
use crate::flex::{
    Scalar, for_each, packed, packed_tensor, rows_per_task, simd_fn, slice, tensor, total_of_each,
    vector_gradient, widened, with_matrix, with_right_matrix, with_scalar,
};
use crate::numerics::precision::narrow;
use burn::backend::flex::FlexQTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{BackendTensor, DispatchKindConversion, DispatchTensor, Flex, TensorMetadata};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused_matmul::{
    Int8Kernel, Int8Matrix, Kernel, Packed, PackedInt8Matrix, PackedMatrix, RightMatrix,
};
use burn_fused_matmul::{product, product_bf16, product_int8};
use std::borrow::Cow;

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
    let is_float = matches!(x.dtype(), DType::F32 | DType::BF16);
    let mut devices = [x.device(), weight.device()].into_iter().chain(bias.map(Tensor::device));
    // Under autodiff x may need a gradient, which Burn has.
    let is_here = devices.all(|device| device == Device::flex() && !device.is_autodiff());
    let ([k, n], mut dims) = (weight.dims(), x.dims());
    // Burn says what does not fit, and knows empty tensors.
    let fits = dims[D - 1] == k && !dims.contains(&0) && bias.is_none_or(|bias| bias.dims() == [n]);
    if Path::current() == Path::Reference || !is_float || !is_here || !fits {
        return None;
    }
    let bias = bias.map(|bias| plain::<Flex>(bias.clone().dequantize().into_dispatch()).float());
    let bias = bias.map(|bias| widened::<f32>(&narrow::<Flex>(bias, DType::F32)));
    let rows = plain::<Flex>(x.clone().reshape([-1, k as i32]).into_dispatch()).float();
    let y = with_int8_matrix(weight, |_, weight| {
        with_matrix(&rows, |rows| product_int8(rows, weight, bias.as_deref(), Int8Kernel::best()))
    })?;
    dims[D - 1] = n;
    Some(Tensor::<D>::from_primitive::<Flex>(tensor(y, Shape::new(dims))))
}

/// What `f` makes of a quantised weight, and of its integers, if there is a kernel for them.
fn with_int8_matrix<R>(weight: &Tensor<2>, f: impl FnOnce(&FlexQTensor, Int8Matrix) -> R) -> Option<R> {
    let DType::QFloat(scheme) = weight.dtype() else { return None };
    let [k, n] = weight.dims();
    let [block, width] = scheme.block_size().map_or([k, n], |size| size.as_dim::<2>().map(usize::from));
    // Burn knows blocks that are cut; its two-level schemes do not show their second one. Short blocks are mostly their scales' work.
    let is_whole = n > 0 && k.is_multiple_of(block) && n.is_multiple_of(width) && scheme.num_levels() == 1;
    if !is_whole || !(SHORTEST_BLOCK..=Int8Matrix::LONGEST_BLOCK).contains(&block) {
        return None;
    }
    let weight = plain::<Flex>(weight.clone().into_dispatch()).quantized();
    if let Some(Packed::Int8(packed)) = packed(weight.tensor()).as_deref() {
        return Some(f(&weight, packed.into()));
    }
    let scales = weight.scales();
    let scales = match width {
        1 => Cow::from(scales),
        _ => (0..k / block * n).map(|index| scales[index / n * (n / width) + index % n / width]).collect(),
    };
    let rows = weight.tensor().to_contiguous();
    let rows = rows.as_slice().expect("contiguous integers");
    Some(f(&weight, Int8Matrix::new(rows, &scales, [k, n], block)))
}

/// A weight that stays packed, if there is a kernel for it.
pub(super) fn prepared(weight: Tensor<2>) -> Tensor<2> {
    let (dtype, device) = (weight.dtype(), weight.device());
    if device != Device::flex() || device.is_autodiff() {
        return weight;
    }
    let tensor = match dtype {
        DType::QFloat(scheme) => with_int8_matrix(&weight, |weight, integers| {
            if packed(weight.tensor()).is_some() {
                return None;
            }
            let integers = packed_tensor(Packed::Int8(PackedInt8Matrix::new(integers)?), DType::I8);
            let weight = FlexQTensor::new(integers, scheme, weight.scales().to_vec(), None);
            Some(BackendTensor::<Flex>::Quantized(weight))
        })
        .flatten(),
        DType::F32 | DType::BF16 => {
            let values = plain::<Flex>(weight.clone().into_dispatch()).float();
            let new = || with_matrix(&values, |values| PackedMatrix::new(values, kernel(dtype)));
            let new = if packed(&values).is_none() { new() } else { None };
            new.map(|packed| BackendTensor::Float(packed_tensor(Packed::Float(packed), dtype)))
        }
        _ => None,
    };
    tensor.map_or(weight, |tensor| Tensor::from_dispatch(DispatchTensor::from_backend(tensor)))
}

/// What multiplies operands that are rounded to `dtype`.
fn kernel(dtype: DType) -> Kernel {
    if dtype == DType::BF16 { Kernel::bf16() } else { Kernel::F32 }
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
    let kernel = kernel(dtype);
    // The matmul rounds its own sums.
    if [dtype, output] == [DType::BF16; 2] {
        let product = |b: RightMatrix| with_matrix(a, |a| product_bf16(a, b, bias.as_deref(), kernel));
        let product = with_right_matrix(b, kernel, product);
        return tensor(product, shape);
    }
    let mut sums = with_right_matrix(b, kernel, |b| with_matrix(a, |a| product(a, b, kernel)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::linear::linear;
    use burn::tensor::quantization::{QuantScheme, QuantStore};
    use burn::tensor::{Distribution, TensorData};

    fn weights() -> [Tensor<2>; 3] {
        let device = Device::flex();
        let weight = Tensor::<2>::random([96, 96], Distribution::Normal(0.0, 1.0), &device);
        let scheme = QuantScheme::default().with_store(QuantStore::Native);
        [weight.clone(), weight.clone().cast(DType::BF16), weight.quantize_dynamic(&scheme)]
    }

    fn is_packed(weight: &Tensor<2>) -> bool {
        let weight = plain::<Flex>(weight.clone().into_dispatch());
        match weight {
            BackendTensor::Quantized(weight) => packed(weight.tensor()).is_some(),
            weight => packed(&weight.float()).is_some(),
        }
    }

    fn data(tensor: Tensor<2>) -> TensorData {
        tensor.dequantize().into_data()
    }

    #[test]
    fn a_prepared_weight_has_the_same_values_and_the_same_products() {
        for weight in weights() {
            let kept = prepared(weight.clone());
            // A CPU without instructions for bf16 widens it.
            let stays = weight.dtype() == DType::BF16 && Kernel::bf16().name().starts_with("f32");
            assert_eq!((is_packed(&weight), is_packed(&kept)), (false, !stays), "{:?}", weight.dtype());
            assert_eq!((kept.dtype(), kept.dims()), (weight.dtype(), [96, 96]));
            let x = Tensor::<2>::random([7, 96], Distribution::Default, &Device::flex());
            let x = if weight.dtype() == DType::BF16 { x.cast(DType::BF16) } else { x };
            let same = |kept: &Tensor<2>| {
                let [expected, found] =
                    [&weight, kept].map(|w| linear(x.clone(), w.clone(), None).into_data());
                assert_eq!(found, expected, "{:?}", weight.dtype());
            };
            same(&kept);
            // To prepare it once more changes nothing.
            assert_eq!(is_packed(&prepared(kept.clone())), !stays);
            assert_eq!(data(kept.clone()), data(weight.clone()));
            // Its values have been laid out.
            assert!(!is_packed(&kept));
            same(&kept);
            same(&prepared(kept.clone()));
        }
    }

    #[test]
    fn what_is_made_of_a_prepared_weight_is_made_of_its_values() {
        let [weight, narrow, _] = weights();
        for weight in [weight, narrow] {
            let kept = || prepared(weight.clone());
            type Change = fn(Tensor<2>) -> Tensor<2>;
            let changes: [Change; 3] =
                [|weight| weight.slice([0..96, 32..96]), Tensor::transpose, |weight| weight.add_scalar(1.0)];
            for change in changes {
                let changed = change(kept());
                assert!(!is_packed(&changed));
                assert_eq!(data(changed), data(change(weight.clone())));
            }
            // Written to in place; a clone that shares it is not.
            let (mine, other) = (kept(), kept());
            let shared = other.clone();
            let zeros = || Tensor::zeros([1, 96], (&Device::flex(), weight.dtype()));
            let write = |weight: Tensor<2>| weight.slice_assign([3..4, 0..96], zeros());
            for written in [write(mine), write(other)] {
                assert!(!is_packed(&written));
                assert_eq!(data(written), data(write(weight.clone())));
            }
            assert_eq!(data(shared), data(weight.clone()));
        }
    }

    #[test]
    fn weights_that_cannot_stay_packed_stay_as_they_are() {
        let device = Device::flex();
        let odd = Tensor::<2>::ones([64, 40], &device);
        assert!(!is_packed(&prepared(odd)));
        let doubles = Tensor::<2>::ones([96, 96], (&device, DType::F64));
        assert!(!is_packed(&prepared(doubles)));
        let trained = prepared(Tensor::<2>::ones([96, 96], &device.autodiff()));
        assert!(!is_packed(&trained.inner()));
    }
}
