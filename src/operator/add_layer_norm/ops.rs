//! The operator, as an extension of Burn's backends.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use super::input::{AddLayerNorm, AddLayerNormNeeds};
use super::reference;
use crate::operator::dropout::ops::DropoutOps;
use burn::backend::backend_extension;
use burn::backend::tensor::FloatTensor;

/// The end of a transformer block, `y = LayerNorm(residual + Dropout(x + bias))`, and its gradient. On tensors:
/// [`functional::add_layer_norm`](crate::functional::add_layer_norm).
///
/// ```text
/// s    = residual + mask · (x + bias)
/// mean = Σ s / H
/// rstd = 1 / √(Σ (s − mean)² / H + ε)
/// y    = (s − mean) · rstd · γ + β
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
pub trait AddLayerNormOps: DropoutOps {
    /// y alone, [N, H].
    fn add_layer_norm(#[extension_type] input: AddLayerNorm<Self>) -> FloatTensor<Self> {
        reference::with_statistics::<Self>(input).0
    }

    /// y [N, H], and the mean and rstd that the backward needs, both [N, 1] in the dtype of the arithmetic.
    fn add_layer_norm_with_statistics(
        #[extension_type] input: AddLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        reference::with_statistics::<Self>(input)
    }

    /// The gradients of x, bias, residual, gamma and beta, where `needs` asks for them.
    ///
    /// With `grad` = ∂L/∂y [N, H], ŝ = (s − mean) · rstd and g = grad · γ:
    ///
    /// ```text
    /// ∂L/∂β        = Σ grad
    /// ∂L/∂γ        = Σ grad · ŝ
    /// ∂L/∂residual = rstd · (g − Σ g / H − ŝ · Σ (g · ŝ) / H)
    /// ∂L/∂x        = mask · ∂L/∂residual
    /// ∂L/∂bias     = Σ ∂L/∂x
    /// ```
    ///
    /// with sums over rows, but over columns where they are divided by H.
    fn add_layer_norm_backward(
        #[extension_type] input: AddLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: AddLayerNormNeeds,
    ) -> Vec<Option<FloatTensor<Self>>> {
        reference::backward::<Self>(input, mean, rstd, grad, needs)
    }
}
