//! The operator of this layer, as an extension of Burn's backends.
//!
//! Throughout: B sequences of S tokens, vectors of length H. The tensor-level door is
//! [`functional::embed_layer_norm`](crate::functional::embed_layer_norm); this module is for who brings a
//! backend of their own, or looks for what the kernels promise.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro makes names Burn's NdArray

use crate::backends::reference;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, ExtensionType, backend_extension};

/// One of the three summands: where each token's vector comes from.
#[derive(Clone, Debug, ExtensionType)]
pub enum Rows<B: Backend> {
    /// Nothing is added.
    Absent,
    /// Row `ids[b, s]` of `table` [V, H].
    Lookup {
        /// The table, [V, H].
        table: FloatTensor<B>,
        /// [B, S], or [1, S] for all sequences alike.
        ids: IntTensor<B>,
        /// The row that is read like any other and gets no gradient.
        padding_idx: Option<usize>,
    },
    /// Row `first + s` of `table` [V, H]: consecutive positions, the same in every sequence.
    Range {
        /// The table, [V, H].
        table: FloatTensor<B>,
        /// The row of token 0; `first + S` is at most V.
        first: usize,
    },
    /// One row of `table` [V, H] for every token.
    Row {
        /// The table, [V, H].
        table: FloatTensor<B>,
        /// The row, below V.
        row: usize,
    },
    /// The caller's own vectors, [B, S, H].
    Values(FloatTensor<B>),
}

impl<B: Backend> Rows<B> {
    /// What the gradient flows to: the table, or the vectors themselves.
    pub fn source(&self) -> Option<&FloatTensor<B>> {
        match self {
            Rows::Absent => None,
            Rows::Lookup { table, .. } | Rows::Range { table, .. } | Rows::Row { table, .. } => Some(table),
            Rows::Values(values) => Some(values),
        }
    }
}

/// Which elements dropout keeps.
#[derive(Clone, Debug, ExtensionType)]
pub enum Dropout<B: Backend> {
    /// All of them.
    Inactive,
    /// Each with probability 1 − `prob`, scaled by 1 / (1 − `prob`).
    ///
    /// The mask is a function of `seed`, the token and the column alone, so the backward computes it again.
    /// It is the same on every device, in every dtype, and on any number of threads.
    Philox {
        /// Four integers in 0..65536: the 64 bits of the generator's key, least significant first.
        seed: IntTensor<B>,
        /// The probability of a zero, in [0, 1).
        prob: f64,
    },
}

/// What computes the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// The backend's kernels, where it has them for the input.
    #[default]
    Fused,
    /// The default bodies of [`EmbeddingOps`].
    Reference,
}

/// The operator's inputs.
#[derive(Clone, Debug, ExtensionType)]
pub struct EmbedLayerNorm<B: Backend> {
    /// B and S.
    pub shape: [usize; 2],
    /// The first summand.
    #[extension_type]
    pub words: Rows<B>,
    /// The second summand.
    #[extension_type]
    pub token_types: Rows<B>,
    /// The third summand.
    #[extension_type]
    pub positions: Rows<B>,
    /// LayerNorm's scale γ, `[H]`.
    pub gamma: FloatTensor<B>,
    /// LayerNorm's shift β, `[H]`.
    pub beta: FloatTensor<B>,
    /// LayerNorm's ε.
    pub epsilon: f64,
    /// What dropout does to the result.
    #[extension_type]
    pub dropout: Dropout<B>,
    /// What computes the forward and the backward.
    pub path: Path,
}

/// The five inputs that can need a gradient, in the order of [`EmbeddingOps::embed_layer_norm_backward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// [`EmbedLayerNorm::words`].
    Words,
    /// [`EmbedLayerNorm::token_types`].
    TokenTypes,
    /// [`EmbedLayerNorm::positions`].
    Positions,
    /// [`EmbedLayerNorm::gamma`].
    Gamma,
    /// [`EmbedLayerNorm::beta`].
    Beta,
}

impl Operand {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Words, Self::TokenTypes, Self::Positions, Self::Gamma, Self::Beta];
}

/// For each [`Operand`], in order, whether its gradient is asked for.
pub type Needs = [bool; 5];

/// Gather, sum, normalise, drop: `y = Dropout(LayerNorm(words + token_types + positions))`, and its gradient.
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
    Autodiff,
)]
pub trait EmbeddingOps: Backend {
    /// y alone, [B, S, H].
    fn embed_layer_norm(#[extension_type] input: EmbedLayerNorm<Self>) -> FloatTensor<Self> {
        reference::embed_layer_norm::<Self>(input)
    }

    /// y [B, S, H], and the mean and rstd that the backward needs, both [B, S, 1] in the dtype of the statistics.
    fn embed_layer_norm_with_statistics(
        #[extension_type] input: EmbedLayerNorm<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        reference::with_statistics::<Self>(input)
    }

    /// For each [`Operand`], in order, its gradient where `needs` asks for it and it has one.
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
    fn embed_layer_norm_backward(
        #[extension_type] input: EmbedLayerNorm<Self>,
        mean: FloatTensor<Self>,
        rstd: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs: Needs,
    ) -> Vec<Option<FloatTensor<Self>>> {
        reference::backward::<Self>(input, mean, rstd, grad, needs)
    }
}
