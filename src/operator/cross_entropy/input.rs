//! The operator's inputs, generic over the backend.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use crate::operator::path::Path;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, ExtensionType};

/// The inputs of [`CrossEntropyOps`](crate::ops::CrossEntropyOps): N rows of V scores, N and V above 0. On tensors:
/// [`functional::cross_entropy`](crate::functional::cross_entropy).
#[derive(Clone, Debug, ExtensionType)]
pub struct CrossEntropy<B: Backend> {
    /// The scores x, [N, V].
    pub logits: FloatTensor<B>,
    /// The class of each row, `[N]`.
    pub labels: IntTensor<B>,
    /// What computes the forward and the backward.
    pub(crate) path: Path,
}

impl<B: Backend> CrossEntropy<B> {
    /// Inside [`on_reference_path`](crate::functional::on_reference_path), for the reference.
    pub fn new(logits: FloatTensor<B>, labels: IntTensor<B>) -> Self {
        Self { logits, labels, path: Path::current() }
    }
}
