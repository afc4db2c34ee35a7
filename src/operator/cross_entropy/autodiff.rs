//! Autodiff over any backend.

use super::input::CrossEntropy;
use super::ops::CrossEntropyOps;
use crate::operator::graph::Operator;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::tensor::FloatTensor;

impl<B: CrossEntropyOps, C: CheckpointStrategy> CrossEntropyOps for Autodiff<B, C> {
    fn cross_entropy(input: CrossEntropy<Self>) -> FloatTensor<Self> {
        let CrossEntropy { logits, labels, path } = input;
        let nodes = [logits.node()];
        let operator = Operator::<B, _, _, 1> {
            forward: B::cross_entropy,
            with_statistics: |input| {
                let (loss, largest, log_sums) = B::cross_entropy_with_statistics(input);
                (loss, [largest, log_sums])
            },
            // The scores become their gradient.
            backward: |input, [largest, log_sums], grad, [needed]| {
                vec![needed.then(|| B::cross_entropy_backward(input, largest, log_sums, grad))]
            },
        };
        operator.record::<C>(nodes, CrossEntropy { logits: logits.into_primitive(), labels, path })
    }
}
