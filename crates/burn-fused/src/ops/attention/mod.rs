//! Scaled dot-product attention of packed sequences to themselves: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod reference;

use crate::engine::device::assert_computes;
use crate::engine::operator::{Fields, Tensors, inputs};
use crate::engine::run::run;
use crate::numerics::dropout::Dropout;
use crate::numerics::precision::Precision;
use crate::numerics::sums::narrow;
use burn::backend::Dispatch;
use burn::prelude::*;
use burn::tensor::DType;
use reference::{Rectangle, weights};

inputs! {
    /// B sequences of N tokens in all, the longest of L; A heads of d columns, H = A · d.
    Attention of AttentionOp {
        nested {
            /// What dropout does to the attention weights.
            dropout: Dropout,
        }
        floats {
            /// Q, [N, H]: the sequences one after the other, without padding.
            query,
            /// K, [N, H].
            key,
            /// V, [N, H].
            value,
        }
        optional {
            /// What is added to each row of Q, `[H]`.
            query_bias,
            /// What is added to each row of K, `[H]`.
            key_bias,
            /// What is added to each row of V, `[H]`.
            value_bias,
            /// What is added to the scaled logits, [B, A, L, L]; of a shorter sequence, the first rows and columns are read.
            bias,
        }
        ints {
            /// The first row of each sequence, and N, [B + 1]: `lengths` on the device.
            starts,
        }
        plain {
            /// Tokens of each sequence, N in all.
            lengths: Vec<usize>,
            /// A.
            heads: usize,
            /// What logits are multiplied by, usually 1 / √d.
            scale: f64,
            /// What a device that multiplies on matrix units rounds operands to: the dtype of Q, or that of autocast.
            #[cfg_attr(not(feature = "_cubecl"), allow(dead_code))]
            operands: DType,
        }
    }
}

impl<T: Tensors> Attention<T> {
    /// L.
    pub(crate) fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }
}

/// The lengths of packed sequences, on the host and on a device: made once for a batch, read by every
/// [`attention`](crate::attention) to it.
#[derive(Clone, Debug)]
pub struct Sequences {
    lengths: Vec<usize>,
    /// The first row of each sequence, and N, [B + 1].
    starts: Tensor<1, Int>,
}

impl Sequences {
    /// Sequences of these lengths, one after the other; 0 is allowed.
    pub fn new(lengths: Vec<usize>, device: &Device) -> Self {
        let mut starts = vec![0];
        starts.extend(lengths.iter().scan(0, |end, &length| {
            *end += length as i32;
            Some(*end)
        }));
        let device = device.clone().without_autodiff();
        Self { lengths, starts: Tensor::from_data(starts.as_slice(), &device) }
    }

    /// Tokens of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Tokens of all sequences, N.
    pub fn num_tokens(&self) -> usize {
        self.lengths.iter().sum()
    }
}

/// Multi-head attention of each sequence to itself, `Dropout(softmax(Q·Kᵀ / √d + bias)) · V` for each of A heads of
/// d = H / A columns, with its own backward.
///
/// Rows are packed: the tokens of the first sequence, then those of the second, without padding. For each sequence and
/// head, with the softmax by row:
///
/// ```text
/// S     = Q · Kᵀ / √d + bias
/// P     = softmax(S)
/// O     = (mask · P) · V
/// ∂L/∂V = (mask · P)ᵀ · ∂L/∂O
/// ∂L/∂P = mask · (∂L/∂O · Vᵀ)
/// ∂L/∂S = P · (∂L/∂P − Σ P · ∂L/∂P)     the gradient of bias
/// ∂L/∂Q = ∂L/∂S · K / √d
/// ∂L/∂K = ∂L/∂Sᵀ · Q / √d
/// ```
///
/// Neither logits nor weights are saved for backward. Dropout is that of [`embed_layer_norm`](crate::embed_layer_norm).
///
/// Source: `BertSelfAttention` of transformers 5.23.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{Sequences, attention};
///
/// let device = Device::default();
/// let zeros = Tensor::zeros([3, 2], &device); // all logits are 0: weights are uniform
/// let value = Tensor::from_floats([[1.0, 2.0], [3.0, 6.0], [5.0, 7.0]], &device);
/// let sequences = Sequences::new(vec![2, 1], &device);
/// let y = attention([zeros.clone(), zeros, value], &sequences, 1, None, 0.0);
/// let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
/// assert_eq!(y, [2.0, 4.0, 2.0, 4.0, 5.0, 7.0]);
/// ```
///
/// # Shapes
///
/// - `[query, key, value]`: each [N, H]; views, such as columns of a joint matmul, cost no copy on Flex
/// - `sequences`: B, of N tokens in all
/// - `bias`: [B, A, L, L] for B sequences, the longest of L; of a shorter one, the first rows and columns are read
/// - output: [N, H]
///
/// # Numerics
///
/// Everything is computed in f32 for f16 and bf16, otherwise in the dtype of Q; O is rounded to it once. Flex rounds the
/// weights and their gradients to bf16 where they are multiplied with bf16; sums are f32. In [`autocast`](crate::autocast)
/// matrix units of a CubeCL device read f32 rows rounded to 16 bits.
///
/// # Panics
///
/// If shapes do not fit, `heads` does not divide H, `dropout` is not in [0, 1), or the device computes wrongly in the dtype
/// ([`check_dtype`](crate::check_dtype)).
pub fn attention(
    rows: [Tensor<2>; 3],
    sequences: &Sequences,
    heads: usize,
    bias: Option<Tensor<4>>,
    dropout: f64,
) -> Tensor<2> {
    attention_with_biases(rows.map(|rows| (rows, None)), sequences, heads, bias, dropout)
}

/// [`attention`] of query, key and value to which a vector `[H]` is still to be added, as
/// [`linear_deferred`](crate::linear_deferred) gives them.
///
/// # Panics
///
/// As `attention`, or if a vector is not as long as a row.
pub fn attention_with_biases(
    rows: [(Tensor<2>, Option<Tensor<1>>); 3],
    sequences: &Sequences,
    heads: usize,
    bias: Option<Tensor<4>>,
    dropout: f64,
) -> Tensor<2> {
    let [(query, query_bias), (key, key_bias), (value, value_bias)] = rows;
    let [tokens, hidden] = query.dims();
    let lengths = sequences.lengths();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    assert_eq!(key.dims(), [tokens, hidden], "key must have the shape of query");
    assert_eq!(value.dims(), [tokens, hidden], "value must have the shape of query");
    assert_eq!(sequences.num_tokens(), tokens, "lengths must add up to the number of rows");
    assert!(
        heads > 0 && hidden.is_multiple_of(heads),
        "heads: {heads} do not divide rows of length {hidden}"
    );
    if let Some(bias) = &bias {
        let expected = [lengths.len(), heads, longest, longest];
        assert_eq!(bias.dims(), expected, "bias must have shape [B, A, L, L]");
    }
    let biases = [query_bias, key_bias, value_bias];
    for bias in biases.iter().flatten() {
        assert_eq!(bias.dims(), [hidden], "a bias must be as long as a row");
    }
    // Nothing to compute, and no dims that kernels take.
    if tokens == 0 || hidden == 0 {
        return value;
    }
    assert_computes(&query);
    let mut input = input([query, key, value], sequences, heads, bias);
    let biases = biases.map(|bias| bias.map(|bias| bias.dequantize().into_dispatch()));
    [input.query_bias, input.key_bias, input.value_bias] = biases;
    input.dropout = Dropout::choose(dropout, AttentionOp::operands::<Dispatch>(&input));
    Tensor::from_dispatch(run::<AttentionOp, _>(input))
}

/// The weights of [`attention`] before dropout, softmax(Q·Kᵀ / √d + bias), [B, A, L, L].
pub fn attention_weights(
    [query, key]: [Tensor<2>; 2],
    sequences: &Sequences,
    heads: usize,
    bias: Tensor<4>,
) -> Tensor<4> {
    let dtype = query.dtype();
    let input = input([query.clone(), key, query], sequences, heads, Some(bias));
    Tensor::from_dispatch(narrow::<Dispatch>(weights::<Dispatch>(&input, &Rectangle::new(&input)).0, dtype))
}

/// Without dropout.
fn input(
    rows: [Tensor<2>; 3],
    sequences: &Sequences,
    heads: usize,
    bias: Option<Tensor<4>>,
) -> Attention<Dispatch> {
    let [_, hidden] = rows[0].dims();
    let dtype = rows[0].dtype();
    let [query, key, value] = rows.map(|rows| rows.dequantize().into_dispatch());
    Attention {
        dropout: Dropout(None),
        query,
        key,
        value,
        query_bias: None,
        key_bias: None,
        value_bias: None,
        bias: bias.map(|bias| bias.dequantize().into_dispatch()),
        starts: sequences.starts.clone().into_dispatch(),
        lengths: sequences.lengths.clone(),
        heads,
        scale: 1.0 / ((hidden / heads) as f64).sqrt(),
        operands: if dtype == DType::F32 { Precision::current().dtype() } else { dtype },
    }
}
