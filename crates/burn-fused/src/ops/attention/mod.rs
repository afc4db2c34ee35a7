//! Scaled dot-product attention of packed sequences to themselves: one operator with its own backward.

#[cfg(feature = "_cubecl")]
pub(crate) mod cube;
#[cfg(feature = "flex")]
mod flex;
mod reference;

use crate::engine::device::assert_computes;
use crate::engine::inputs::{OperatorInputs, Tensors, inputs};
use crate::engine::run::run;
use crate::numerics::dropout::Dropout;
use crate::numerics::precision::narrow;
use crate::ops::move_rows::indices;
use burn::backend::Dispatch;
use burn::prelude::*;
use burn::tensor::DType;

inputs! {
    /// B sequences of N tokens in all, the longest of L; A heads of d columns, H = A · d. The statistics are of each row of S its
    /// maximum and 1 / Σ exp(S − max), [B, A, L, 1] in the dtype of the arithmetic, and O.
    Attention of AttentionOp, operands: 6, statistics: 3 {
        nested { dropout: Dropout, }
        floats { query, key, value, }
        // Those of `Positions`.
        optional { bias, by_query, by_key, }
        ints {
            /// The first row of each sequence, and N, [B + 1]: `lengths` on the device.
            starts,
        }
        plain {
            /// Tokens of each sequence, N in all.
            lengths: Vec<usize>,
            /// L.
            longest: usize,
            /// A.
            heads: usize,
            /// What products with queries and keys are multiplied by, usually 1 / √d.
            scale: f64,
            /// How far from a token those are that it attends to, at most; L if that is any.
            window: usize,
        }
    }
}

impl<T: Tensors> Attention<T> {
    pub(crate) fn map<U: Tensors>(
        self,
        float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Attention<U> {
        AttentionOp::map::<T, U>(self, float, int)
    }

    pub(crate) fn operands(&self) -> Vec<Option<&T::Float>> {
        AttentionOp::operands::<T>(self)
    }

    fn has_distances(&self) -> bool {
        self.by_query.is_some() || self.by_key.is_some()
    }
}

/// The lengths of packed sequences, on the host and on a device: made once for a batch, read by every
/// [`attention`](crate::attention) to it.
#[derive(Clone, Debug)]
pub struct Sequences {
    lengths: Vec<usize>,
    window: Option<usize>,
    /// The first row of each sequence, and N, [B + 1].
    starts: Tensor<1, Int>,
}

impl Sequences {
    /// Sequences of these lengths, one after the other; 0 is allowed.
    pub fn new(lengths: Vec<usize>, device: &Device) -> Self {
        let mut starts = vec![0];
        for length in &lengths {
            starts.push(starts[starts.len() - 1] + length);
        }
        Self { lengths, window: None, starts: indices(&starts, device) }
    }

    /// The same sequences, in which a token attends to those at most `window` tokens before and after it.
    pub fn with_window(&self, window: usize) -> Self {
        Self { window: Some(window), ..self.clone() }
    }

    /// Tokens of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Tokens of all sequences, N.
    pub fn num_tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// L.
    fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }
}

/// What the places of query and key add to the logits of [`attention`] of B sequences, the longest of L tokens, and the scale.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    /// Added to the scaled logits, [B, A, L, L], or [1, A, L, L] for all sequences alike; of a shorter sequence, the first rows and
    /// columns are read.
    pub bias: Option<Tensor<4>>,
    /// What queries are multiplied with, [2L − 1, H]: row `j − i + L − 1` for query i and key j.
    pub by_query: Option<Tensor<2>>,
    /// What keys are multiplied with, [2L − 1, H]: row `j − i + L − 1` for query i and key j.
    pub by_key: Option<Tensor<2>>,
    /// What products with queries and keys are multiplied by, s: 1 / √d if `None`.
    pub scale: Option<f64>,
}

impl Positions {
    /// In the dtype of queries and keys, as kernels read them.
    pub fn cast(self, dtype: DType) -> Self {
        Self {
            bias: self.bias.map(|bias| bias.cast(dtype)),
            by_query: self.by_query.map(|vectors| vectors.cast(dtype)),
            by_key: self.by_key.map(|vectors| vectors.cast(dtype)),
            scale: self.scale,
        }
    }
}

/// Multi-head attention of each sequence to itself, `Dropout(softmax(S)) · V` for each of A heads of d = H / A columns, with
/// its own backward.
///
/// Rows are packed: the tokens of the first sequence, then those of the second, without padding. For each sequence and
/// head, with the softmax by row:
///
/// ```text
/// Sᵢⱼ   = s · (Qᵢ·Kⱼ + Qᵢ·by_query[j − i] + Kⱼ·by_key[j − i]) + biasᵢⱼ        s = 1 / √d, or `positions.scale`
/// P     = softmax(S)
/// O     = (mask · P) · V
/// ∂L/∂V = (mask · P)ᵀ · ∂L/∂O
/// ∂L/∂P = mask · (∂L/∂O · Vᵀ)
/// ∂L/∂S = P · (∂L/∂P − Σ P · ∂L/∂P)     the gradient of bias; of one for all, the sum over sequences
/// ∂L/∂Q = s · ∂L/∂S · K                 and with G[i][j − i] = ∂L/∂Sᵢⱼ, + s · G · by_query
/// ∂L/∂K = s · ∂L/∂Sᵀ · Q                likewise
/// ```
///
/// Flex and CubeCL's devices multiply with the vectors of distances block by block, so nothing of L² is stored; the reference makes a bias
/// of them.
/// In sequences [with a window](Sequences::with_window) S is −∞ for pairs of tokens that are further apart; kernels skip them.
/// Neither logits nor weights are saved for backward. Dropout is that of [`embed_layer_norm`](crate::embed_layer_norm).
///
/// Source: `BertSelfAttention` of transformers 5.23.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{Positions, Sequences, attention};
///
/// let device = Device::default();
/// let zeros = Tensor::zeros([3, 2], &device); // all logits are 0: weights are uniform
/// let value = Tensor::from_floats([[1.0, 2.0], [3.0, 6.0], [5.0, 7.0]], &device);
/// let sequences = Sequences::new(vec![2, 1], &device);
/// let y = attention([zeros.clone(), zeros, value], &sequences, 1, Positions::default(), 0.0);
/// assert_eq!(y.into_data(), TensorData::from([[2.0f32, 4.0], [2.0, 4.0], [5.0, 7.0]]));
/// ```
///
/// # Shapes
///
/// - `[query, key, value]`: each [N, H]; views, such as columns of a joint matmul, cost no copy on Flex
/// - `sequences`: B, of N tokens in all
/// - `positions`: those of [`Positions`]
/// - output: [N, H]
///
/// # Numerics
///
/// Everything is computed in f32 for f16 and bf16, otherwise in the dtype of Q; O is rounded to it once. Flex rounds the
/// weights and their gradients to bf16 where they are multiplied with bf16; sums are f32. CubeCL's devices compute Σ P · ∂L/∂P as
/// O · ∂L/∂O, of the O that is returned.
///
/// # Panics
///
/// If shapes do not fit, `heads` does not divide H, `dropout` is not in [0, 1), or the device computes wrongly in the dtype
/// ([`check_dtype`](crate::check_dtype)).
pub fn attention(
    [query, key, value]: [Tensor<2>; 3],
    sequences: &Sequences,
    heads: usize,
    positions: Positions,
    dropout: f64,
) -> Tensor<2> {
    assert_eq!(value.dims(), query.dims(), "value must have the shape of query");
    if !has_pairs([&query, &key], sequences, heads, &positions) {
        return value;
    }
    assert_computes(&query);
    let mut input = input([query, key, value], sequences, heads, positions);
    input.dropout = Dropout::choose(dropout, AttentionOp::operands::<Dispatch>(&input));
    Tensor::from_dispatch(run::<AttentionOp, _>(input))
}

/// Whether there is anything to compute. Panics if shapes do not fit.
pub(crate) fn has_pairs(
    [query, key]: [&Tensor<2>; 2],
    sequences: &Sequences,
    heads: usize,
    positions: &Positions,
) -> bool {
    let [tokens, hidden] = query.dims();
    assert_eq!(key.dims(), [tokens, hidden], "key must have the shape of query");
    assert_eq!(sequences.num_tokens(), tokens, "lengths must add up to the number of rows");
    assert!(
        heads > 0 && hidden.is_multiple_of(heads),
        "heads: {heads} do not divide rows of length {hidden}"
    );
    let (batch, longest) = (sequences.lengths.len(), sequences.longest());
    if let Some(bias) = &positions.bias {
        let (found, of_one) = (bias.dims(), [heads, longest, longest]);
        let fits = [1, batch].contains(&found[0]) && found[1..] == of_one;
        assert!(fits, "bias must have shape [B, A, L, L] or [1, A, L, L], but is {found:?}");
    }
    for (name, vectors) in [("by_query", &positions.by_query), ("by_key", &positions.by_key)] {
        if let Some(vectors) = vectors {
            let expected = [(2 * longest).saturating_sub(1), hidden];
            assert_eq!(vectors.dims(), expected, "{name} must have shape [2L - 1, H]");
        }
    }
    // No dims that kernels take.
    tokens > 0 && hidden > 0
}

/// The weights of [`attention`] before dropout, softmax(S), [B, A, L, L]; without tokens zeros. Panics if shapes do not fit.
pub fn attention_weights(
    [query, key]: [Tensor<2>; 2],
    sequences: &Sequences,
    heads: usize,
    positions: Positions,
) -> Tensor<4> {
    let dtype = query.dtype();
    if !has_pairs([&query, &key], sequences, heads, &positions) {
        let shape = [sequences.lengths.len(), heads, sequences.longest(), sequences.longest()];
        return Tensor::zeros(shape, (&query.device(), dtype));
    }
    let input = input([query.clone(), key, query], sequences, heads, positions);
    Tensor::from_dispatch(narrow::<Dispatch>(reference::weights::<Dispatch>(input), dtype))
}

/// Without dropout.
pub(crate) fn input(
    rows: [Tensor<2>; 3],
    sequences: &Sequences,
    heads: usize,
    positions: Positions,
) -> Attention<Dispatch> {
    let [_, hidden] = rows[0].dims();
    let [query, key, value] = rows.map(|rows| rows.dequantize().into_dispatch());
    let Positions { bias, by_query, by_key, scale } = positions;
    Attention {
        dropout: Dropout(None),
        query,
        key,
        value,
        bias: bias.map(Tensor::dequantize).map(Tensor::into_dispatch),
        by_query: by_query.map(Tensor::dequantize).map(Tensor::into_dispatch),
        by_key: by_key.map(Tensor::dequantize).map(Tensor::into_dispatch),
        starts: sequences.starts.clone().into_dispatch(),
        lengths: sequences.lengths.clone(),
        longest: sequences.longest(),
        heads,
        scale: scale.unwrap_or_else(|| 1.0 / ((hidden / heads) as f64).sqrt()),
        window: sequences.window.unwrap_or(usize::MAX).min(sequences.longest()),
    }
}
