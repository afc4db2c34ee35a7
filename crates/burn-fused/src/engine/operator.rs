//! What an operator is: its inputs, declared once, its reference, the choice between that and kernels, and its step in
//! autodiff's graph.

use crate::engine::call::{outside, with_current, within};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::precision::computed_in;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn::backend::autodiff::grads;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{AutodiffBackend, Backend, TensorMetadata};
use burn::tensor::{DType, Shape};
use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

/// What autodiff's graph and fusion's queue can hold.
pub(crate) trait Held: Clone + Debug + Send + Sync + 'static {}

impl<T: Clone + Debug + Send + Sync + 'static> Held for T {}

/// What stands for the tensors in an operator's inputs: a backend's, or what describes them.
pub(crate) trait Tensors: Held {
    type Float: Held;
    type Int: Held;
}

impl<B: Backend> Tensors for B {
    type Float = FloatTensor<B>;
    type Int = IntTensor<B>;
}

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

    /// Of statistics of results in `dtype`.
    pub(crate) fn statistic<const D: usize>(shape: [usize; D], dtype: DType) -> Self {
        Self { shape: Shape::new(shape), dtype: computed_in(dtype) }
    }
}

/// The fields of an operator's inputs, as [`inputs`] declares them.
pub(crate) trait Fields: Held {
    type On<T: Tensors>: Held;

    /// Which operands' gradients are needed: `[bool; N]` for N operands.
    type Needs: Held + IntoIterator<Item = bool>;

    /// What the backward needs besides the inputs: an array.
    type Statistics<X: Held>: Held + IntoIterator<Item = X> + TryFrom<Vec<X>>;

    /// The same inputs with other tensors. Tensors are mapped in the order of the declaration.
    fn map<T: Tensors, U: Tensors>(
        inputs: Self::On<T>,
        float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Self::On<U>;

    /// What can need a gradient, in order; `None` for what is absent.
    fn operands<T: Tensors>(inputs: &Self::On<T>) -> Vec<Option<&T::Float>>;

    /// One of them, which is on the device of all.
    fn operand<T: Tensors>(inputs: &Self::On<T>) -> &T::Float {
        Self::operands::<T>(inputs).into_iter().flatten().next().expect("an operand")
    }
}

/// Declares an operator, with its numbers of operands and statistics, and the struct of its inputs, generic over their
/// [`Tensors`].
///
/// - `nested`: types of their own such as [`Dropout`](crate::numerics::dropout::Dropout), with the methods `map`
///   and `operands`;
/// - `floats`: float tensors that can need a gradient; `optional`: those that can be absent;
/// - `constants`: float tensors without a gradient, of any dtype;
/// - `ints`: int tensors;
/// - `plain`: fields without tensors.
///
/// Operands are numbered in this order.
macro_rules! inputs {
    (
        $(#[$doc:meta])*
        $name:ident of $operator:ident, operands: $operands:literal, statistics: $statistics:literal {
            $(nested { $($(#[$nested_doc:meta])* $nested:ident: $of:ident,)* })?
            $(floats { $($(#[$float_doc:meta])* $float:ident,)* })?
            $(optional { $($(#[$optional_doc:meta])* $optional:ident,)* })?
            $(constants { $($(#[$constant_doc:meta])* $constant:ident,)* })?
            $(ints { $($(#[$int_doc:meta])* $int:ident,)* })?
            $(plain { $($(#[$plain_doc:meta])* $plain:ident: $type:ty,)* })?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name<T: $crate::engine::operator::Tensors> {
            $($($(#[$nested_doc])* pub(crate) $nested: $of<T>,)*)?
            $($($(#[$float_doc])* pub(crate) $float: T::Float,)*)?
            $($($(#[$optional_doc])* pub(crate) $optional: Option<T::Float>,)*)?
            $($($(#[$constant_doc])* pub(crate) $constant: T::Float,)*)?
            $($($(#[$int_doc])* pub(crate) $int: T::Int,)*)?
            $($($(#[$plain_doc])* pub(crate) $plain: $type,)*)?
        }

        #[doc = concat!("The operator of [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $operator;

        #[allow(unused_variables)] // operators without ints or nested inputs
        impl $crate::engine::operator::Fields for $operator {
            type On<T: $crate::engine::operator::Tensors> = $name<T>;
            type Needs = [bool; $operands];
            type Statistics<X: $crate::engine::operator::Held> = [X; $statistics];

            fn map<T: $crate::engine::operator::Tensors, U: $crate::engine::operator::Tensors>(
                inputs: $name<T>,
                float: &mut impl FnMut(T::Float) -> U::Float,
                int: &mut impl FnMut(T::Int) -> U::Int,
            ) -> $name<U> {
                $name {
                    $($($nested: inputs.$nested.map(float, int),)*)?
                    $($($float: float(inputs.$float),)*)?
                    $($($optional: inputs.$optional.map(&mut *float),)*)?
                    $($($constant: float(inputs.$constant),)*)?
                    $($($int: int(inputs.$int),)*)?
                    $($($plain: inputs.$plain,)*)?
                }
            }

            fn operands<T: $crate::engine::operator::Tensors>(inputs: &$name<T>) -> Vec<Option<&T::Float>> {
                let mut operands = Vec::new();
                $($(operands.extend(inputs.$nested.operands());)*)?
                $($(operands.extend([Some(&inputs.$float)]);)*)?
                $($(operands.extend([inputs.$optional.as_ref()]);)*)?
                operands
            }
        }
    };
}
pub(crate) use inputs;

/// An operator with a backward of its own: its reference, made of Burn's operations, which kernels must equal.
pub(crate) trait Operator: Fields {
    /// Of the output, then of the statistics: of an output like the first operand, unless an operator says otherwise.
    #[cfg_attr(not(feature = "_cubecl"), allow(dead_code))]
    fn specs<B: Backend>(inputs: &Self::On<B>) -> Vec<Spec> {
        vec![Spec::of(Self::operand::<B>(inputs))]
    }

    fn reference<B: DropoutOps>(inputs: Self::On<B>) -> Output<Self, B>;

    fn reference_backward<B: DropoutOps>(inputs: Self::On<B>, upstream: Upstream<Self, B>) -> Gradients<B>;
}

/// The output of operator `O` on backend `B`, and its statistics.
pub(crate) type Output<O, B> = (FloatTensor<B>, <O as Fields>::Statistics<FloatTensor<B>>);

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

/// What computes the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Path {
    /// The backend's kernels, where it has them for the input.
    #[default]
    Fused,
    /// The reference, made of Burn's own operations.
    Reference,
}

/// Runs `f` with the reference instead of every kernel, on this thread.
///
/// Use it to compare a kernel with the reference, which is made of Burn's own operations. The backward of what runs in `f`
/// is the reference's, too. For ids in range, results equal the kernels' up to rounding; a seed gives the same dropout mask.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{bias_gelu, on_reference_path};
///
/// let device = Device::default();
/// let x = Tensor::from_floats([[0.5, -1.0]], &device);
/// let forward = || bias_gelu(x.clone(), Tensor::zeros([2], &device));
/// let reference = on_reference_path(forward);
/// assert!(forward().all_close(reference, Some(1e-5), Some(1e-5)));
/// ```
pub fn on_reference_path<T>(f: impl FnOnce() -> T) -> T {
    Path::Reference.take(f)
}

impl Path {
    /// Runs `f` with this as the choice, on this thread.
    pub(crate) fn take<T>(self, f: impl FnOnce() -> T) -> T {
        within(|call| &mut call.path, self, f).0
    }

    /// What computes an operator that is called now, on this thread.
    pub(crate) fn current() -> Self {
        with_current(|call| call.path)
    }
}
