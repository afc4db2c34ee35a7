//! The contrastive loss of sentence embeddings.

use super::loss::cross_entropy;
use super::pooling::normalized;
use crate::error::{Error, Result};
use burn::config::Config;
use burn::prelude::*;

/// The contrastive loss with in-batch negatives: each anchor should be nearer to its own candidate than to all others
/// of the batch.
///
/// Candidate i < B is the positive of anchor i. All other candidates are negatives of that anchor, including those
/// from B on (hard negatives). With scores `sᵢⱼ = scale · cos(aᵢ, cⱼ)`:
///
/// ```text
/// loss      = −(1/B) Σᵢ log( exp sᵢᵢ / Σⱼ exp sᵢⱼ )
/// symmetric = (loss − (1/B) Σᵢ log( exp sᵢᵢ / Σₖ exp sₖᵢ )) / 2,  k over the anchors
/// ```
///
/// Anchors of one batch should have different positives: the positive of one is a negative of all others.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::model::MultipleNegativesRankingLoss;
///
/// let loss = MultipleNegativesRankingLoss::new().with_symmetric(true);
/// let anchors = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 1.0]], &Device::default());
/// let right = loss.forward(anchors.clone(), anchors.clone());
/// let wrong = loss.forward(anchors.clone(), anchors.flip([0]));
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
    /// Checks that the loss can be computed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the scale is not finite and above 0.
    pub fn validate(&self) -> Result<()> {
        if self.scale.is_finite() && self.scale > 0.0 {
            return Ok(());
        }
        let problem = format!("is {}, but must be finite and above 0", self.scale);
        Err(Error::Config { field: "scale", problem })
    }

    /// The loss, `[1]`.
    ///
    /// # Shapes
    ///
    /// - `anchors`: [B, H]
    /// - `candidates`: [C, H], C ≥ B
    ///
    /// # Panics
    ///
    /// Where [`try_forward`](Self::try_forward) returns an error, with the same message.
    pub fn forward(&self, anchors: Tensor<2>, candidates: Tensor<2>) -> Tensor<1> {
        self.try_forward(anchors, candidates).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`forward`](Self::forward), with bad input as an error.
    ///
    /// # Errors
    ///
    /// Those of [`scores`](Self::scores).
    pub fn try_forward(&self, anchors: Tensor<2>, candidates: Tensor<2>) -> Result<Tensor<1>> {
        Ok(self.of_scores(self.scores(anchors, candidates)?))
    }

    /// The scores of each anchor and candidate, `scale · cos(aᵢ, cⱼ)`: [B, C].
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate); [`Error::Empty`] without anchors or if H is 0; [`Error::ShapeMismatch`],
    /// [`Error::DTypeMismatch`] or [`Error::DeviceMismatch`] if the candidates are fewer than the anchors, or of
    /// another width or dtype or on another device.
    pub fn scores(&self, anchors: Tensor<2>, candidates: Tensor<2>) -> Result<Tensor<2>> {
        self.validate()?;
        let ([batch, width], [count, other]) = (anchors.dims(), candidates.dims());
        if batch == 0 || width == 0 {
            return Err(Error::Empty { input: "anchors", shape: vec![batch, width] });
        }
        if other != width || count < batch {
            return Err(Error::ShapeMismatch {
                input: "candidates",
                found: vec![count, other],
                expected: format!("[{batch} or more, {width}] for {batch} anchors"),
            });
        }
        let (found, expected) = (candidates.dtype(), anchors.dtype());
        if found != expected {
            return Err(Error::DTypeMismatch { input: "candidates", found, expected });
        }
        if candidates.device() != anchors.device() {
            return Err(Error::device_mismatch("candidates", candidates.device(), anchors.device()));
        }
        Ok(normalized(anchors).matmul(normalized(candidates).transpose()).mul_scalar(self.scale))
    }

    /// The loss of scores from [`scores`](Self::scores), [B, C] → `[1]`.
    pub(super) fn of_scores(&self, scores: Tensor<2>) -> Tensor<1> {
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
