//! What an operator is, and what runs it.

use crate::engine::inputs::{Fields, Held, Spec, Specs};
use crate::numerics::dropout::DropoutOps;
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use std::marker::PhantomData;

/// An operator with a backward of its own: its reference, made of Burn's primitive operations, which every kernel must
/// equal and which a backend without a kernel runs.
pub(crate) trait Operator: Fields {
    /// Which operands' gradients are needed: `[bool; N]` for N operands.
    type Needs: Held + IntoIterator<Item = bool> + TryFrom<Vec<bool>>;

    /// What the backward needs besides the inputs: an array.
    type Statistics<X: Held>: Held + IntoIterator<Item = X> + TryFrom<Vec<X>>;

    /// Of the output and the statistics.
    #[cfg_attr(not(feature = "_cubecl"), allow(dead_code))]
    fn specs(inputs: &Self::On<Specs>) -> (Spec, Self::Statistics<Spec>);

    /// The output and the statistics.
    fn reference<B: DropoutOps>(inputs: Self::On<B>) -> Output<Self, B>;

    /// The gradients that `needs` asks for, each in the dtype of its operand.
    fn reference_backward<B: DropoutOps>(
        inputs: Self::On<B>,
        statistics: Self::Statistics<FloatTensor<B>>,
        grad: FloatTensor<B>,
        needs: Self::Needs,
    ) -> Vec<Option<FloatTensor<B>>>;
}

/// The output of operator `O` on backend `B`, and its statistics.
pub(crate) type Output<O, B> = (FloatTensor<B>, <O as Operator>::Statistics<FloatTensor<B>>);

/// An operator on backend `B`: the reference, where a kernel does not take its place.
pub(crate) trait Kernels<B: DropoutOps>: Operator {
    /// See [`Operator::reference`].
    fn forward(inputs: Self::On<B>) -> Output<Self, B> {
        Self::reference::<B>(inputs)
    }

    /// See [`Operator::reference_backward`].
    fn backward(
        inputs: Self::On<B>,
        statistics: Self::Statistics<FloatTensor<B>>,
        grad: FloatTensor<B>,
        needs: Self::Needs,
    ) -> Vec<Option<FloatTensor<B>>> {
        Self::reference_backward::<B>(inputs, statistics, grad, needs)
    }
}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn deprecates NdArray; it is supported as long as Burn ships it.
impl<O: Operator> Kernels<burn::backend::NdArray> for O {}

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
