//! The operator made of Burn's primitive operations: the yardstick of every kernel.

use super::{CrossEntropy, CrossEntropyOp};
use crate::engine::inputs::{Held, Spec, Specs};
use crate::engine::operator::{Operator, Output};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::sums::{narrow, wide};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{IndexingUpdateOp, Shape};

impl Operator for CrossEntropyOp {
    type Needs = [bool; 1];
    /// Of each row the largest score m and the log of the sum l, [N, 1] in the dtype of the arithmetic.
    type Statistics<X: Held> = [X; 2];

    fn specs(inputs: &CrossEntropy<Specs>) -> (Spec, [Spec; 2]) {
        let Spec { shape, dtype } = inputs.logits.clone();
        let of_row = Spec::statistic([shape[0], 1], dtype);
        (Spec { shape: Shape::new([1]), dtype }, [of_row.clone(), of_row])
    }

    fn reference<B: DropoutOps>(inputs: CrossEntropy<B>) -> Output<Self, B> {
        let CrossEntropy { logits, labels, .. } = inputs;
        let dtype = logits.dtype();
        let [rows, _] = logits.shape().dims();
        let labels = column::<B>(labels, &logits);
        let logits = wide::<B>(logits);
        let largest = B::float_max_dim(logits.clone(), 1); // [N, 1]
        let centered = B::float_sub(logits, largest.clone());
        let log_sums = B::float_log(B::float_sum_dim(B::float_exp(centered.clone()), 1));
        let losses = B::float_sub(log_sums.clone(), B::float_gather(1, centered, labels));
        let loss = B::float_mul_scalar(B::float_sum(losses), (1.0 / rows as f64).into());
        (narrow::<B>(B::float_reshape(loss, Shape::new([1])), dtype), [largest, log_sums])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: CrossEntropy<B>,
        [largest, log_sums]: [FloatTensor<B>; 2],
        grad: FloatTensor<B>,
        [needed]: [bool; 1],
    ) -> Vec<Option<FloatTensor<B>>> {
        if !needed {
            return vec![None];
        }
        let CrossEntropy { logits, labels, .. } = inputs;
        let dtype = logits.dtype();
        let [rows, _] = logits.shape().dims();
        let labels = column::<B>(labels, &logits);
        let centered = B::float_sub(wide::<B>(logits), largest);
        let softmax = B::float_exp(B::float_sub(centered, log_sums));
        let minus_one =
            B::float_neg(B::float_ones(Shape::new([rows, 1]), &softmax.device(), softmax.dtype().into()));
        let difference = B::float_scatter(1, softmax, labels, minus_one, IndexingUpdateOp::Add);
        let scale = B::float_mul_scalar(wide::<B>(grad), (1.0 / rows as f64).into());
        let gradient = B::float_mul(difference, B::float_reshape(scale, Shape::new([1, 1])));
        vec![Some(narrow::<B>(gradient, dtype))]
    }
}

/// The labels as [N, 1], each moved to the nearest one that exists, whatever the backend checks.
fn column<B: Backend>(labels: IntTensor<B>, logits: &FloatTensor<B>) -> IntTensor<B> {
    let [rows, classes] = logits.shape().dims();
    let labels = B::int_clamp(labels, 0i64.into(), (classes as i64 - 1).into());
    B::int_reshape(labels, Shape::new([rows, 1]))
}
