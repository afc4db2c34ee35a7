//! The operator made of Burn's primitive operations.

use super::rectangle::Rectangle;
use super::{Attention, AttentionOp};
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::dtype::{narrow, wide};
use crate::operator::inputs::{Held, Spec, Specs};
use crate::operator::kernels::{Operator, Output};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};

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

    fn reference_backward<B: DropoutOps>(
        inputs: Attention<B>,
        [max, inverse_sum]: [FloatTensor<B>; 2],
        grad: FloatTensor<B>,
        [query, key, value, bias]: [bool; 4],
    ) -> Vec<Option<FloatTensor<B>>> {
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
