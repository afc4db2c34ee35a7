//! A linear layer whose operands may be rounded to 16 bits: one operator with its own backward.

#[cfg(feature = "_cubecl")]
pub(crate) mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::engine::call::Precision;
use crate::engine::call::outside;
use crate::engine::inputs::inputs;
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::layer_norm::total;
use crate::numerics::precision::{assert_supported, narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::prelude::*;
use burn::tensor::DType;

inputs! {
    /// N rows of I values to N rows of O. The statistics are x and W as they are multiplied: to round them again in the backward
    /// would take a pass over each.
    Linear of LinearOp, operands: 3, statistics: 2 {
        floats {
            /// [N, I], in f32 or 16 bits.
            x,
            /// W, [I, O], in f32, or in 16 bits with a scale of 1.
            weight,
        }
        optional {
            /// b, `[O]`, in W's dtype.
            bias,
        }
        plain {
            /// What operands are rounded to: F32 or BF16.
            dtype: DType,
            /// The output's dtype: the same, or F32.
            output: DType,
        }
    }
}

/// `x·W + b`: Burn's linear layer, which [`autocast`](crate::autocast) can compute with operands in 16 bits.
///
/// Outside autocast, and where W is neither f32 nor bf16, it is Burn's `linear`, except on Flex, where this crate multiplies
/// f32 and bf16 operands and rounds y to their dtype, and those in int8 (below). In autocast, with r(·) the rounding of one operand,
///
/// ```text
/// y      = r(x)·r(W) + b
/// ∂L/∂x  = r(∂L/∂y)·r(W)ᵀ
/// ∂L/∂W  = r(x)ᵀ·r(∂L/∂y)
/// ∂L/∂b  = Σ ∂L/∂y                       over rows
/// ```
///
/// Use it in place of `Linear::forward` in a custom module; [`autocast`](crate::autocast) has an example.
///
/// # Shapes
///
/// - `x`: [.., I]
/// - `weight`: [I, O]
/// - `bias`: `[O]`
/// - output: [.., O]
///
/// # Numerics
///
/// In autocast sums, y and the gradients are f32. Everywhere but on Flex the rounded operands are saved for backward, beside x and
/// W themselves.
///
/// # Quantised weights
///
/// On Flex, without autodiff, an f32 or bf16 x and a W in 8 bits or fewer, with a scale for the tensor or for blocks of 16 to 65,536
/// rows, are multiplied in integers: each row of x is quantised to 256 values, from its smallest or 0 to its largest or 0. y is f32, and
/// bf16 where x is outside autocast. A row with a NaN or an infinite value is NaN then. In all other cases Burn multiplies; on Flex and
/// NdArray it dequantises all of W for each call.
///
/// # Panics
///
/// If shapes do not fit, or, in autocast, the device has no such floats.
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    compute(x, weight, bias, false)
}

/// [`linear`] with an output in 16 bits in [`autocast`](crate::autocast), for what only reads it rounded.
pub fn linear_narrow<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    compute(x, weight, bias, true)
}

/// A W as [`linear`] reads it fastest, for inference: on Flex f32, bf16 and quantised weights are kept as matmuls read them, which other
/// weights are packed to for each product. Results have the same bits.
///
/// The tensor has the same values, dtype, scales and shape, and takes no more memory (8 bits: 1 + 4 / block of it). What reads its values
/// in another way finds them laid out as before, which takes a copy; they are no longer packed then. W stays as it is on other devices and
/// those that differentiate, with scales of two levels, and where 32 does not divide O and, for floats, I.
///
/// ```
/// use burn::prelude::*;
/// use burn::tensor::Distribution;
/// use burn_fused::{linear, prepared};
///
/// let device = Device::default();
/// let weight = Tensor::<2>::random([64, 32], Distribution::Default, &device);
/// let x = Tensor::<2>::ones([1, 64], &device);
/// let y = linear(x.clone(), prepared(weight.clone()), None);
/// assert_eq!(y.into_data(), linear(x, weight, None).into_data());
/// ```
pub fn prepared(weight: Tensor<2>) -> Tensor<2> {
    #[cfg(feature = "flex")]
    let weight = flex::prepared(weight);
    weight
}

fn compute<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    narrow: bool,
) -> Tensor<D> {
    let mut dims = x.dims();
    // F32 or BF16, as are x and W: kernels have no other.
    let dtype = match weight.dtype() {
        DType::F32 if Precision::current() == Precision::Bf16 => Some(DType::BF16),
        #[cfg(feature = "flex")]
        dtype @ (DType::F32 | DType::BF16) if flex::has_matmuls(&x, &weight) => Some(dtype),
        _ => None,
    };
    let ([inputs, outputs], weight_dtype) = (weight.dims(), weight.dtype());
    // Burn's linear returns the right shape for empty inputs.
    let is_empty = outputs == 0 || dims.contains(&0);
    let Some(dtype) = dtype.filter(|_| !is_empty) else {
        if matches!(weight_dtype, DType::QFloat(_)) {
            return quantized(x, weight, bias);
        }
        // Burn's matmuls on CubeCL devices write nothing where there is nothing to add up, and so no gradient of W without rows.
        let has_rows = !dims[..D - 1].contains(&0);
        if has_rows {
            return burns(x, weight, bias);
        }
        let y = burns(x, weight.clone().detach(), bias);
        // Added to no row, so that its gradient is a sum of none.
        let mut row = [1; D];
        row[D - 1] = outputs;
        return y + weight.sum_dim(0).reshape(row);
    };
    assert_eq!(dims[D - 1], inputs, "rows of x must be as long as weight has rows");
    if let Some(bias) = &bias {
        assert_eq!(bias.dims(), [outputs], "bias must be as long as weight has columns");
    }
    let found = x.dtype();
    assert!(
        found == DType::F32 || found == dtype,
        "x is {found:?}, but must be F32 or {dtype:?} in this autocast"
    );
    if dtype == DType::BF16 {
        assert_supported(&weight.device());
    }
    let rows = dims[..D - 1].iter().product::<usize>();
    dims[D - 1] = outputs;
    let input = Linear {
        x: x.reshape([rows, inputs]).into_dispatch(),
        weight: weight.into_dispatch(),
        bias: bias.map(|bias| bias.dequantize().into_dispatch()),
        dtype,
        output: if narrow || weight_dtype != DType::F32 { dtype } else { DType::F32 },
    };
    Tensor::<2>::from_dispatch(run::<LinearOp, _>(input)).reshape(dims)
}

fn quantized<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let dtype = x.dtype();
    // A model in bf16 stays in it; in autocast it was the layer before that left x in 16 bits.
    let is_narrow = dtype == DType::BF16 && Precision::current() == Precision::F32;
    let rounded = |y: Tensor<D>| if is_narrow { y.cast(dtype) } else { y };
    #[cfg(feature = "flex")]
    if let Some(y) = flex::quantized(&x, &weight, bias.as_ref()) {
        return rounded(y);
    }
    rounded(match dtype {
        // Burn does not multiply bf16 with what is dequantised to f32.
        DType::BF16 => {
            let bias = bias.map(|bias| bias.cast(DType::F32));
            burns(x.cast(DType::F32), weight, bias)
        }
        _ => burns(x, weight, bias),
    })
}

/// Burn's own linear layer, which waits for other threads.
fn burns<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    outside(|| burn::tensor::module::linear(x, weight, bias))
}

/// How a backend computes A · B + bias for each row, added up in f32 and rounded to a dtype once.
type Affine<B> = fn(FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>, DType) -> FloatTensor<B>;

fn forward<B: Backend>(
    input: Linear<B>,
    affine: Affine<B>,
    rounded: fn([FloatTensor<B>; 2], DType) -> [FloatTensor<B>; 2],
) -> Output<LinearOp, B> {
    let [x, weight] = rounded([input.x, input.weight], input.dtype);
    (affine(x.clone(), weight.clone(), input.bias, input.output), [x, weight])
}

fn backward<B: Backend>(
    input: Linear<B>,
    upstream: Upstream<LinearOp, B>,
    affine: Affine<B>,
    total: fn(FloatTensor<B>, &FloatTensor<B>) -> FloatTensor<B>,
) -> Gradients<B> {
    let Upstream { statistics: [x, weight], grad, needs: [needs_x, needs_weight, needs_bias] } = upstream;
    let bias = input.bias.filter(|_| needs_bias).map(|bias| total(grad.clone(), &bias));
    let grad = narrow::<B>(grad, input.dtype);
    let transposed = |matrix| B::float_swap_dims(matrix, 0, 1);
    vec![
        needs_x.then(|| affine(grad.clone(), transposed(weight), None, input.x.dtype())),
        needs_weight.then(|| affine(transposed(x), grad.clone(), None, input.weight.dtype())),
        bias,
    ]
}

/// `a · b + bias` by Burn's operations, with sums in f32.
fn affine<B: Backend>(
    a: FloatTensor<B>,
    b: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    output: DType,
) -> FloatTensor<B> {
    // Rounded operands are widened again, so that sums are f32 on every backend.
    let bias = bias.map(|bias| narrow::<B>(bias, DType::F32));
    narrow::<B>(B::linear(wide::<B>(a), wide::<B>(b), bias), output)
}

impl Operator for LinearOp {
    fn specs<B: Backend>(inputs: &Linear<B>) -> Vec<Spec> {
        let shape = Shape::new([inputs.x.shape()[0], inputs.weight.shape()[1]]);
        let rounded = |operand: &FloatTensor<B>| Spec { shape: operand.shape(), dtype: inputs.dtype };
        vec![Spec { shape, dtype: inputs.output }, rounded(&inputs.x), rounded(&inputs.weight)]
    }

    fn reference<B: DropoutOps>(inputs: Linear<B>) -> Output<Self, B> {
        forward::<B>(inputs, affine::<B>, |operands, dtype| {
            operands.map(|operand| narrow::<B>(operand, dtype))
        })
    }

    fn reference_backward<B: DropoutOps>(inputs: Linear<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        backward::<B>(inputs, upstream, affine::<B>, |grad, bias| total::<B>(wide::<B>(grad), bias))
    }
}
