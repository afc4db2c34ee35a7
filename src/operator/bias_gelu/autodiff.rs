//! Autodiff over any backend: one step in the graph, with a hand-written backward.

use super::input::BiasGelu;
use super::ops::BiasGeluOps;
use crate::operator::gradients::register;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;

impl<B: BiasGeluOps, C: CheckpointStrategy> BiasGeluOps for Autodiff<B, C> {
    fn bias_gelu(input: BiasGelu<Self>) -> FloatTensor<Self> {
        let nodes = [input.x.node(), input.bias.node()];
        let input =
            BiasGelu { x: input.x.into_primitive(), bias: input.bias.into_primitive(), path: input.path };
        match Step.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(input.clone(), B::bias_gelu(input)),
            OpsKind::UnTracked(prep) => prep.finish(B::bias_gelu(input)),
        }
    }
}

/// The backward needs the inputs alone.
#[derive(Debug)]
struct Step;

impl<B: BiasGeluOps> Backward<B, 2> for Step {
    type State = BiasGelu<B>;

    fn backward(self, ops: Ops<BiasGelu<B>, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        register::<B, 2>(parents, B::bias_gelu_backward(ops.state, grad, needs), grads);
    }
}
