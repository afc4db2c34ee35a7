//! The operator made of Burn's primitive operations.

use super::input::{Attention, AttentionNeeds};
use super::rectangle::Rectangle;
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::dtype::{narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};

/// O [N, H], the maximum and the inverse sum of each row [B, A, L, 1].
pub(super) fn with_statistics<B: DropoutOps>(
    input: Attention<B>,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let (weights, max, inverse_sum) = weights::<B>(&input);
    let weights = input.dropout.apply(weights);
    (context::<B>(&input, weights), max, inverse_sum)
}

/// P [B, A, L, L] wide, the maximum and the inverse sum of each of its rows.
pub(super) fn weights<B: Backend>(input: &Attention<B>) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let scores = scores::<B>(input, &Rectangle::new(input));
    let max = B::float_max_dim(scores.clone(), 3);
    let weights = B::float_exp(B::float_sub(scores, max.clone()));
    let inverse_sum = B::float_recip(B::float_sum_dim(weights.clone(), 3));
    (B::float_mul(weights, inverse_sum.clone()), max, inverse_sum)
}

/// O [N, H] for the weights that are left after dropout.
pub(super) fn context<B: Backend>(input: &Attention<B>, weights: FloatTensor<B>) -> FloatTensor<B> {
    let rectangle = Rectangle::new(input);
    let context = B::float_matmul(weights, rectangle.fill(&input.value));
    narrow::<B>(rectangle.empty(context), input.query.dtype())
}

/// The gradients that `needs` asks for, each in the dtype of its operand.
pub(super) fn backward<B: DropoutOps>(
    input: Attention<B>,
    max: FloatTensor<B>,
    inverse_sum: FloatTensor<B>,
    grad: FloatTensor<B>,
    [query, key, value, bias]: AttentionNeeds,
) -> Vec<Option<FloatTensor<B>>> {
    let rectangle = Rectangle::new(&input);
    let rows = |tensor, of: &FloatTensor<B>| narrow::<B>(rectangle.empty(tensor), of.dtype());
    let grad = rectangle.fill(&grad);
    let weights = B::float_exp(B::float_sub(scores::<B>(&input, &rectangle), max));
    let weights = B::float_mul(weights, inverse_sum);
    let value = value.then(|| {
        let dropped = input.dropout.apply(weights.clone());
        rows(B::float_matmul(B::float_swap_dims(dropped, 2, 3), grad.clone()), &input.value)
    });
    if !(query || key || bias) {
        return vec![None, None, value, None];
    }
    let grad = B::float_matmul(grad, B::float_swap_dims(rectangle.fill(&input.value), 2, 3));
    let grad = input.dropout.apply(grad);
    let along = B::float_sum_dim(B::float_mul(grad.clone(), weights.clone()), 3);
    let grad = B::float_mul(weights, B::float_sub(grad, along)); // of the scores
    let bias = input.bias.added().filter(|_| bias).map(|bias| narrow::<B>(grad.clone(), bias.dtype()));
    let grad = B::float_mul_scalar(grad, input.scale.into());
    let query = query.then(|| rows(B::float_matmul(grad.clone(), rectangle.fill(&input.key)), &input.query));
    let key = key.then(|| {
        let grad = B::float_swap_dims(grad, 2, 3);
        rows(B::float_matmul(grad, rectangle.fill(&input.query)), &input.key)
    });
    vec![query, key, value, bias]
}

/// S, [B, A, L, L] wide.
fn scores<B: Backend>(input: &Attention<B>, rectangle: &Rectangle<B>) -> FloatTensor<B> {
    let key = B::float_swap_dims(rectangle.fill(&input.key), 2, 3);
    let scores = B::float_matmul(rectangle.fill(&input.query), key);
    let scores = B::float_mul_scalar(scores, input.scale.into());
    let scores = match input.bias.added() {
        Some(bias) => B::float_add(scores, wide::<B>(bias.clone())),
        None => scores,
    };
    rectangle.mask(scores)
}
