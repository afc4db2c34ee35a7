//! Scaled dot-product attention of packed sequences to themselves: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::engine::device::assert_computes;
use crate::engine::operator::{
    Fields, Gradients, Held, Operator, Output, Spec, Specs, Tensors, Upstream, inputs,
};
use crate::engine::run::run;
use crate::numerics::dropout::{Dropout, DropoutOps};
use crate::numerics::sums::{narrow, wide};
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, TensorMetadata, get_or_init_device_settings};
use burn::prelude::*;
use burn::tensor::{Shape, TensorData};

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
            /// How far from a token those are that it attends to, at most; L if that is any.
            window: usize,
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
    window: Option<usize>,
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
        Self { lengths, window: None, starts: Tensor::from_data(starts.as_slice(), &device) }
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
/// In sequences [with a window](Sequences::with_window) S is −∞ for pairs of tokens that are further apart; Flex skips them.
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
/// weights and their gradients to bf16 where they are multiplied with bf16; sums are f32.
///
/// # Panics
///
/// If shapes do not fit, `heads` does not divide H, `dropout` is not in [0, 1), or the device computes wrongly in the dtype
/// ([`check_dtype`](crate::check_dtype)).
pub fn attention(
    [query, key, value]: [Tensor<2>; 3],
    sequences: &Sequences,
    heads: usize,
    bias: Option<Tensor<4>>,
    dropout: f64,
) -> Tensor<2> {
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
    // Nothing to compute, and no dims that kernels take.
    if tokens == 0 || hidden == 0 {
        return value;
    }
    assert_computes(&query);
    let mut input = input([query, key, value], sequences, heads, bias);
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
    let longest = sequences.lengths.iter().copied().max().unwrap_or(0);
    let [query, key, value] = rows.map(|rows| rows.dequantize().into_dispatch());
    Attention {
        dropout: Dropout(None),
        query,
        key,
        value,
        bias: bias.map(|bias| bias.dequantize().into_dispatch()),
        starts: sequences.starts.clone().into_dispatch(),
        lengths: sequences.lengths.clone(),
        heads,
        scale: 1.0 / ((hidden / heads) as f64).sqrt(),
        window: sequences.window.unwrap_or(usize::MAX).min(longest),
    }
}

impl Operator for AttentionOp {
    /// Of query, key, value and bias.
    type Needs = [bool; 4];
    /// Of each row of S its maximum and 1 / Σ exp(S − max), [B, A, L, 1] in the dtype of the arithmetic.
    type Statistics<X: Held> = [X; 2];

    fn specs(inputs: &Attention<Specs>) -> Vec<Spec> {
        let shape = [inputs.lengths.len(), inputs.heads, inputs.longest(), 1];
        let of_row = Spec::statistic(shape, inputs.query.dtype);
        vec![inputs.query.clone(), of_row.clone(), of_row]
    }

    fn reference<B: DropoutOps>(inputs: Attention<B>) -> Output<Self, B> {
        let rectangle = Rectangle::new(&inputs);
        let (weights, statistics) = weights::<B>(&inputs, &rectangle);
        let context = B::float_matmul(inputs.dropout.apply(weights), rectangle.fill(&inputs.value));
        (narrow::<B>(rectangle.empty(context), inputs.query.dtype()), statistics)
    }

    fn reference_backward<B: DropoutOps>(inputs: Attention<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        let Upstream { statistics: [max, inverse_sum], grad, needs: [query, key, value, bias] } = upstream;
        let rectangle = Rectangle::new(&inputs);
        let rows = |tensor, of: &FloatTensor<B>| narrow::<B>(rectangle.empty(tensor), of.dtype());
        let grad = rectangle.fill(&grad);
        let weights = B::float_exp(B::float_sub(scores::<B>(&inputs, &rectangle), max));
        let weights = B::float_mul(weights, inverse_sum);
        let value = value.then(|| {
            let dropped = inputs.dropout.apply(weights.clone());
            rows(B::float_matmul(B::float_swap_dims(dropped, 2, 3), grad.clone()), &inputs.value)
        });
        if !(query || key || bias) {
            return vec![None, None, value, None];
        }
        let grad = B::float_matmul(grad, B::float_swap_dims(rectangle.fill(&inputs.value), 2, 3));
        let grad = inputs.dropout.apply(grad);
        let along = B::float_sum_dim(B::float_mul(grad.clone(), weights.clone()), 3);
        let grad = B::float_mul(weights, B::float_sub(grad, along)); // of the scores
        let bias = inputs.bias.as_ref().filter(|_| bias).map(|bias| narrow::<B>(grad.clone(), bias.dtype()));
        let grad = B::float_mul_scalar(grad, inputs.scale.into());
        let query =
            query.then(|| rows(B::float_matmul(grad.clone(), rectangle.fill(&inputs.key)), &inputs.query));
        let key = key.then(|| {
            let grad = B::float_swap_dims(grad, 2, 3);
            rows(B::float_matmul(grad, rectangle.fill(&inputs.query)), &inputs.key)
        });
        vec![query, key, value, bias]
    }
}

/// P [B, A, L, L] wide, and the statistics of its rows.
fn weights<B: Backend>(
    inputs: &Attention<B>,
    rectangle: &Rectangle<B>,
) -> (FloatTensor<B>, [FloatTensor<B>; 2]) {
    let scores = scores::<B>(inputs, rectangle);
    let max = B::float_max_dim(scores.clone(), 3);
    let weights = B::float_exp(B::float_sub(scores, max.clone()));
    let inverse_sum = B::float_recip(B::float_sum_dim(weights.clone(), 3));
    (B::float_mul(weights, inverse_sum.clone()), [max, inverse_sum])
}

/// S, [B, A, L, L] wide.
fn scores<B: Backend>(inputs: &Attention<B>, rectangle: &Rectangle<B>) -> FloatTensor<B> {
    let key = B::float_swap_dims(rectangle.fill(&inputs.key), 2, 3);
    let scores = B::float_matmul(rectangle.fill(&inputs.query), key);
    let scores = B::float_mul_scalar(scores, inputs.scale.into());
    let scores = match &inputs.bias {
        Some(bias) => B::float_add(scores, wide::<B>(bias.clone())),
        None => scores,
    };
    rectangle.mask(scores)
}

/// Where the rows [N, H] lie in a rectangle [B, A, L, d].
struct Rectangle<B: Backend> {
    /// [B, A, L, d].
    dims: [usize; 4],
    /// `None` if all sequences are of one length.
    slots: Option<Slots<B>>,
    /// True where query and key are further apart than the window, [L, L]; `None` if none are.
    outside: Option<BoolTensor<B>>,
}

struct Slots<B: Backend> {
    /// For each of B · L slots, its row; 0 for padding.
    rows: IntTensor<B>,
    /// For each of N rows, its slot.
    slots: IntTensor<B>,
    /// True in padding, [B, L].
    padding: BoolTensor<B>,
}

impl<B: Backend> Rectangle<B> {
    fn new(input: &Attention<B>) -> Self {
        let [batch, longest, heads] = [input.lengths.len(), input.longest(), input.heads];
        let hidden = input.query.shape()[1];
        let dims = [batch, heads, longest, hidden / heads];
        let device = input.query.device();
        let settings = get_or_init_device_settings::<B>(&device);
        let int = |values: Vec<i64>| {
            let count = values.len();
            let data = TensorData::new(values, [count]).convert_dtype(settings.int_dtype.into());
            B::int_from_data(data, &device)
        };
        let bools = |ones: Vec<i64>, shape| {
            let ones = B::int_equal_elem(int(ones), 1i64.into(), settings.bool_dtype);
            B::bool_reshape(ones, shape)
        };
        let outside = (input.window + 1 < longest).then(|| {
            let pairs = (0..longest).flat_map(|i| (0..longest).map(move |j| i.abs_diff(j)));
            let pairs = pairs.map(|distance| i64::from(distance > input.window));
            bools(pairs.collect(), Shape::new([longest, longest]))
        });
        // No padding: a reshape does it, without indices.
        if input.lengths.iter().all(|&length| length == longest) {
            return Self { dims, slots: None, outside };
        }
        let of_sequence = |(i, &length): (usize, &usize)| i * longest..i * longest + length;
        let slots = input.lengths.iter().enumerate().flat_map(of_sequence);
        let (mut rows, mut padding) = (vec![0; batch * longest], vec![1; batch * longest]);
        for (row, slot) in slots.clone().enumerate() {
            (rows[slot], padding[slot]) = (row as i64, 0);
        }
        let slots = slots.map(|slot| slot as i64).collect();
        let padding = bools(padding, Shape::new([batch, longest]));
        Self { dims, slots: Some(Slots { rows: int(rows), slots: int(slots), padding }), outside }
    }

    /// Wide [N, H] → [B, A, L, d], zero in padding.
    fn fill(&self, tensor: &FloatTensor<B>) -> FloatTensor<B> {
        let [batch, heads, longest, columns] = self.dims;
        let mut tensor = wide::<B>(tensor.clone());
        if let Some(Slots { rows, padding, .. }) = &self.slots {
            tensor = B::float_select(tensor, 0, rows.clone());
            let shape = tensor.shape();
            let padding = B::bool_reshape(padding.clone(), Shape::new([batch * longest, 1]));
            tensor = B::float_mask_fill(tensor, B::bool_expand(padding, shape), 0.0.into());
        }
        let tensor = B::float_reshape(tensor, Shape::new([batch, longest, heads, columns]));
        B::float_swap_dims(tensor, 1, 2)
    }

    /// [B, A, L, d] → [N, H].
    fn empty(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let [batch, heads, longest, columns] = self.dims;
        let tensor = B::float_swap_dims(tensor, 1, 2);
        let tensor = B::float_reshape(tensor, Shape::new([batch * longest, heads * columns]));
        match &self.slots {
            Some(Slots { slots, .. }) => B::float_select(tensor, 0, slots.clone()),
            None => tensor,
        }
    }

    /// Logits [B, A, L, L], the lowest finite value where a key is padding or outside the window.
    fn mask(&self, scores: FloatTensor<B>) -> FloatTensor<B> {
        let [batch, _, longest, _] = self.dims;
        let padding = self.slots.as_ref().map(|slots| (&slots.padding, [batch, 1, 1, longest]));
        let outside = self.outside.as_ref().map(|outside| (outside, [1, 1, longest, longest]));
        padding.into_iter().chain(outside).fold(scores, |scores, (masked, shape)| {
            // Finite: a row of −∞ alone would become NaN.
            let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
            let masked = B::bool_expand(B::bool_reshape(masked.clone(), Shape::new(shape)), scores.shape());
            B::float_mask_fill(scores, masked, lowest.into())
        })
    }
}
