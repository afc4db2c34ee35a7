//! The operator, as an extension of Burn's backends.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

#[cfg(feature = "_cubecl")]
use super::cube::metadata;
use super::input::{EmbedLayerNorm, EmbedLayerNormGradients, Needs};
use super::reference;
use crate::operator::dropout::ops::DropoutOps;
use burn::backend::backend_extension;
use burn::backend::tensor::FloatTensor;

/// Gather, sum, normalise, drop: `y = Dropout(LayerNorm(words + token_types + positions))`, and its gradient. On
/// tensors: [`functional::embed_layer_norm`](crate::functional::embed_layer_norm).
///
/// With x the sum of a token's three vectors, rounded to the tables' dtype after each addition:
///
/// ```text
/// mean = Σ x / H
/// rstd = 1 / √(Σ (x − mean)² / H + ε)
/// y    = mask · ((x − mean) · rstd · γ + β)
/// ```
///
/// The default bodies are made of Burn's primitive operations: they are the reference that every kernel must
/// equal, and what a backend without a kernel runs.
///
/// # Numerics
///
/// Statistics and everything after them are computed in f32 for f16 and bf16 tables, otherwise in the tables'
/// dtype; y is rounded to it once.
///
/// # Ids out of range
///
/// No memory outside a table is ever read or written. Flex panics and names the id; the default bodies and the
/// CubeCL kernels take the nearest row that exists.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "_cubecl"),
    Remote: cfg(feature = "remote"),
    Fusion: cfg(feature = "_cubecl"),
    Autodiff,
)]
pub trait EmbeddingOps: DropoutOps {
    /// y alone, [B, S, H].
    #[fusion(meta = metadata::y)]
    fn embed_layer_norm(#[extension_type] input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        reference::embed_layer_norm::<Self>(input)
    }

    /// y [B, S, H], and the mean and rstd that the backward needs, both [B, S, 1] in the dtype of the statistics.
    #[fusion(meta = metadata::with_statistics)]
    fn embed_layer_norm_with_statistics(
        #[extension_type] input: EmbedLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        reference::with_statistics::<Self>(input)
    }

    /// The gradients that `needs` asks for.
    ///
    /// With `grad` = ∂L/∂y [B, S, H], d = mask · grad, x̂ = (x − mean) · rstd and g = d · γ:
    ///
    /// ```text
    /// ∂L/∂β = Σ d
    /// ∂L/∂γ = Σ d · x̂
    /// ∂L/∂x = rstd · (g − Σ g / H − x̂ · Σ (g · x̂) / H)
    /// ```
    ///
    /// and a table's row gets the sum of ∂L/∂x over the tokens that read it, a padding row exactly 0.
    #[fusion(meta = metadata::gradients)]
    fn embed_layer_norm_backward(
        #[extension_type] input: EmbedLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: Needs,
    ) -> EmbedLayerNormGradients<Self> {
        reference::backward::<Self>(input, mean, rstd, grad, needs)
    }
}
