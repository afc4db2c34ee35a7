//! Batches of pairs of sentences.

use super::sentence_loss::check_labels;
use crate::embeddings::{BertEmbeddingsInput, PaddingMask};
use crate::error::{Error, Result};

/// A batch for the training of a [`BertForSentenceEmbedding`](super::BertForSentenceEmbedding).
///
/// Candidate i is the positive of anchor i, or the other sentence of its pair. Candidates beyond the number of anchors are
/// negatives; [`SentenceLoss`](super::SentenceLoss) says which a loss reads.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{BertEmbeddingsInput, PaddingMask};
/// use burn_bert::model::SentencePairBatch;
///
/// let device = Device::default();
/// let questions = BertEmbeddingsInput::from_rows(&[[2, 7, 3], [2, 8, 3]], &device)?;
/// let answers = BertEmbeddingsInput::from_rows(&[[2, 9, 5, 3], [2, 6, 3, 0]], &device)?;
/// let padding = PaddingMask::from_lengths(&[4, 3], 4);
/// let batch = SentencePairBatch::new((questions, None), (answers, Some(padding)))?;
/// # let _ = batch;
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SentencePairBatch {
    /// B sentences.
    pub anchors: BertEmbeddingsInput,
    /// Where an anchor is padded, [B, S]; `None` if none is.
    pub anchor_padding: Option<PaddingMask>,
    /// C ≥ B sentences.
    pub candidates: BertEmbeddingsInput,
    /// Where a candidate is padded, [C, S′]; `None` if none is.
    pub candidate_padding: Option<PaddingMask>,
    /// The similarity of each anchor and its candidate, B numbers.
    pub labels: Option<Vec<f32>>,
}

impl SentencePairBatch {
    /// A batch of anchors and candidates, each with its padding.
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`] if there are fewer candidates than anchors, or a padding is not that of its tokens.
    pub fn new(
        (anchors, anchor_padding): (BertEmbeddingsInput, Option<PaddingMask>),
        (candidates, candidate_padding): (BertEmbeddingsInput, Option<PaddingMask>),
    ) -> Result<Self> {
        for (input, padding) in [(&anchors, &anchor_padding), (&candidates, &candidate_padding)] {
            if let Some(padding) = padding {
                padding.check(input.dims())?;
            }
        }
        let ([batch, _], [count, seq]) = (anchors.dims(), candidates.dims());
        if count < batch {
            return Err(Error::ShapeMismatch {
                input: "candidates",
                found: vec![count, seq],
                expected: format!("[{batch} or more, {seq}], at least one per anchor"),
            });
        }
        Ok(Self { anchors, anchor_padding, candidates, candidate_padding, labels: None })
    }

    /// Sets the similarity of each anchor and its candidate.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if there is not one for each anchor, or one is not finite.
    pub fn with_labels(self, labels: &[f32]) -> Result<Self> {
        let [batch, _] = self.anchors.dims();
        check_labels(labels, batch)?;
        Ok(Self { labels: Some(labels.to_vec()), ..self })
    }
}
