//! The operator on tensors.

use super::{Linear, LinearOp};
use crate::operator::path::Path;
use crate::operator::precision::Rounding;
use crate::operator::run::run;
use burn::backend::DispatchTensorKind;
use burn::prelude::*;
use burn::tensor::DType;

/// `x·W + b`: Burn's linear layer, which [`autocast`](crate::functional::autocast) can compute with operands in 16 bits.
///
/// Outside autocast, and where W is neither f32 nor bf16, it is Burn's `linear`; but Flex multiplies operands in f32 or in
/// bf16 as this crate does, and rounds y to their dtype. In autocast, with r(·) the rounding of one operand,
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
        DType::F32 if let Some(rounding) = Rounding::current() => Some(rounding),
        dtype @ (DType::F32 | DType::BF16) if has_products(&x, &weight) => {
            Some(Rounding { dtype, scale: 1.0 })
        }
        _ => None,
    };
    let ([inputs, outputs], weight_dtype) = (weight.dims(), weight.dtype());
    let is_empty = outputs == 0 || dims.contains(&0);
    let Some(rounding) = rounding.filter(|_| !is_empty) else {
        return burn::tensor::module::linear(x, weight, bias);
    };
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

/// Whether products of these are this crate's: on Flex, which may be at the other end of a remote device.
fn has_products<const D: usize>(x: &Tensor<D>, weight: &Tensor<2>) -> bool {
    let tensor = weight.clone().dequantize().into_dispatch();
    let is_listed = match tensor.kind {
        DispatchTensorKind::Autodiff(kind) => is_listed(&kind),
        kind => is_listed(&kind),
    };
    is_listed && x.dtype() == weight.dtype() && x.device().inner() == weight.device().inner()
}

fn is_listed(kind: &DispatchTensorKind) -> bool {
    match kind {
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => true,
        #[cfg(feature = "remote")]
        DispatchTensorKind::Remote(_) => true,
        _ => false,
    }
}
