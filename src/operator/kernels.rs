//! What an operator is, and what runs it.

use super::dropout::ops::DropoutOps;
use super::inputs::{Fields, Held, Spec, Specs};
use burn::backend::tensor::FloatTensor;

/// An operator with a backward of its own: its reference, made of Burn's primitive operations, which every kernel must
/// equal and which a backend without a kernel runs.
pub(crate) trait Operator: Fields {
    /// Which operands' gradients are needed: `[bool; N]` for N operands.
    type Needs: Held + IntoIterator<Item = bool> + TryFrom<Vec<bool>>;

    /// What the backward needs besides the inputs: an array.
    type Statistics<X: Held>: Held + IntoIterator<Item = X> + TryFrom<Vec<X>>;

    /// Of the output and the statistics.
    #[cfg_attr(not(any(feature = "remote", feature = "_cubecl")), allow(dead_code))]
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
