//! The operator's inputs, generic over the backend.
//!
//! Throughout: N rows of length H.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use crate::operator::dropout::Dropout;
use crate::operator::path::Path;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

/// The inputs of [`AddLayerNormOps`](crate::ops::AddLayerNormOps). On tensors:
/// [`functional::add_layer_norm`](crate::functional::add_layer_norm).
#[derive(Clone, Debug, ExtensionType)]
pub struct AddLayerNorm<B: Backend> {
    /// The output of a linear layer without its bias, [N, H].
    pub x: FloatTensor<B>,
    /// The bias of the linear layer, `[H]`.
    pub bias: FloatTensor<B>,
    /// The residual, [N, H]: the input of the linear layer's block.
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
    pub(crate) path: Path,
}

/// For x, bias, residual, gamma and beta of [`functional::add_layer_norm`](crate::functional::add_layer_norm), in
/// order, whether the gradient is needed.
pub type AddLayerNormNeeds = [bool; 5];

impl<B: Backend> AddLayerNorm<B> {
    /// Without dropout. Inside [`on_reference_path`](crate::functional::on_reference_path), for the reference.
    pub fn new(
        [x, bias, residual]: [FloatTensor<B>; 3],
        gamma: FloatTensor<B>,
        beta: FloatTensor<B>,
        epsilon: f64,
    ) -> Self {
        let (dropout, path) = (Dropout::Inactive, Path::current());
        Self { x, bias, residual, gamma, beta, epsilon, dropout, path }
    }

    /// The five inputs that can need a gradient, in order.
    pub(crate) fn operands(&self) -> [&FloatTensor<B>; 5] {
        [&self.x, &self.bias, &self.residual, &self.gamma, &self.beta]
    }
}
