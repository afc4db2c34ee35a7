//! The operator on tensors.

use super::{Linear, LinearOp};
use crate::operator::path::Path;
use crate::operator::precision::Rounding;
use crate::operator::run::run;
use burn::prelude::*;
use burn::tensor::DType;

/// `x·W + b`: Burn's linear layer, which [`autocast`](crate::functional::autocast) can compute with operands in 16 bits.
///
/// Outside autocast, and where W is not f32, it is Burn's `linear`, bit for bit; except that with x and W in bf16 Flex
/// multiplies as in autocast, and rounds y to bf16. In autocast, with r(·) the rounding of one
/// operand,
///
/// ```text
/// y      = r(x)·r(W) + b
/// ∂L/∂x  = r(∂L/∂y)·r(W)ᵀ
/// ∂L/∂W  = r(x)ᵀ·r(∂L/∂y)
/// ∂L/∂b  = Σ ∂L/∂y                       over rows
/// ```
///
/// Use it in the place of `Linear::forward` in a module of your own; see [`autocast`](crate::functional::autocast) for an
/// example.
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
/// In autocast products are added up in f32; y and the gradients are f32. In f16 the scale of
/// [`LossScale`](crate::optim::LossScale) is applied to ∂L/∂y before it is rounded, and taken back from the products.
///
/// # Panics
///
/// If shapes do not fit, or, in autocast, the device has no such floats.
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    compute(x, weight, bias, false)
}

/// [`linear`] with an output in 16 bits in autocast, for what only reads it rounded.
pub(crate) fn linear_narrow<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    compute(x, weight, bias, true)
}

fn compute<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    narrow: bool,
) -> Tensor<D> {
    let mut dims = x.dims();
    let rounding = match weight.dtype() {
        DType::F32 => Rounding::current(),
        // Burn would widen both operands first.
        DType::BF16 if is_on_host(&x, &weight) => Some(Rounding { dtype: DType::BF16, scale: 1.0 }),
        _ => None,
    };
    let Some(rounding) = rounding.filter(|_| dims.iter().all(|&size| size > 0)) else {
        return burn::tensor::module::linear(x, weight, bias);
    };
    let ([inputs, outputs], weight_dtype) = (weight.dims(), weight.dtype());
    assert_eq!(dims[D - 1], inputs, "rows of x must be as long as weight has rows");
    if let Some(bias) = &bias {
        assert_eq!(bias.dims(), [outputs], "bias must be as long as weight has columns");
    }
    let found = x.dtype();
    assert!(
        found == DType::F32 || found == rounding.dtype,
        "x is {found:?}, but must be F32 or {:?} in this autocast",
        rounding.dtype
    );
    rounding.assert_supported(&weight.device());
    let rows = dims[..D - 1].iter().product::<usize>();
    dims[D - 1] = outputs;
    let input = Linear {
        x: x.reshape([rows, inputs]).dequantize().into_dispatch(),
        weight: weight.dequantize().into_dispatch(),
        bias: bias.map(|bias| bias.dequantize().into_dispatch()),
        rounding,
        narrow: narrow || weight_dtype != DType::F32,
        path: Path::current(),
    };
    Tensor::<2>::from_dispatch(run::<LinearOp, _>(input)).reshape(dims)
}

/// Whether a product in 16 bits is one of Flex.
fn is_on_host<const D: usize>(x: &Tensor<D>, weight: &Tensor<2>) -> bool {
    #[cfg(feature = "flex")]
    {
        let is_flex = |device: Device| device.inner() == Device::flex();
        x.dtype() == weight.dtype() && is_flex(x.device()) && is_flex(weight.device())
    }
    #[cfg(not(feature = "flex"))]
    {
        let _ = (x, weight);
        false
    }
}
