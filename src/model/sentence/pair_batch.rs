//! Batches of pairs of sentences.

use crate::embeddings::BertEmbeddingsInput;
use crate::error::{Error, Result};
use crate::layers::PaddingMask;
use crate::model::sentence::sentence_loss::check_labels;

/// A batch for the training of a [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding).
///
/// Candidate i is the positive of anchor i, or the other sentence of its pair. Candidates beyond the number of anchors are
/// negatives; [`SentenceLoss`](crate::model::SentenceLoss) says which a loss reads.
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
