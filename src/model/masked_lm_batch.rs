//! A batch with some of its tokens masked.

use crate::embeddings::{BertEmbeddingsInput, Ids, PaddingMask};
use burn::prelude::*;

/// A batch for [`BertForMaskedLm`](crate::model::BertForMaskedLm).
#[derive(Clone, Debug)]
pub struct MaskedLmBatch {
    /// The tokens, some of them masked, padded at the end to one length.
    pub input: BertEmbeddingsInput,
    /// Where a sequence is padded, [B, S]; `None` if none is.
    pub padding: Option<PaddingMask>,
    pub(crate) masked: Option<MaskedTokens>,
}

/// The N > 0 masked tokens of a batch.
#[derive(Clone, Debug)]
pub(crate) struct MaskedTokens {
    /// Where they are, row · S + column.
    pub positions: Vec<usize>,
    /// What they were, [1, N].
    pub labels: Ids,
}

impl MaskedLmBatch {
    /// Number of masked tokens, N.
    pub fn num_masked(&self) -> usize {
        self.masked.as_ref().map_or(0, |masked| masked.labels.dims()[1])
    }

    /// What the masked tokens were, `[N]`; `None` if there are none.
    pub fn labels(&self) -> Option<Tensor<1, Int>> {
        self.masked.as_ref().map(|masked| masked.labels.tensor().squeeze_dim(0))
    }
}
