//! The operator made of Burn's primitive operations, on rectangles [B, A, L, d] of padded sequences.

use super::{Attention, AttentionOp};
use crate::engine::operator::{Gradients, Held, Operator, Output, Spec, Specs, Upstream};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::sums::{self, narrow, wide};
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{Shape, TensorData};

impl Operator for AttentionOp {
    /// Of query, key, value, their biases, and bias.
    type Needs = [bool; 7];
    /// Of each row of S its maximum and 1 / Σ exp(S − max), [B, A, L, 1] in the dtype of the arithmetic, and O, which what
    /// follows saves anyway.
    type Statistics<X: Held> = [X; 3];

    fn specs(inputs: &Attention<Specs>) -> Vec<Spec> {
        let shape = [inputs.lengths.len(), inputs.heads, inputs.longest(), 1];
        let of_row = Spec::statistic(shape, inputs.query.dtype);
        vec![inputs.query.clone(), of_row.clone(), of_row, inputs.query.clone()]
    }

    fn reference<B: DropoutOps>(inputs: Attention<B>) -> Output<Self, B> {
        let dtype = inputs.query.dtype();
        let (inputs, rectangle) = (inputs.added_up(), Rectangle::new(&inputs));
        let (weights, [max, inverse_sum]) = weights::<B>(&inputs, &rectangle);
        let context = B::float_matmul(inputs.dropout.apply(weights), rectangle.fill(&inputs.value));
        let output = narrow::<B>(rectangle.empty(context), dtype);
        (output.clone(), [max, inverse_sum, output])
    }

    fn reference_backward<B: DropoutOps>(inputs: Attention<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        let Upstream { statistics: [max, inverse_sum, _], grad, needs } = upstream;
        let [query, key, value, query_bias, key_bias, value_bias, bias] = needs;
        let rectangle = Rectangle::new(&inputs);
        // The gradients of rows and of what was added to them.
        let rows = |needs: [bool; 2], tensor, of: &FloatTensor<B>, bias: &Option<FloatTensor<B>>| {
            let rows = rectangle.empty(tensor);
            let bias = bias.as_ref().filter(|_| needs[1]).map(|bias| sums::total::<B>(rows.clone(), bias));
            (needs[0].then(|| narrow::<B>(rows, of.dtype())), bias)
        };
        let whole = inputs.added_up();
        let grad = rectangle.fill(&grad);
        let weights = B::float_exp(B::float_sub(scores::<B>(&whole, &rectangle), max));
        let weights = B::float_mul(weights, inverse_sum);
        let (value, value_bias) = if value || value_bias {
            let dropped = B::float_swap_dims(inputs.dropout.apply(weights.clone()), 2, 3);
            let grad = B::float_matmul(dropped, grad.clone());
            rows([value, value_bias], grad, &inputs.value, &inputs.value_bias)
        } else {
            (None, None)
        };
        let [of_query, of_key] = [query || query_bias, key || key_bias];
        if !(of_query || of_key || bias) {
            return vec![None, None, value, None, None, value_bias, None];
        }
        let grad = B::float_matmul(grad, B::float_swap_dims(rectangle.fill(&whole.value), 2, 3));
        let grad = inputs.dropout.apply(grad);
        let along = B::float_sum_dim(B::float_mul(grad.clone(), weights.clone()), 3);
        let grad = B::float_mul(weights, B::float_sub(grad, along)); // of the scores
        let bias = inputs.bias.as_ref().filter(|_| bias).map(|bias| narrow::<B>(grad.clone(), bias.dtype()));
        let grad = B::float_mul_scalar(grad, inputs.scale.into());
        let (query, query_bias) = if of_query {
            let grad = B::float_matmul(grad.clone(), rectangle.fill(&whole.key));
            rows([query, query_bias], grad, &inputs.query, &inputs.query_bias)
        } else {
            (None, None)
        };
        let (key, key_bias) = if of_key {
            let grad = B::float_matmul(B::float_swap_dims(grad, 2, 3), rectangle.fill(&whole.query));
            rows([key, key_bias], grad, &inputs.key, &inputs.key_bias)
        } else {
            (None, None)
        };
        vec![query, key, value, query_bias, key_bias, value_bias, bias]
    }
}

impl<B: Backend> Attention<B> {
    /// The same with biases added to the rows, which are wide then.
    fn added_up(&self) -> Self {
        let mut inputs = self.clone();
        for (rows, bias) in [
            (&mut inputs.query, inputs.query_bias.take()),
            (&mut inputs.key, inputs.key_bias.take()),
            (&mut inputs.value, inputs.value_bias.take()),
        ] {
            let Some(bias) = bias else { continue };
            let sum = wide::<B>(rows.clone());
            let bias = sums::vector::<B>(&bias, &sum);
            *rows = B::float_add(sum, bias);
        }
        inputs
    }
}

/// P [B, A, L, L] wide, and the statistics of its rows.
pub(super) fn weights<B: Backend>(
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
pub(super) struct Rectangle<B: Backend> {
    /// [B, A, L, d].
    dims: [usize; 4],
    /// `None` if all sequences are of one length.
    slots: Option<Slots<B>>,
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
    pub(super) fn new(input: &Attention<B>) -> Self {
        let [batch, longest, heads] = [input.lengths.len(), input.longest(), input.heads];
        let hidden = input.query.shape()[1];
        let dims = [batch, heads, longest, hidden / heads];
        // No padding: a reshape does it, without indices.
        if input.lengths.iter().all(|&length| length == longest) {
            return Self { dims, slots: None };
        }
        let device = input.query.device();
        let settings = get_or_init_device_settings::<B>(&device);
        let int = |values: Vec<i64>| {
            let count = values.len();
            let data = TensorData::new(values, [count]).convert_dtype(settings.int_dtype.into());
            B::int_from_data(data, &device)
        };
        let of_sequence = |(i, &length): (usize, &usize)| i * longest..i * longest + length;
        let slots = input.lengths.iter().enumerate().flat_map(of_sequence);
        let (mut rows, mut padding) = (vec![0; batch * longest], vec![1; batch * longest]);
        for (row, slot) in slots.clone().enumerate() {
            (rows[slot], padding[slot]) = (row as i64, 0);
        }
        let slots = slots.map(|slot| slot as i64).collect();
        let padding = B::int_equal_elem(int(padding), 1i64.into(), settings.bool_dtype);
        let padding = B::bool_reshape(padding, Shape::new([batch, longest]));
        Self { dims, slots: Some(Slots { rows: int(rows), slots: int(slots), padding }) }
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

    /// Logits [B, A, L, L], the lowest finite value where a key is padding.
    fn mask(&self, scores: FloatTensor<B>) -> FloatTensor<B> {
        let Some(Slots { padding, .. }) = &self.slots else { return scores };
        let [batch, _, longest, _] = self.dims;
        // Finite: a row of −∞ alone would become NaN.
        let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
        let padding = B::bool_reshape(padding.clone(), Shape::new([batch, 1, 1, longest]));
        let shape = scores.shape();
        B::float_mask_fill(scores, B::bool_expand(padding, shape), lowest.into())
    }
}
