//! The operator's inputs, generic over the backend.
//!
//! Throughout: N rows of length I.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use crate::operator::path::Path;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

/// The inputs of [`BiasGeluOps`](crate::ops::BiasGeluOps). On tensors:
/// [`functional::bias_gelu`](crate::functional::bias_gelu).
#[derive(Clone, Debug, ExtensionType)]
pub struct BiasGelu<B: Backend> {
    /// The output of a linear layer without its bias, [N, I].
    pub x: FloatTensor<B>,
    /// The bias of the linear layer, `[I]`.
    pub bias: FloatTensor<B>,
    /// What computes the forward and the backward.
    pub(crate) path: Path,
}

impl<B: Backend> BiasGelu<B> {
    /// Inside [`on_reference_path`](crate::functional::on_reference_path), for the reference.
    pub fn new(x: FloatTensor<B>, bias: FloatTensor<B>) -> Self {
        Self { x, bias, path: Path::current() }
    }
}

/// For x and bias of [`functional::bias_gelu`](crate::functional::bias_gelu), in order, whether the gradient is needed.
pub type BiasGeluNeeds = [bool; 2];
