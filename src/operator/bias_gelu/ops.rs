//! The operator, as an extension of Burn's backends.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use super::input::{BiasGelu, BiasGeluNeeds};
use super::reference;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

/// The activation of a transformer's feed-forward network, `y = GELU(x + bias)`, and its gradient. On tensors:
/// [`functional::bias_gelu`](crate::functional::bias_gelu).
///
/// The exact GELU (Hendrycks and Gimpel, 2016, arXiv:1606.08415), not its tanh approximation, and the exact
/// derivative (that of Burn's `gelu` is the derivative of the approximation on some backends): with z = x + bias, Φ
/// the normal distribution's cumulative function and φ its density,
///
/// ```text
/// y = z · Φ(z),  Φ(z) = (1 + erf(z / √2)) / 2
/// ```
///
/// The default bodies are made of Burn's primitive operations: they are the reference that every kernel must
/// equal, and what a backend without a kernel runs.
///
/// # Numerics
///
/// Everything is computed in f32 for f16 and bf16, otherwise in the dtype of x; y is rounded to it once.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "_cubecl"),
    Remote: cfg(feature = "remote"),
    Autodiff,
)]
pub trait BiasGeluOps: Backend {
    /// y, [N, I].
    fn bias_gelu(#[extension_type] input: BiasGelu<Self>) -> FloatTensor<Self> {
        reference::bias_gelu::<Self>(input)
    }

    /// The gradients of x and bias, where `needs` asks for them, given `grad` = ∂L/∂y [N, I]:
    ///
    /// ```text
    /// ∂L/∂x    = grad · (Φ(z) + z · φ(z)),  φ(z) = exp(−z² / 2) / √(2π)
    /// ∂L/∂bias = Σ ∂L/∂x
    /// ```
    ///
    /// with the sum over rows.
    fn bias_gelu_backward(
        #[extension_type] input: BiasGelu<Self>,
        grad: FloatTensor<Self>,
        needs: BiasGeluNeeds,
    ) -> Vec<Option<FloatTensor<Self>>> {
        reference::backward::<Self>(input, grad, needs)
    }
}
