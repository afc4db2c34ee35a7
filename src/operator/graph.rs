//! An operator as one step in autodiff's graph, with a hand-written backward.

use super::dropout::ops::DropoutOps;
use super::kernels::{Kernels, Operator};
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;
use std::marker::PhantomData;

/// Operator `O` in the graph, which holds the inputs, whose tensors live as long as the module does, and the statistics:
/// the backward computes the rest again.
#[derive(Debug)]
struct Step<O>(PhantomData<O>);

/// The output for inputs that autodiff follows.
pub(crate) fn record<O, B, C, const N: usize>(inputs: O::On<Autodiff<B, C>>) -> FloatTensor<Autodiff<B, C>>
where
    O: Kernels<B> + Operator<Needs = [bool; N]>,
    B: DropoutOps,
    C: CheckpointStrategy,
{
    let operands = O::operands::<Autodiff<B, C>>(&inputs);
    let present = operands.iter().copied().flatten().next().expect("an operand");
    let nodes: [NodeGuard; N] = std::array::from_fn(|i| match operands[i] {
        Some(operand) => operand.node(),
        // A constant stands for what is absent.
        None => Autodiff::<B, C>::from_inner(present.primitive().clone()).node(),
    });
    let inputs =
        O::map::<Autodiff<B, C>, B>(inputs, &mut |tensor| tensor.into_primitive(), &mut |tensor| tensor);
    match Step::<O>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let (output, statistics) = O::forward(inputs.clone());
            prep.finish((inputs, statistics), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(O::forward(inputs).0),
    }
}

impl<O, B, const N: usize> Backward<B, N> for Step<O>
where
    O: Kernels<B> + Operator<Needs = [bool; N]>,
    B: DropoutOps,
{
    type State = (O::On<B>, O::Statistics<FloatTensor<B>>);

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (inputs, statistics) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        for (parent, gradient) in parents.into_iter().zip(O::backward(inputs, statistics, grad, needs)) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent, gradient);
            }
        }
    }
}
