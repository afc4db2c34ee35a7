//! Autodiff over any backend: one step in the graph, with a hand-written backward.

use super::input::CrossEntropy;
use super::ops::CrossEntropyOps;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;

impl<B: CrossEntropyOps, C: CheckpointStrategy> CrossEntropyOps for Autodiff<B, C> {
    fn cross_entropy(input: CrossEntropy<Self>) -> FloatTensor<Self> {
        let CrossEntropy { logits, labels, path } = input;
        let nodes = [logits.node()];
        let input = CrossEntropy { logits: logits.into_primitive(), labels, path };
        match Step.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (loss, largest, log_sums) = B::cross_entropy_with_statistics(input.clone());
                prep.finish(State { input, largest, log_sums }, loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::cross_entropy(input)),
        }
    }
}

#[derive(Debug)]
struct Step;

/// What the backward needs: the scores, which become their gradient, and two numbers a row.
#[derive(Clone, Debug)]
struct State<B: CrossEntropyOps> {
    input: CrossEntropy<B>,
    largest: FloatTensor<B>,
    log_sums: FloatTensor<B>,
}

impl<B: CrossEntropyOps> Backward<B, 1> for Step {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let State { input, largest, log_sums } = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        if let [Some(parent)] = ops.parents {
            let gradient = B::cross_entropy_backward(input, largest, log_sums, grad);
            grads.register::<B>(parent.id, gradient);
        }
    }
}
