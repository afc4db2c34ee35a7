use crate::model::loss::widened;
use burn::prelude::*;
use serde::{Deserialize, Serialize};

/// How the similarity of two sentences is computed from their vectors; the larger, the more similar.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::model::Similarity;
///
/// let device = Device::default();
/// let query = Tensor::<2>::from_data([[3.0, 4.0]], &device);
/// let texts = Tensor::<2>::from_data([[6.0, 8.0], [3.0, 0.0]], &device);
/// let similarities = Similarity::Euclidean.between(query, texts);
/// assert_eq!(similarities.into_data(), TensorData::from([[-5.0f32, -4.0]]));
/// ```
///
/// f16 and bf16 are computed in, and returned as, f32. Source: `SimilarityFunction` of sentence-transformers 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Similarity {
    /// The cosine of the angle: a·b / (‖a‖·‖b‖); 0 for a vector of zeros.
    #[default]
    Cosine,
    /// a·b.
    Dot,
    /// −‖a − b‖.
    Euclidean,
    /// −Σ |aᵢ − bᵢ|.
    Manhattan,
}

impl Similarity {
    /// The similarity of each row of `a` and the same row of `b`: [N, H] twice → `[N]`. Panics if the shapes or the devices
    /// differ.
    pub fn pairwise(self, a: Tensor<2>, b: Tensor<2>) -> Tensor<1> {
        let [a, b] = [a, b].map(widened);
        let similarities = match self {
            Self::Cosine => (normalized(a) * normalized(b)).sum_dim(1),
            Self::Dot => (a * b).sum_dim(1),
            // The square is clamped and not the root, whose gradient at 0 is infinite.
            Self::Euclidean => {
                let squares = (a - b).square().sum_dim(1);
                // Not `clamp_min`, which on some devices makes the smallest distance of NaN.
                let is_zero = squares.clone().lower_scalar(1e-24);
                squares.mask_fill(is_zero, 1e-24).sqrt().neg()
            }
            // The gradient of |0| is 0 in Burn as in PyTorch, so nothing is clamped.
            Self::Manhattan => (a - b).abs().sum_dim(1).neg(),
        };
        similarities.squeeze_dim(1)
    }

    /// Vectors that are compared with each other in parts, each of them prepared once, and the similarity that compares them then.
    pub(crate) fn prepared(self, a: Tensor<2>, b: Tensor<2>) -> (Self, Tensor<2>, Tensor<2>) {
        match self {
            Self::Cosine => (Self::Dot, normalized(widened(a)), normalized(widened(b))),
            other => (other, a, b),
        }
    }

    /// The similarity of each row of `a` and each row of `b`: [N, H] and [M, H] → [N, M]. Panics if the widths or the devices
    /// differ.
    pub fn between(self, a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
        let [a, b] = [a, b].map(widened);
        match self {
            Self::Cosine => {
                let (dot, a, b) = self.prepared(a, b);
                dot.between(a, b)
            }
            Self::Dot => a.matmul(b.transpose()),
            Self::Euclidean | Self::Manhattan => {
                let dims = b.dims();
                // Nothing can be stacked of no rows.
                if [a.dims()[0], dims[0]].contains(&0) {
                    return Tensor::zeros([a.dims()[0], dims[0]], (&a.device(), a.dtype()));
                }
                // Row by row: all differences at once would be [N, M, H].
                let rows = a.iter_dim(0).map(|row| self.pairwise(row.expand(dims), b.clone()));
                Tensor::stack(rows.collect(), 0)
            }
        }
    }
}

/// Vectors of length 1: x / max(‖x‖, 1e-12); zeros stay zeros, and f16 and bf16 are normalised in f32. [B, H] → [B, H].
/// Source: `torch.nn.functional.normalize` of PyTorch 2.15.
pub(crate) fn normalized(vectors: Tensor<2>) -> Tensor<2> {
    let dtype = vectors.dtype();
    let vectors = widened(vectors);
    // The square is clamped and not the root, whose gradient at 0 is infinite.
    let length = vectors.clone().square().sum_dim(1).clamp_min(1e-24).sqrt(); // [B, 1]
    (vectors / length).cast(dtype)
}

/// LayerNorm without parameters: (x − mean) / √(var + 1e-5) of each vector, f16 and bf16 in f32. [B, H] → [B, H].
/// Source: `torch.nn.functional.layer_norm` of PyTorch 2.15.
#[cfg(feature = "tokenizers")]
pub(crate) fn layer_normed(vectors: Tensor<2>) -> Tensor<2> {
    let dtype = vectors.dtype();
    let vectors = widened(vectors);
    let centred = vectors.clone() - vectors.mean_dim(1);
    let variance = centred.clone().square().mean_dim(1); // [B, 1]
    (centred / variance.add_scalar(1e-5).sqrt()).cast(dtype)
}
