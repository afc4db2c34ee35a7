//! The losses of sentence embeddings.

use crate::error::{Error, Result};
use crate::layers::{check_input, ensure};
use crate::model::loss::{mean_squared_error, widened};
use crate::model::sentence::similarity::{Similarity, normalized};
use burn::prelude::*;
use burn::tensor::activation::relu;
use burn_fused::cross_entropy;
use serde::{Deserialize, Serialize};

/// A loss of sentence embeddings, as sentence-transformers' of the same name.
///
/// All losses read the vectors of B anchors and C candidates, a batch's further columns one after another: candidate i < B is
/// the positive of anchor i, or the other sentence of its pair; the candidates B + i, 2B + i, … are its negatives.
///
/// | loss | data | C | labels |
/// |---|---|---|---|
/// | [`MultipleNegativesRankingLoss`] | (anchor, positive), (anchor, positive, negative, …) | at least B | not read |
/// | [`CoSentLoss`] | (sentence, sentence) | B | similarities |
/// | `CosineSimilarity` | (sentence, sentence) | B | similarities |
/// | [`TripletLoss`] | (anchor, positive, negative) | 2B | not read |
/// | [`MatryoshkaLoss`] | those of the loss in it | | |
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::model::{CoSentLoss, MatryoshkaLoss, SentenceLoss};
///
/// let device = Device::default();
/// let anchors = Tensor::<2>::from_data([[1.0, 0.0], [0.0, 2.0]], &device);
/// let others = Tensor::<2>::from_data([[2.0, 0.0], [1.0, 0.0]], &device); // cosines 1 and 0
/// // The first two values of each vector, and the first alone.
/// let loss: SentenceLoss = MatryoshkaLoss::new(CoSentLoss::new(), [2, 1]).into();
/// let loss = loss.forward(anchors, others, Some(&[1.0, 0.0]));
/// assert!(loss.into_scalar::<f32>() < 1e-6); // the cosines are in the order of the labels
/// ```
///
/// f16 and bf16 are computed in f32, and the loss is rounded once. Source: `sentence_transformers.losses` of
/// sentence-transformers 6.2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SentenceLoss {
    /// Each anchor should be nearer to its positive than to all other candidates of the batch.
    MultipleNegativesRanking(MultipleNegativesRankingLoss),
    /// Pairs should be ordered by their cosines as by their labels.
    CoSent(CoSentLoss),
    /// The cosine should be the label: the mean of (cos(aᵢ, cᵢ) − yᵢ)².
    CosineSimilarity,
    /// Each anchor should be nearer to its positive than to its negative, by a margin.
    Triplet(TripletLoss),
    /// Another loss, of vectors that are cut to several widths.
    Matryoshka(MatryoshkaLoss),
}

/// The contrastive loss with in-batch negatives: each anchor should be nearer to its positive, candidate i < B, than to all
/// other candidates. With `sᵢⱼ = scale · cos(aᵢ, cⱼ)`:
///
/// ```text
/// loss      = −(1/B) Σᵢ log( exp sᵢᵢ / Σⱼ exp sᵢⱼ )
/// symmetric = (loss − (1/B) Σᵢ log( exp sᵢᵢ / Σₖ exp sₖᵢ )) / 2,  k over the anchors
/// ```
///
/// Anchors of one batch should have different positives, as that of one is a negative of the others. [`SentenceLoss`] has an
/// example. Source: `MultipleNegativesRankingLoss` of sentence-transformers 6.2; the symmetric loss is that with
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

/// The loss of pairs with similarities whose cosines are not in the order of the similarities y:
///
/// ```text
/// loss = log( 1 + Σ exp(scale · (cos(aⱼ, cⱼ) − cos(aᵢ, cᵢ))) ),  over all i, j with yᵢ > yⱼ
/// ```
///
/// Only the order of the y matters. [`SentenceLoss`] has an example. Source: `CoSENTLoss` of sentence-transformers 6.2 (Huang
/// et al. 2024).
#[derive(Config, Debug, PartialEq)]
pub struct CoSentLoss {
    /// The factor of the cosines, the inverse of the temperature; above 0.
    #[config(default = 20.0)]
    pub scale: f64,
}

/// The loss of triplets: the mean of max(0, d(aᵢ, pᵢ) − d(aᵢ, nᵢ) + margin). [`SentenceLoss`] has an example. Source:
/// `TripletLoss` of sentence-transformers 6.2.
#[derive(Config, Debug, PartialEq)]
pub struct TripletLoss {
    /// The distance d, which is the negative similarity, of the cosine 1 − cos.
    #[config(default = "Similarity::Euclidean")]
    pub distance_metric: Similarity,
    /// The least by which a negative should be farther from its anchor than the positive.
    #[config(default = 5.0)]
    pub triplet_margin: f64,
}

/// A loss of vectors that stay useful when only their first values are kept: Σₖ weightₖ · loss(the first dimₖ values of each
/// vector, normalised). The width of the model should be one of the dims, or full vectors are not trained.
/// [`SentenceLoss`] has an example. Source: `MatryoshkaLoss` of sentence-transformers 6.2 (Kusupati et al. 2022).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatryoshkaLoss {
    /// The loss of each width.
    pub loss: Box<SentenceLoss>,
    /// The widths.
    pub matryoshka_dims: Vec<usize>,
    /// The weight of each.
    pub matryoshka_weights: Vec<f64>,
}

impl MatryoshkaLoss {
    /// A loss at several widths, each with a weight of 1.
    pub fn new(loss: impl Into<SentenceLoss>, matryoshka_dims: impl Into<Vec<usize>>) -> Self {
        let matryoshka_dims = matryoshka_dims.into();
        let matryoshka_weights = vec![1.0; matryoshka_dims.len()];
        Self { loss: Box::new(loss.into()), matryoshka_dims, matryoshka_weights }
    }

    /// Sets the weight of each width.
    pub fn with_matryoshka_weights(self, matryoshka_weights: impl Into<Vec<f64>>) -> Self {
        Self { matryoshka_weights: matryoshka_weights.into(), ..self }
    }
}

macro_rules! from {
    ($($variant:ident: $loss:ty),*) => {$(
        impl From<$loss> for SentenceLoss {
            fn from(loss: $loss) -> Self {
                Self::$variant(loss)
            }
        }
    )*};
}
from! {
    MultipleNegativesRanking: MultipleNegativesRankingLoss,
    CoSent: CoSentLoss,
    Triplet: TripletLoss,
    Matryoshka: MatryoshkaLoss
}

impl SentenceLoss {
    /// Checks that the loss can be computed of vectors of length `width`; [`Error::Config`] if a scale is not finite and above
    /// 0, a margin or weight is not finite, there are no dims, a dim is not in 1..=`width`, or there is not one weight for each.
    pub fn validate(&self, width: usize) -> Result<()> {
        match self {
            Self::MultipleNegativesRanking(MultipleNegativesRankingLoss { scale, .. })
            | Self::CoSent(CoSentLoss { scale }) => {
                ensure(scale.is_finite() && *scale > 0.0, "scale", || {
                    format!("is {scale}, but must be finite and above 0")
                })
            }
            Self::CosineSimilarity => Ok(()),
            Self::Triplet(TripletLoss { triplet_margin: margin, .. }) => {
                ensure(margin.is_finite(), "triplet_margin", || format!("is {margin}, but must be finite"))
            }
            Self::Matryoshka(MatryoshkaLoss { loss, matryoshka_dims: dims, matryoshka_weights: weights }) => {
                let [of_dims, of_weights] = ["matryoshka_dims", "matryoshka_weights"];
                ensure(!dims.is_empty(), of_dims, || "is empty, but needs at least one width".into())?;
                for dim in dims {
                    ensure((1..=width).contains(dim), of_dims, || {
                        format!("has {dim}, but the vectors have {width} values (allowed: 1..={width})")
                    })?;
                }
                ensure(weights.len() == dims.len(), of_weights, || {
                    format!("has {} weights, but there are {} dims", weights.len(), dims.len())
                })?;
                for weight in weights {
                    let problem = || format!("has {weight}, but weights must be finite");
                    ensure(weight.is_finite(), of_weights, problem)?;
                }
                dims.iter().try_for_each(|&dim| loss.validate(dim))
            }
        }
    }

    /// [`try_forward`](Self::try_forward), which panics with its error.
    pub fn forward(&self, anchors: Tensor<2>, candidates: Tensor<2>, labels: Option<&[f32]>) -> Tensor<1> {
        self.try_forward(anchors, candidates, labels).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The loss, `[1]`, of `anchors` [B, H], `candidates` [C, H], C as in the table above, and B `labels`.
    ///
    /// # Errors
    ///
    /// - those of [`validate`](Self::validate);
    /// - [`Error::Empty`] without anchors or if H is 0;
    /// - [`Error::ShapeMismatch`] if the candidates are not as many as the loss reads, or of another width;
    /// - [`Error::DTypeMismatch`] or [`Error::DeviceMismatch`] if they are of another dtype or on another device;
    /// - [`Error::Data`] if the loss reads labels and there are none, not one for each anchor, or one is not finite.
    pub fn try_forward(
        &self,
        anchors: Tensor<2>,
        candidates: Tensor<2>,
        labels: Option<&[f32]>,
    ) -> Result<Tensor<1>> {
        let ([batch, width], [count, other]) = (anchors.dims(), candidates.dims());
        if batch == 0 || width == 0 {
            return Err(Error::Empty { input: "anchors", shape: vec![batch, width] });
        }
        // Here too, as a loss can be made and changed without the config of a model.
        self.validate(width)?;
        let (expected, fits) = self.expected_candidates(batch, count);
        if other != width || !fits {
            let expected = format!("[{expected}, {width}] for {batch} anchors");
            return Err(Error::shape("candidates", [count, other], expected));
        }
        check_input("candidates", &candidates, anchors.device(), anchors.dtype())?;
        if let Some(labels) = labels {
            check_labels(labels, batch)?;
        } else if self.reads_labels() {
            let problem = "are missing, but the loss compares them with the similarities of pairs; give each pair a label";
            return Err(Error::data("the labels", problem));
        }
        // 16-bit vectors are widened once for all parts of a loss, and the loss is rounded once.
        let dtype = anchors.dtype();
        Ok(self.compute(widened(anchors), widened(candidates), labels.unwrap_or_default()).cast(dtype))
    }

    /// Whether [`try_forward`](Self::try_forward) needs labels.
    pub fn reads_labels(&self) -> bool {
        match self {
            Self::MultipleNegativesRanking(_) | Self::Triplet(_) => false,
            Self::CoSent(_) | Self::CosineSimilarity => true,
            Self::Matryoshka(loss) => loss.loss.reads_labels(),
        }
    }

    /// How many candidates the loss reads, and whether there are as many.
    fn expected_candidates(&self, batch: usize, count: usize) -> (String, bool) {
        match self {
            Self::MultipleNegativesRanking(_) => (format!("{batch} or more"), count >= batch),
            Self::CoSent(_) | Self::CosineSimilarity => (batch.to_string(), count == batch),
            Self::Triplet(_) => ((2 * batch).to_string(), count == 2 * batch),
            Self::Matryoshka(loss) => loss.loss.expected_candidates(batch, count),
        }
    }

    /// The loss of what was checked, in f32 or f64.
    fn compute(&self, anchors: Tensor<2>, candidates: Tensor<2>, labels: &[f32]) -> Tensor<1> {
        let [batch, _] = anchors.dims();
        let labelled = |anchors, candidates| {
            let cosines = Similarity::Cosine.pairwise(anchors, candidates);
            let labels = Tensor::<1>::from_data(labels, (&cosines.device(), cosines.dtype()));
            (cosines, labels)
        };
        match self {
            Self::MultipleNegativesRanking(MultipleNegativesRankingLoss { scale, symmetric }) => {
                let scores = Similarity::Cosine.between(anchors, candidates).mul_scalar(*scale); // [B, C]
                let own = Tensor::<1, Int>::arange(0..batch as i64, &scores.device());
                let to_candidates = cross_entropy(scores.clone(), own.clone());
                if !symmetric {
                    return to_candidates;
                }
                // Hard negatives, the columns from B on, have no anchor.
                let to_anchors = cross_entropy(scores.narrow(1, 0, batch).transpose(), own);
                (to_candidates + to_anchors).div_scalar(2.0)
            }
            Self::CoSent(CoSentLoss { scale }) => {
                let (cosines, labels) = labelled(anchors, candidates);
                co_sent(cosines.mul_scalar(*scale), labels)
            }
            Self::CosineSimilarity => {
                let (cosines, labels) = labelled(anchors, candidates);
                mean_squared_error(cosines.unsqueeze_dim(1), labels.unsqueeze_dim(1))
            }
            Self::Triplet(TripletLoss { distance_metric, triplet_margin }) => {
                // Distances are negative similarities, so the signs of the formula turn.
                let [to_positive, to_negative] = [0, batch].map(|first| {
                    distance_metric.pairwise(anchors.clone(), candidates.clone().narrow(0, first, batch))
                });
                relu((to_negative - to_positive).add_scalar(*triplet_margin)).mean()
            }
            Self::Matryoshka(MatryoshkaLoss { loss, matryoshka_dims, matryoshka_weights }) => {
                let losses = matryoshka_dims.iter().zip(matryoshka_weights).map(|(&dim, &weight)| {
                    let [anchors, candidates] =
                        [&anchors, &candidates].map(|vectors| normalized(vectors.clone().narrow(1, 0, dim)));
                    // Not `try_forward`: the batch was checked, at every width.
                    loss.compute(anchors, candidates, labels).mul_scalar(weight)
                });
                losses.reduce(|sum, loss| sum + loss).expect("at least one width")
            }
        }
    }
}

/// Whether there is one finite label for each of `batch` anchors.
pub(in crate::model) fn check_labels(labels: &[f32], batch: usize) -> Result<()> {
    if labels.len() != batch {
        let problem = format!("are {}, but there must be one for each of the {batch} anchors", labels.len());
        return Err(Error::data("the labels", problem));
    }
    let Some(index) = labels.iter().position(|label| !label.is_finite()) else { return Ok(()) };
    let problem = format!("is {}, but must be finite", labels[index]);
    Err(Error::data(format!("the label of pair {index}"), problem))
}

/// log(1 + Σ exp(sⱼ − sᵢ)) over all i, j with yᵢ > yⱼ: `[B]` twice → `[1]`.
fn co_sent(scores: Tensor<1>, labels: Tensor<1>) -> Tensor<1> {
    let [batch] = scores.dims();
    let by_row = |values: &Tensor<1>| values.clone().unsqueeze_dim::<2>(1).expand([batch, batch]);
    let by_column = |values: &Tensor<1>| values.clone().unsqueeze_dim::<2>(0).expand([batch, batch]);
    let is_counted = by_row(&labels).greater(by_column(&labels));
    let differences = (by_column(&scores) - by_row(&scores)).mask_fill(is_counted.bool_not(), NOT_COUNTED);
    // The largest exponent, of those and of 1 = exp(0), is taken out of the sum.
    // Without its gradient, which is 0 in the sum of both terms.
    let largest = differences.clone().detach().max().clamp_min(0.0);
    let sum = (differences - largest.clone().unsqueeze()).exp().sum() + largest.clone().neg().exp();
    sum.log() + largest
}

/// A difference whose exponential is 0; finite, since WGSL lets shaders assume that there are no infinities.
const NOT_COUNTED: f64 = -1e30;
