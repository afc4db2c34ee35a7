//! The operator made of Burn's primitive operations: the yardstick of every kernel.

use super::input::CrossEntropy;
use crate::operator::dtype::{narrow, wide};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{IndexingUpdateOp, Shape};

/// The loss `[1]`, and of each row the largest score and the log of the sum, both [N, 1].
pub(super) fn cross_entropy<B: Backend>(
    input: CrossEntropy<B>,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let CrossEntropy { logits, labels, .. } = input;
    let dtype = logits.dtype();
    let [rows, _] = logits.shape().dims();
    let labels = column::<B>(labels, &logits);
    let logits = wide::<B>(logits);
    let largest = B::float_max_dim(logits.clone(), 1); // [N, 1]
    let centered = B::float_sub(logits, largest.clone());
    let log_sums = B::float_log(B::float_sum_dim(B::float_exp(centered.clone()), 1));
    let losses = B::float_sub(log_sums.clone(), B::float_gather(1, centered, labels));
    let loss = B::float_mul_scalar(B::float_sum(losses), (1.0 / rows as f64).into());
    (narrow::<B>(B::float_reshape(loss, Shape::new([1])), dtype), largest, log_sums)
}

/// The gradient of the scores, [N, V].
pub(super) fn backward<B: Backend>(
    input: CrossEntropy<B>,
    largest: FloatTensor<B>,
    log_sums: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let CrossEntropy { logits, labels, .. } = input;
    let dtype = logits.dtype();
    let [rows, _] = logits.shape().dims();
    let labels = column::<B>(labels, &logits);
    let centered = B::float_sub(wide::<B>(logits), largest);
    let softmax = B::float_exp(B::float_sub(centered, log_sums));
    let minus_one =
        B::float_neg(B::float_ones(Shape::new([rows, 1]), &softmax.device(), softmax.dtype().into()));
    let difference = B::float_scatter(1, softmax, labels, minus_one, IndexingUpdateOp::Add);
    let scale = B::float_mul_scalar(wide::<B>(grad), (1.0 / rows as f64).into());
    narrow::<B>(B::float_mul(difference, B::float_reshape(scale, Shape::new([1, 1]))), dtype)
}

/// The labels as [N, 1], each moved to the nearest one that exists, whatever the backend checks.
fn column<B: Backend>(labels: IntTensor<B>, logits: &FloatTensor<B>) -> IntTensor<B> {
    let [rows, classes] = logits.shape().dims();
    let labels = B::int_clamp(labels, 0i64.into(), (classes as i64 - 1).into());
    B::int_reshape(labels, Shape::new([rows, 1]))
}
