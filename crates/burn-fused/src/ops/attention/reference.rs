//! The operator made of Burn's primitive operations.

use super::{Attention, AttentionOp};
use crate::engine::operator::{Gradients, Held, Operator, Output, Spec, Specs, Upstream};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::sums::{narrow, wide};
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{Shape, TensorData};

impl Operator for AttentionOp {
    /// Of query, key, value and bias.
    type Needs = [bool; 4];
    /// Of each row of S its maximum and 1 / Σ exp(S − max), [B, A, L, 1] in the dtype of the arithmetic.
    type Statistics<X: Held> = [X; 2];

    fn specs(inputs: &Attention<Specs>) -> (Spec, [Spec; 2]) {
        let shape = [inputs.lengths.len(), inputs.heads, inputs.longest(), 1];
        let of_row = Spec::statistic(shape, inputs.query.dtype);
        (inputs.query.clone(), [of_row.clone(), of_row])
    }

    fn reference<B: DropoutOps>(inputs: Attention<B>) -> Output<Self, B> {
        let (weights, max, inverse_sum) = weights::<B>(&inputs);
        let weights = inputs.dropout.apply(weights);
        (context::<B>(&inputs, weights), [max, inverse_sum])
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

/// P [B, A, L, L] wide, the maximum and the inverse sum of each of its rows.
pub(super) fn weights<B: Backend>(inputs: &Attention<B>) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let scores = scores::<B>(inputs, &Rectangle::new(inputs));
    let max = B::float_max_dim(scores.clone(), 3);
    let weights = B::float_exp(B::float_sub(scores, max.clone()));
    let inverse_sum = B::float_recip(B::float_sum_dim(weights.clone(), 3));
    (B::float_mul(weights, inverse_sum.clone()), max, inverse_sum)
}

/// O [N, H] for the weights that are left after dropout.
fn context<B: Backend>(inputs: &Attention<B>, weights: FloatTensor<B>) -> FloatTensor<B> {
    let rectangle = Rectangle::new(inputs);
    let context = B::float_matmul(weights, rectangle.fill(&inputs.value));
    narrow::<B>(rectangle.empty(context), inputs.query.dtype())
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
        let (mut rows, mut slots, mut padding) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, &length) in input.lengths.iter().enumerate() {
            for place in 0..longest {
                let is_padding = place >= length;
                padding.push(i64::from(is_padding));
                rows.push(if is_padding { 0 } else { slots.len() as i64 });
                if !is_padding {
                    slots.push((sequence * longest + place) as i64);
                }
            }
        }
        let padding = B::int_equal_elem(int(padding), 1i64.into(), settings.bool_dtype);
        let padding = B::bool_reshape(padding, Shape::new([batch, longest]));
        Self { dims, slots: Some(Slots { rows: int(rows), slots: int(slots), padding }) }
    }

    /// Wide [N, H] → [B, A, L, d], zero in padding.
    pub(super) fn fill(&self, tensor: &FloatTensor<B>) -> FloatTensor<B> {
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
    pub(super) fn empty(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let [batch, heads, longest, columns] = self.dims;
        let tensor = B::float_swap_dims(tensor, 1, 2);
        let tensor = B::float_reshape(tensor, Shape::new([batch * longest, heads * columns]));
        match &self.slots {
            Some(Slots { slots, .. }) => B::float_select(tensor, 0, slots.clone()),
            None => tensor,
        }
    }

    /// Logits [B, A, L, L], the lowest finite value where a key is padding.
    pub(super) fn mask(&self, scores: FloatTensor<B>) -> FloatTensor<B> {
        let Some(Slots { padding, .. }) = &self.slots else { return scores };
        let [batch, _, longest, _] = self.dims;
        // Finite: a row of −∞ alone would become NaN.
        let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
        let padding = B::bool_reshape(padding.clone(), Shape::new([batch, 1, 1, longest]));
        let shape = scores.shape();
        B::float_mask_fill(scores, B::bool_expand(padding, shape), lowest.into())
    }
}
