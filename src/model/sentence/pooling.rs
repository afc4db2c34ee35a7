use crate::error::{Error, Result};
use crate::layers::PaddingMask;
use crate::model::loss::widened;
use burn::prelude::*;
use serde::{Deserialize, Serialize};
use std::iter::repeat;

/// How the vectors of a sequence's tokens are pooled into one, with sentence-transformers' names.
///
/// Padding is ignored, at any position. A sequence that is all padding gives zeros.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{PaddingMask, model::Pooling};
///
/// let device = Device::default();
/// let hidden = Tensor::<3>::from_data([[[1.0, 8.0], [3.0, 2.0], [9.0, 9.0]]], &device);
/// let padding = PaddingMask::from_lengths(&[2], 3)?;
/// let pooled = Pooling::Mean.forward(hidden, Some(&padding));
/// assert_eq!(pooled.into_data(), TensorData::from([[2.0f32, 5.0]]));
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// f16 and bf16 are summed in f32 and rounded once. Source: `Pooling` of sentence-transformers 6.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pooling {
    /// The mean of the n tokens: Σ xᵢ / n.
    Mean,
    /// The first token.
    Cls,
    /// The maximum over the tokens, for each of the H features.
    Max,
    /// The sum of the n tokens divided by √n: Σ xᵢ / √n.
    MeanSqrtLen,
    /// The mean weighted by position, Σ wᵢ·xᵢ / Σ wᵢ with wᵢ = 1, 2, … from the first token on.
    WeightedMean,
    /// The last token.
    LastToken,
}

impl Pooling {
    /// [`try_forward`](Self::try_forward), which panics with its error.
    pub fn forward(self, hidden: Tensor<3>, padding: Option<&PaddingMask>) -> Tensor<2> {
        self.try_forward(hidden, padding).unwrap_or_else(|error| panic!("{error}"))
    }

    /// One vector per sequence: [B, S, H] with the padding [B, S], or `None` without padding → [B, H]. [`Error::Empty`] if B or
    /// S is 0, [`Error::ShapeMismatch`] if `padding` is not [B, S].
    pub fn try_forward(self, hidden: Tensor<3>, padding: Option<&PaddingMask>) -> Result<Tensor<2>> {
        self.after_prompts(hidden, padding, &[])
    }

    /// [`try_forward`](Self::try_forward) without the first positions of each sequence from its first token on: as many as
    /// `prompt_lengths` says, or none where it is shorter.
    pub(in crate::model) fn after_prompts(
        self,
        hidden: Tensor<3>,
        padding: Option<&PaddingMask>,
        prompt_lengths: &[usize],
    ) -> Result<Tensor<2>> {
        let [batch, seq, _] = hidden.dims();
        if batch == 0 || seq == 0 {
            return Err(Error::Empty { input: "hidden", shape: hidden.dims().into() });
        }
        // Without padding the weights still differ by position.
        let full = PaddingMask::padded(&vec![seq; batch], seq);
        let mask = padding.unwrap_or(&full);
        mask.check([batch, seq])?;
        let prompt_lengths = prompt_lengths.iter().copied().chain(repeat(0));
        let weights =
            mask.rows().zip(prompt_lengths).flat_map(|(is_padding, prompt)| self.weights(is_padding, prompt));
        // Every pooling but the maximum is a weighted sum, one matmul. In f64, and rounded once to what it is computed in.
        let weights: Vec<f64> = weights.collect();
        if self == Self::Max {
            let left_out: Vec<bool> = weights.iter().map(|&weight| weight == 0.0).collect();
            let is_empty = left_out.chunks(seq).map(|row| !row.contains(&false)).collect();
            let lowest = hidden.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
            let largest: Tensor<2> = filled(hidden, left_out, lowest).max_dim(1).squeeze_dim(1);
            return Ok(filled(largest, is_empty, 0.0));
        }
        // Zeroed and not only weighted with 0: padding may hold NaN.
        let is_padding = mask.rows().flatten().copied().collect();
        let (dtype, hidden) = (hidden.dtype(), widened(filled(hidden, is_padding, 0.0)));
        let weights = TensorData::new(weights, [batch, 1, seq]);
        let weights = Tensor::<3>::from_data(weights, (&hidden.device(), hidden.dtype()));
        Ok(weights.matmul(hidden).squeeze_dim::<2>(1).cast(dtype))
    }

    fn weights(self, is_padding: &[bool], prompt_length: usize) -> Vec<f64> {
        let mut weights = vec![0.0; is_padding.len()];
        let start = is_padding.iter().position(|is_padding| !is_padding).unwrap_or(is_padding.len());
        let is_pooled = |&index: &usize| !is_padding[index] && index >= start + prompt_length;
        // From the first token on: a sequence may be padded on its left.
        let tokens: Vec<usize> = (start..is_padding.len()).filter(is_pooled).collect();
        let number = |index: usize| (index - start + 1) as f64;
        let (count, total) = (tokens.len() as f64, tokens.iter().map(|&index| number(index)).sum::<f64>());
        for &index in &tokens {
            weights[index] = match self {
                Self::Cls => f64::from(tokens.first() == Some(&index)),
                Self::LastToken => f64::from(tokens.last() == Some(&index)),
                Self::MeanSqrtLen => count.sqrt().recip(),
                Self::WeightedMean => number(index) / total,
                // A maximum is not a weighted sum: what has a weight is taken.
                Self::Mean | Self::Max => count.recip(),
            };
        }
        weights
    }
}

/// Vectors of the last axis, those that `is_filled` marks filled with `value`: [B, S, H] or [B, H].
fn filled<const D: usize>(vectors: Tensor<D>, is_filled: Vec<bool>, value: f64) -> Tensor<D> {
    // Most batches need no upload.
    if !is_filled.contains(&true) {
        return vectors;
    }
    let (dims, mut shape) = (vectors.dims(), vectors.dims());
    shape[D - 1] = 1;
    let is_filled = Tensor::<D, Bool>::from_data(TensorData::new(is_filled, shape), &vectors.device());
    vectors.mask_fill(is_filled.expand(dims), value)
}
