//! A linear layer whose operands may be rounded to 16 bits: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::engine::operator::{Gradients, Held, Operator, Output, Spec, Specs, Tensors, Upstream, inputs};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::precision::{Precision, assert_supported};
use crate::numerics::sums::{self, narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::prelude::*;
use burn::tensor::{DType, Shape};

inputs! {
    /// N rows of I values to N rows of O.
    Linear of LinearOp {
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
            /// What operands are rounded to: F32 or 16 bits.
            dtype: DType,
            /// Whether the output is in 16 bits, otherwise in f32.
            narrow: bool,
        }
    }
}

impl<T: Tensors> Linear<T> {
    /// The output's dtype.
    fn output(&self) -> DType {
        if self.narrow { self.dtype } else { DType::F32 }
    }
}

/// `x·W + b`: Burn's linear layer, which [`autocast`](crate::autocast) can compute with operands in 16 bits.
///
/// Outside autocast, and where W is neither f32 nor bf16, it is Burn's `linear`, except on Flex, where this crate multiplies
/// f32 and bf16 operands and rounds y to their dtype. In autocast, with r(·) the rounding of one operand,
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
/// In autocast sums, y and the gradients are f32. A quantised W is not rounded, and x is multiplied with it in f32.
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

/// [`linear_narrow`], and the bias if what reads the output is still to add it: [`bias_activation`](crate::bias_activation)
/// and [`attention_with_biases`](crate::attention_with_biases) do so without a pass of its own.
///
/// In [`autocast`](crate::autocast) that is so wherever Burn multiplies: its matmul rounds its sums to 16 bits itself, and
/// the bias is added to what is rounded. Elsewhere the output has its bias.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{Activation, Precision, autocast, bias_activation, linear_deferred};
///
/// let device = Device::default();
/// let (x, weight, bias) = (Tensor::ones([2, 8], &device), Tensor::ones([8, 4], &device), Tensor::ones([4], &device));
/// let y = autocast(Precision::Bf16, || {
///     let (y, bias) = linear_deferred(x, weight, Some(bias));
///     let bias = bias.unwrap_or_else(|| Tensor::zeros([4], (&device, y.dtype())));
///     bias_activation(y, bias, Activation::Relu)
/// });
/// assert!(y.into_data().iter::<f32>().all(|y| y == 9.0));
/// ```
pub fn linear_deferred(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> (Tensor<2>, Option<Tensor<1>>) {
    let is_rounded = Precision::current() == Precision::Bf16 && weight.dtype() == DType::F32;
    if is_rounded && !is_on_flex(&weight) {
        (compute(x, weight, None, true), bias)
    } else {
        (compute(x, weight, bias, true), None)
    }
}

fn compute<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    narrow: bool,
) -> Tensor<D> {
    let mut dims = x.dims();
    // What x and W are rounded to.
    let dtype = match weight.dtype() {
        DType::F32 if Precision::current() == Precision::Bf16 => Some(Precision::Bf16.dtype()),
        dtype @ (DType::F32 | DType::BF16) if has_matmuls(&x, &weight) => Some(dtype),
        _ => None,
    };
    let ([inputs, outputs], weight_dtype) = (weight.dims(), weight.dtype());
    // Burn's linear returns the right shape for empty inputs.
    let is_empty = outputs == 0 || dims.contains(&0);
    let Some(dtype) = dtype.filter(|_| !is_empty) else {
        // In autocast the layer before may have left x in 16 bits, which Burn does not multiply with dequantised f32.
        let x = if matches!(weight_dtype, DType::QFloat(_)) && x.dtype() == DType::BF16 {
            x.cast(DType::F32)
        } else {
            x
        };
        return burn::tensor::module::linear(x, weight, bias);
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
    if dtype != DType::F32 {
        assert_supported(&weight.device());
    }
    let rows = dims[..D - 1].iter().product::<usize>();
    dims[D - 1] = outputs;
    let input = Linear {
        x: x.reshape([rows, inputs]).dequantize().into_dispatch(),
        weight: weight.dequantize().into_dispatch(),
        bias: bias.map(|bias| bias.dequantize().into_dispatch()),
        dtype,
        narrow: narrow || weight_dtype != DType::F32,
    };
    Tensor::<2>::from_dispatch(run::<LinearOp, _>(input)).reshape(dims)
}

/// Whether matmuls of these are this crate's: on Flex.
fn has_matmuls<const D: usize>(x: &Tensor<D>, weight: &Tensor<2>) -> bool {
    is_on_flex(x) && is_on_flex(weight) && x.dtype() == weight.dtype()
}

#[cfg(feature = "flex")]
fn is_on_flex<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.device().inner() == Device::flex()
}

#[cfg(not(feature = "flex"))]
fn is_on_flex<const D: usize>(_tensor: &Tensor<D>) -> bool {
    false
}

/// What a linear layer is made of on backend `B`: here of Burn's primitive operations.
trait Arithmetic<B: Backend> {
    /// An operand of [`affine`](Self::affine), rounded to `dtype` unless `affine` does so.
    fn rounded(&self, operand: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
        narrow::<B>(operand, dtype)
    }

    /// A · B + bias for each row, added up in f32 and rounded to `output` once. The operands are [`rounded`](Self::rounded)
    /// to `dtype`.
    fn affine(
        &self,
        a: FloatTensor<B>,
        b: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
        _dtype: DType,
        output: DType,
    ) -> FloatTensor<B> {
        // Rounded operands are widened again, so that sums are f32 on every backend.
        let [a, b] = [a, b].map(wide::<B>);
        let sum = B::float_matmul(a, b);
        let sum = match bias {
            Some(bias) => {
                let bias = sums::vector::<B>(&bias, &sum);
                B::float_add(sum, bias)
            }
            None => sum,
        };
        narrow::<B>(sum, output)
    }

    /// The sum of the rows of `x`, for the vector `of`.
    fn total(&self, x: FloatTensor<B>, of: &FloatTensor<B>) -> FloatTensor<B> {
        sums::total::<B>(wide::<B>(x), of)
    }
}

/// What every backend has.
struct Reference;

impl<B: Backend> Arithmetic<B> for Reference {}

fn forward<B: Backend>(by: &dyn Arithmetic<B>, input: Linear<B>) -> Output<LinearOp, B> {
    let (dtype, output) = (input.dtype, input.output());
    let [x, weight] = [input.x, input.weight].map(|operand| by.rounded(operand, dtype));
    (by.affine(x.clone(), weight.clone(), input.bias, dtype, output), [x, weight])
}

fn backward<B: Backend>(
    by: &dyn Arithmetic<B>,
    input: Linear<B>,
    upstream: Upstream<LinearOp, B>,
) -> Gradients<B> {
    let Upstream { statistics: [x, weight], grad, needs: [of_x, of_weight, of_bias] } = upstream;
    let dtype = input.dtype;
    let bias = input.bias.as_ref().filter(|_| of_bias).map(|bias| by.total(grad.clone(), bias));
    let grad = by.rounded(grad, dtype);
    let x_grad = of_x.then(|| {
        let weight = B::float_swap_dims(weight, 0, 1);
        by.affine(grad.clone(), weight, None, dtype, input.x.dtype())
    });
    let weight_grad = of_weight.then(|| {
        let x = B::float_swap_dims(x, 0, 1);
        by.affine(x, grad, None, dtype, input.weight.dtype())
    });
    vec![x_grad, weight_grad, bias]
}

impl Operator for LinearOp {
    type Needs = [bool; 3];
    /// The rounded x and W: rounding them again would take a pass over each.
    type Statistics<X: Held> = [X; 2];

    fn specs(inputs: &Linear<Specs>) -> Vec<Spec> {
        let Linear { x, weight, dtype, .. } = inputs;
        let shape = Shape::new([x.shape[0], weight.shape[1]]);
        let rounded = [x, weight].map(|operand| Spec { shape: operand.shape.clone(), dtype: *dtype });
        [Spec { shape, dtype: inputs.output() }].into_iter().chain(rounded).collect()
    }

    fn reference<B: DropoutOps>(inputs: Linear<B>) -> Output<Self, B> {
        forward::<B>(&Reference, inputs)
    }

    fn reference_backward<B: DropoutOps>(inputs: Linear<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        backward::<B>(&Reference, inputs, upstream)
    }
}
