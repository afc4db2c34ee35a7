//! An operator as one step in autodiff's graph, with a hand-written backward.

use burn::backend::Backend;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;
use std::fmt::Debug;

/// From the input, the statistics and the output's gradient, the gradients of the operands that need one.
type BackwardOf<B, I, S, const N: usize> = fn(I, S, FloatTensor<B>, [bool; N]) -> Vec<Option<FloatTensor<B>>>;

/// An operator of input `I` on the backend below autodiff, with N operands that can need a gradient.
///
/// The graph holds the input, whose tensors live as long as the module does, and statistics `S`: the backward
/// computes the rest again.
#[derive(Debug)]
pub(crate) struct Operator<B: Backend, I, S, const N: usize> {
    /// The output alone.
    pub(crate) forward: fn(I) -> FloatTensor<B>,
    /// The output, and what the backward needs besides the input.
    pub(crate) with_statistics: fn(I) -> (FloatTensor<B>, S),
    pub(crate) backward: BackwardOf<B, I, S, N>,
}

/// What the graph can hold.
pub(crate) trait Held: Clone + Debug + Send + 'static {}

impl<T: Clone + Debug + Send + 'static> Held for T {}

impl<B: Backend, I: Held, S: Held, const N: usize> Operator<B, I, S, N> {
    /// The output for `input`, whose operands are `nodes` of the graph.
    pub(crate) fn record<C: CheckpointStrategy>(
        self,
        nodes: [NodeGuard; N],
        input: I,
    ) -> FloatTensor<Autodiff<B, C>> {
        let Self { forward, with_statistics, .. } = self;
        match self.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (output, statistics) = with_statistics(input.clone());
                prep.finish((input, statistics), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(forward(input)),
        }
    }
}

impl<B: Backend, I: Held, S: Held, const N: usize> Backward<B, N> for Operator<B, I, S, N> {
    type State = (I, S);

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (input, statistics) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        for (parent, gradient) in parents.into_iter().zip((self.backward)(input, statistics, grad, needs)) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent, gradient);
            }
        }
    }
}
