//! The operator, as an extension of Burn's backends.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use super::input::{Attention, AttentionNeeds};
use super::reference;
use crate::operator::dropout::ops::DropoutOps;
use burn::backend::backend_extension;
use burn::backend::tensor::FloatTensor;

/// Multi-head attention of each sequence to itself, and its gradient. On tensors:
/// [`functional::attention`](crate::functional::attention). For each sequence and head:
///
/// ```text
/// S = scale · Q · Kᵀ + bias
/// P = exp(S − max) / Σ exp(S − max)     by row
/// O = (mask · P) · V
/// ```
///
/// The default bodies are made of Burn's primitive operations: they are the reference that every kernel must
/// equal, and what a backend without a kernel runs. They put sequences of unequal length into a rectangle; the
/// kernel for Flex never stores more than a block of S.
///
/// # Numerics
///
/// Everything is computed in f32 for f16 and bf16, otherwise in the dtype of Q; O is rounded to it once.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "_cubecl"),
    Remote: cfg(feature = "remote"),
    Autodiff,
)]
pub trait AttentionOps: DropoutOps {
    /// O alone, [N, H].
    fn packed_attention(#[extension_type] input: Attention<Self>) -> FloatTensor<Self> {
        reference::with_statistics::<Self>(input).0
    }

    /// O [N, H], and what the backward needs of each row of S, both [B, A, L, 1] in the dtype of the arithmetic: its
    /// maximum, and 1 / Σ exp(S − max).
    fn packed_attention_with_statistics(
        #[extension_type] input: Attention<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        reference::with_statistics::<Self>(input)
    }

    /// The gradients of query, key, value and bias, where `needs` asks for them.
    ///
    /// With `grad` = ∂L/∂O [N, H], and P computed again:
    ///
    /// ```text
    /// ∂L/∂V = (mask · P)ᵀ · grad
    /// ∂L/∂P = mask · (grad · Vᵀ)
    /// ∂L/∂S = P · (∂L/∂P − Σ P · ∂L/∂P)     by row; the gradient of bias
    /// ∂L/∂Q = scale · ∂L/∂S · K
    /// ∂L/∂K = scale · ∂L/∂Sᵀ · Q
    /// ```
    fn packed_attention_backward(
        #[extension_type] input: Attention<Self>,
        max: FloatTensor<Self>,
        inverse_sum: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: AttentionNeeds,
    ) -> Vec<Option<FloatTensor<Self>>> {
        reference::backward::<Self>(input, max, inverse_sum, grad, needs)
    }
}
