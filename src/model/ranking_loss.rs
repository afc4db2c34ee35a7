//! The contrastive loss of sentence embeddings.

use super::loss::cross_entropy;
use super::similarity::Similarity;
use burn::config::Config;
use burn::prelude::*;

/// The contrastive loss with in-batch negatives: each anchor should be nearer to its own candidate than to all others
/// of the batch.
///
/// Candidate i < B is the positive of anchor i. All other candidates are negatives of that anchor, including those
/// from B on (hard negatives, of their own anchor and of all others). With scores `sᵢⱼ = scale · cos(aᵢ, cⱼ)`:
///
/// ```text
/// loss      = −(1/B) Σᵢ log( exp sᵢᵢ / Σⱼ exp sᵢⱼ )
/// symmetric = (loss − (1/B) Σᵢ log( exp sᵢᵢ / Σₖ exp sₖᵢ )) / 2,  k over the anchors
/// ```
///
/// Anchors of one batch should have different positives: the positive of one is a negative of all others. A batch of one pair has
/// no negatives, and its loss is 0.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::model::{MultipleNegativesRankingLoss, SentenceLoss};
///
/// let loss = SentenceLoss::from(MultipleNegativesRankingLoss::new().with_symmetric(true));
/// let anchors = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 1.0]], &Device::default());
/// let right = loss.forward(anchors.clone(), anchors.clone(), None);
/// let wrong = loss.forward(anchors.clone(), anchors.flip([0]), None);
/// assert!(right.into_scalar::<f32>() < 1e-6);
/// assert!((wrong.into_scalar::<f32>() - 20.0).abs() < 1e-6);
/// ```
///
/// Source: `MultipleNegativesRankingLoss` of sentence-transformers 6.2; the symmetric loss is that with
/// `directions=("query_to_doc", "doc_to_query")` and `partition_mode="per_direction"`.
#[derive(Config, Debug, PartialEq)]
pub struct MultipleNegativesRankingLoss {
    /// The factor of the cosines, the inverse of the temperature; above 0.
    #[config(default = 20.0)]
    pub scale: f64,
    /// Whether each candidate should be nearest to its own anchor as well.
    #[config(default = false)]
    pub symmetric: bool,
}

impl MultipleNegativesRankingLoss {
    /// The loss of B anchors and C ≥ B candidates, `[1]`.
    pub(super) fn of(&self, anchors: Tensor<2>, candidates: Tensor<2>) -> Tensor<1> {
        let scores = Similarity::Cosine.between(anchors, candidates).mul_scalar(self.scale); // [B, C]
        let [batch, _] = scores.dims();
        let own = Tensor::<1, Int>::arange(0..batch as i64, &scores.device());
        let to_candidates = cross_entropy(scores.clone(), own.clone(), None);
        if !self.symmetric {
            return to_candidates;
        }
        let to_anchors = cross_entropy(scores.narrow(1, 0, batch).transpose(), own, None);
        (to_candidates + to_anchors).div_scalar(2.0)
    }
}
