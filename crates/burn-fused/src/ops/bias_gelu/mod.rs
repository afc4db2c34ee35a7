//! Add a bias, take the activation: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod reference;

use crate::engine::device::assert_computes;
use crate::engine::inputs::inputs;
use crate::engine::run::Path;
use crate::engine::run::run;
use crate::numerics::activation::Activation;
use burn::prelude::*;

/// The factor of z³ in the approximation of GELU.
const CUBIC: f64 = 0.044715;

inputs! {
    /// N rows of length I.
    BiasGelu of BiasGeluOp {
        floats {
            /// The output of a linear layer without its bias, [N, I].
            x,
            /// The bias of the linear layer, `[I]`.
            bias,
        }
        plain {
            activation: Activation,
            path: Path,
        }
    }
}

/// `GELU(x + bias)` in one pass, with a backward of its own: the activation of a transformer's feed-forward network.
///
/// The exact GELU (Hendrycks and Gimpel, 2016, arXiv:1606.08415), not its tanh approximation, and the exact derivative
/// (that of Burn's `gelu` is the derivative of the approximation on some backends): with z = x + bias, Φ the normal
/// distribution's cumulative function and φ its density,
///
/// ```text
/// y        = z · Φ(z),                       Φ(z) = (1 + erf(z / √2)) / 2
/// ∂L/∂x    = ∂L/∂y · (Φ(z) + z · φ(z)),      φ(z) = exp(−z² / 2) / √(2π)
/// ∂L/∂bias = Σ ∂L/∂x                         over rows
/// ```
///
/// Source: `GELUActivation` of transformers 5.23, PyTorch's `gelu` with `approximate="none"`.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::bias_gelu;
///
/// let device = Device::default();
/// let bias = Tensor::from_floats([0.0, 1.0], &device);
/// let y = bias_gelu(Tensor::from_floats([[0.0, 1.0]], &device), bias); // [GELU(0), GELU(2)]
/// let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
/// assert_eq!(y[0], 0.0);
/// assert!((y[1] - 1.954_499_7).abs() < 1e-6);
/// ```
///
/// # Shapes
///
/// - `x`: [N, I]
/// - `bias`: `[I]`
/// - output: [N, I]
///
/// # Numerics
///
/// Everything is computed in f32 for f16 and bf16, otherwise in the dtype of x; y is rounded to it once. Flex's f32 kernel is within 3e-7 of the exact value, relative to it, for every z.
///
/// # Panics
///
/// If `bias` is not of length I, or the device computes in the dtype wrongly ([`check_dtype`](crate::check_dtype)).
pub fn bias_gelu(x: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    bias_activation(x, bias, Activation::Gelu)
}

/// As [`bias_gelu`], with any activation. CubeCL devices run the reference for those that are not the exact GELU.
pub fn bias_activation(x: Tensor<2>, bias: Tensor<1>, activation: Activation) -> Tensor<2> {
    let [_, columns] = x.dims();
    assert_eq!(bias.dims(), [columns], "bias must be as long as a row of x");
    assert_computes(&x);
    let [x, bias] = [x.dequantize().into_dispatch(), bias.dequantize().into_dispatch()];
    Tensor::from_dispatch(run::<BiasGeluOp, _>(BiasGelu { x, bias, activation, path: Path::current() }))
}
