//! A batch with some of its tokens masked.

use super::labels::Labels;
use crate::embeddings::{BertEmbeddingsInput, PaddingMask};
use crate::error::Result;
use burn::prelude::*;

/// A batch for [`BertForMaskedLm`](super::BertForMaskedLm).
///
/// [`MaskedLmCollator`](crate::training::MaskedLmCollator) makes them at random; to choose the masked tokens yourself:
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::BertEmbeddingsInput;
/// use burn_bert::model::MaskedLmBatch;
///
/// let device = Device::default();
/// let input = BertEmbeddingsInput::from_rows(&[[2, 4, 9, 3], [2, 8, 4, 3]], &device)?; // 4 is [MASK]
/// let batch = MaskedLmBatch::new(input, None, &[[0, 1], [1, 2]], &[7, 5])?;
/// assert_eq!(batch.num_masked(), 2);
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MaskedLmBatch {
    /// The tokens, some of them masked, padded to one length.
    pub input: BertEmbeddingsInput,
    /// Where a sequence is padded, [B, S]; `None` if none is.
    pub padding: Option<PaddingMask>,
    pub(super) masked: Option<Labels>,
}

impl MaskedLmBatch {
    /// A batch whose masked tokens are at `positions`, given as row and column; `labels` are their original ids.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if there is not one label per position, or `padding` is
    /// not [B, S]; [`Error::Data`](crate::Error::Data) if a position is outside the batch or occurs twice, or a label
    /// does not fit an `i32`.
    pub fn new(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        positions: &[[usize; 2]],
        labels: &[u32],
    ) -> Result<Self> {
        if let Some(padding) = &padding {
            padding.check(input.dims())?;
        }
        let masked = Labels::at(&input, positions, labels)?;
        Ok(Self { input, padding, masked })
    }

    /// Number of masked tokens, N.
    pub fn num_masked(&self) -> usize {
        self.positions().len()
    }

    /// Row and column of the masked tokens; empty if there are none.
    pub fn positions(&self) -> &[[usize; 2]] {
        self.masked.as_ref().map_or(&[], Labels::places)
    }

    /// The original ids of the masked tokens, `[N]`; `None` if there are none.
    pub fn labels(&self) -> Option<Tensor<1, Int>> {
        self.masked.as_ref().map(Labels::tensor)
    }
}
