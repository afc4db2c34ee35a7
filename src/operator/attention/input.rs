//! The operator's inputs, generic over the backend.
//!
//! Throughout: B sequences of N tokens in all, the longest of L; A heads of d columns, H = A · d.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use crate::operator::dropout::Dropout;
use crate::operator::path::Path;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, ExtensionType, TensorMetadata};

/// The summand of the scaled scores, the `bias` of [`functional::attention`](crate::functional::attention).
#[derive(Clone, Debug, ExtensionType)]
pub enum ScoreBias<B: Backend> {
    /// Nothing.
    Absent,
    /// [B, A, L, L]. Of a shorter sequence, only the first rows and columns are read.
    Added(FloatTensor<B>),
}

/// The inputs of [`AttentionOps`](crate::ops::AttentionOps). On tensors:
/// [`functional::attention`](crate::functional::attention).
#[derive(Clone, Debug, ExtensionType)]
pub struct Attention<B: Backend> {
    /// Q, [N, H]: the sequences one after the other, without padding.
    pub query: FloatTensor<B>,
    /// K, [N, H].
    pub key: FloatTensor<B>,
    /// V, [N, H].
    pub value: FloatTensor<B>,
    /// Tokens of each sequence, N in all.
    pub lengths: Vec<usize>,
    /// The same on the device: the first row of each sequence, and N, [B + 1].
    pub starts: IntTensor<B>,
    /// A.
    pub heads: usize,
    /// What scores are multiplied by, usually 1 / √d.
    pub scale: f64,
    /// What is added to the scaled scores.
    #[extension_type]
    pub bias: ScoreBias<B>,
    /// What dropout does to the attention weights.
    #[extension_type]
    pub dropout: Dropout<B>,
    /// What computes the forward and the backward.
    pub(crate) path: Path,
}

/// For query, key, value and bias of [`functional::attention`](crate::functional::attention), in order, whether the
/// gradient is needed.
pub type AttentionNeeds = [bool; 4];

impl<B: Backend> ScoreBias<B> {
    /// The tensor, if there is one.
    pub(crate) fn added(&self) -> Option<&FloatTensor<B>> {
        match self {
            Self::Absent => None,
            Self::Added(bias) => Some(bias),
        }
    }
}

impl<B: Backend> Attention<B> {
    /// With a scale of 1 / √d, without bias and dropout. Inside
    /// [`on_reference_path`](crate::functional::on_reference_path), for the reference.
    ///
    /// # Panics
    ///
    /// If `heads` is 0.
    pub fn new(
        [query, key, value]: [FloatTensor<B>; 3],
        lengths: Vec<usize>,
        starts: IntTensor<B>,
        heads: usize,
    ) -> Self {
        let [_, hidden] = query.shape().dims();
        Self {
            query,
            key,
            value,
            lengths,
            starts,
            heads,
            scale: 1.0 / ((hidden / heads) as f64).sqrt(),
            bias: ScoreBias::Absent,
            dropout: Dropout::Inactive,
            path: Path::current(),
        }
    }

    /// L.
    pub(crate) fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }
}
