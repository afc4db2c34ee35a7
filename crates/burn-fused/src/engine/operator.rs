//! What an operator is: its reference, the kernels that may take its place, and its step in autodiff's graph.

use crate::engine::call::{Path, outside};
use crate::engine::inputs::OperatorInputs;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::precision::computed_in;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn::backend::autodiff::grads;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{AutodiffBackend, Backend, TensorMetadata};
use burn::tensor::{DType, Shape};
use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

/// Shape and dtype of a result.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "_cubecl"), allow(dead_code))] // devices that compute later
pub(crate) struct Spec {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

#[cfg_attr(not(feature = "_cubecl"), allow(dead_code))]
impl Spec {
    pub(crate) fn of(tensor: &impl TensorMetadata) -> Self {
        Self { shape: tensor.shape(), dtype: tensor.dtype() }
    }

    /// The spec of statistics of results in `dtype`.
    pub(crate) fn statistic<const D: usize>(shape: [usize; D], dtype: DType) -> Self {
        Self { shape: Shape::new(shape), dtype: computed_in(dtype) }
    }
}

/// An operator with a backward of its own: its reference, made of Burn's operations, which kernels must equal.
pub(crate) trait Operator: OperatorInputs {
    /// The specs of the output and of the statistics. By default the output is like the first operand, and there are no statistics.
    #[cfg_attr(not(feature = "_cubecl"), allow(dead_code))]
    fn specs<B: Backend>(inputs: &Self::On<B>) -> Vec<Spec> {
        vec![Spec::of(Self::operand::<B>(inputs))]
    }

    fn reference<B: DropoutOps>(inputs: Self::On<B>) -> Output<Self, B>;

    fn reference_backward<B: DropoutOps>(inputs: Self::On<B>, upstream: Upstream<Self, B>) -> Gradients<B>;
}

/// The output of operator `O` on backend `B`, and its statistics.
pub(crate) type Output<O, B> = (FloatTensor<B>, <O as OperatorInputs>::Statistics<FloatTensor<B>>);

/// What the backward of operator `O` is given beside the inputs.
pub(crate) struct Upstream<O: Operator, B: Backend> {
    pub(crate) statistics: O::Statistics<FloatTensor<B>>,
    pub(crate) grad: FloatTensor<B>,
    /// Which operands need a gradient: at least one.
    pub(crate) needs: O::Needs,
}

/// The gradient of each operand, in its dtype; `None` where it is not asked for.
pub(crate) type Gradients<B> = Vec<Option<FloatTensor<B>>>;

/// An operator on backend `B`: the reference, where a kernel does not take its place.
pub(crate) trait Kernels<B: DropoutOps>: Operator {
    /// What `path` computes.
    fn compute(path: Path, inputs: Self::On<B>) -> Output<Self, B> {
        match path {
            Path::Fused => Self::forward(inputs),
            Path::Reference => Self::reference::<B>(inputs),
        }
    }

    fn compute_backward(path: Path, inputs: Self::On<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        match path {
            Path::Fused => Self::backward(inputs, upstream),
            Path::Reference => Self::reference_backward::<B>(inputs, upstream),
        }
    }

    fn forward(inputs: Self::On<B>) -> Output<Self, B> {
        Self::reference::<B>(inputs)
    }

    fn backward(inputs: Self::On<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        Self::reference_backward::<B>(inputs, upstream)
    }

    /// The inputs that are kept for the backward. What it does not read may be any tensor of the same shape and dtype.
    fn saved(inputs: &Self::On<B>) -> Self::On<B> {
        inputs.clone()
    }
}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn deprecates NdArray; it is supported as long as Burn ships it.
impl<O: Operator> Kernels<burn::backend::NdArray> for O {}

/// The output for inputs that autodiff follows. The graph saves the inputs and the statistics: the rest is computed again.
pub(crate) fn record<O, B, const N: usize>(path: Path, inputs: O::On<Autodiff<B>>) -> FloatTensor<Autodiff<B>>
where
    O: Kernels<B> + Operator<Needs = [bool; N]>,
    B: DropoutOps,
{
    let operands = O::operands::<Autodiff<B>>(&inputs);
    let nodes: [NodeGuard; N] = std::array::from_fn(|i| match operands[i] {
        Some(operand) => operand.node(),
        // A constant stands for what is absent.
        None => Autodiff::<B>::from_inner(O::operand(&inputs).primitive().clone()).node(),
    });
    let inputs =
        O::map::<Autodiff<B>, B>(inputs, &mut |tensor| tensor.into_primitive(), &mut |tensor| tensor);
    step::<B, _, N>(nodes, |is_kept| {
        // Handles, no values: kernels that write in place see that the graph holds their memory too.
        let saved = is_kept.then(|| O::saved(&inputs));
        let (output, statistics) = O::compute(path, inputs);
        let backward = move |grad: FloatTensor<B>, needs: [bool; N]| {
            let inputs = saved.expect("the graph keeps the step");
            // Wherever it is called, and whatever holds there.
            outside(|| O::compute_backward(path, inputs, Upstream { statistics, grad, needs }))
        };
        (output, backward)
    })
}

/// The output of `forward` as a step of autodiff's graph. `forward`, which is told whether the graph keeps the step, returns
/// the backward too: from the output's gradient, and which parents need one, to theirs.
pub(crate) fn step<B, F, const N: usize>(
    nodes: [NodeGuard; N],
    forward: impl FnOnce(bool) -> (FloatTensor<B>, F),
) -> FloatTensor<Autodiff<B>>
where
    B: Backend,
    F: FnOnce(FloatTensor<B>, [bool; N]) -> Gradients<B> + Clone + Send + 'static,
{
    let step = Backward::<B, N>::prepare::<NoCheckpointing>(Step::<State<F>>(PhantomData), nodes);
    // Under gradient checkpointing Burn saves the output of what is compute-bound, and computes the rest again. So of such
    // a step the strategy changes nothing.
    match step.compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let (output, backward) = forward(true);
            prep.finish(State(backward), output)
        }
        // No gradient will be asked for: nothing is kept.
        OpsKind::UnTracked(prep) => prep.finish(forward(false).0),
    }
}

#[derive(Debug)]
// Burn allows a step no state: that is the graph's.
struct Step<S>(PhantomData<S>);

/// A step's backward, with what it saves.
#[derive(Clone)]
struct State<F>(F);

impl<F> Debug for State<F> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str("State")
    }
}

impl<B, F, const N: usize> Backward<B, N> for Step<State<F>>
where
    B: Backend,
    F: FnOnce(FloatTensor<B>, [bool; N]) -> Gradients<B> + Clone + Send + 'static,
{
    type State = State<F>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut grads::Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let gradients = (ops.state.0)(grad, parents.map(|parent| parent.is_some()));
        for (parent, gradient) in parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent, gradient);
            }
        }
    }
}
