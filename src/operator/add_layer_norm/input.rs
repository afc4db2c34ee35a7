//! The operator's inputs, generic over the backend.
//!
//! Throughout: N rows of length H.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use crate::operator::dropout::Dropout;
use crate::operator::path::Path;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

/// The inputs of [`AddLayerNormOps`](crate::ops::AddLayerNormOps).
#[derive(Clone, Debug, ExtensionType)]
pub struct AddLayerNorm<B: Backend> {
    /// What a linear layer computed without its bias, [N, H].
    pub x: FloatTensor<B>,
    /// The bias of the linear layer, `[H]`.
    pub bias: FloatTensor<B>,
    /// What went into the linear layer's block, [N, H].
    pub residual: FloatTensor<B>,
    /// LayerNorm's scale γ, `[H]`.
    pub gamma: FloatTensor<B>,
    /// LayerNorm's shift β, `[H]`.
    pub beta: FloatTensor<B>,
    /// LayerNorm's ε.
    pub epsilon: f64,
    /// What dropout does to `x + bias`.
    #[extension_type]
    pub dropout: Dropout<B>,
    /// What computes the forward and the backward.
    pub path: Path,
}

/// For x, bias, residual, gamma and beta, in order, whether the gradient is asked for.
pub type AddLayerNormNeeds = [bool; 5];

impl<B: Backend> AddLayerNorm<B> {
    /// The five inputs that can need a gradient, in order.
    pub(crate) fn operands(&self) -> [&FloatTensor<B>; 5] {
        [&self.x, &self.bias, &self.residual, &self.gamma, &self.beta]
    }
}
