//! A part of a model that the backward computes again, instead of keeping what its operators save.

use crate::engine::operator::Path;
use crate::engine::run::{follow, on_backend, plain};
use crate::error::Error;
use crate::numerics::dropout::{Seed, recorded, replayed};
use crate::numerics::precision::{Precision, autocast};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    AutodiffBackend, Backend, BackendTensor, DispatchKindConversion, DispatchTensor,
    GradientCheckpointingStrategy,
};
use burn::module::{ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::DType;
use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

/// Operands of a part, at most: `x` and its parameters.
const OPERANDS: usize = 4096;

/// `compute(module, x, context)`; if `x` is on a device with gradient checkpointing, [as one step](recomputed_anywhere) of
/// the graph.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::prelude::*;
/// use burn_fused::recomputed;
///
/// let device = Device::default().autodiff().gradient_checkpointing();
/// let linear = LinearConfig::new(3, 3).init(&device);
/// let layer = |linear: &Linear, x: Tensor<2>, scale: &f64| linear.forward(x).mul_scalar(*scale).tanh();
/// let y = recomputed(&linear, Tensor::ones([2, 3], &device), &0.5, layer);
/// let gradients = y.sum().backward(); // computes the layer again
/// assert!(linear.weight.val().grad(&gradients).is_some());
/// ```
///
/// # Panics
///
/// On a device with gradient checkpointing, if the module has 4,096 parameters or more.
pub fn recomputed<M, C>(
    module: &M,
    x: Tensor<2>,
    context: &C,
    compute: fn(&M, Tensor<2>, &C) -> Tensor<2>,
) -> Tensor<2>
where
    M: Module + 'static,
    C: Clone + Debug + Send + Sync + 'static,
{
    match x.gradient_checkpointing_strategy() {
        Some(GradientCheckpointingStrategy::Balanced) => {
            let with_compute = (context.clone(), compute);
            recomputed_anywhere(module, x, &with_compute, |module, x, (context, compute)| {
                Ok::<_, Error>(compute(module, x, context))
            })
            .unwrap_or_else(|error| panic!("{error}"))
        }
        _ => compute(module, x, context),
    }
}

/// [`recomputed`] whether the device has gradient checkpointing or not: if `x` is under autodiff, `compute` is one step of the
/// graph, which saves only `x` and the module's parameters for backward.
///
/// The backward computes the part again, with the same dropout masks. Gradients equal those of a graph that saves
/// everything, up to the order of sums. Parts are not nested: within one, layers are saved until its backward ends.
/// On devices without kernels this is an ordinary call.
///
/// # Errors
///
/// Those of `compute`, and [`Error::TooManyParameters`] under autodiff for a module of 4,096 parameters or more.
pub fn recomputed_anywhere<M, C, E>(
    module: &M,
    x: Tensor<2>,
    context: &C,
    compute: fn(&M, Tensor<2>, &C) -> Result<Tensor<2>, E>,
) -> Result<Tensor<2>, E>
where
    M: Module + 'static,
    C: Clone + Debug + Send + Sync + 'static,
    E: From<Error> + Debug + 'static,
{
    // Outside autodiff nothing is saved.
    if x.gradient_checkpointing_strategy().is_none() {
        return compute(module, x, context);
    }
    let mut detach = Detach { operands: vec![Some(x.clone().into_dispatch())], followed: vec![true] };
    let detached = module.clone().map(&mut detach);
    let Detach { operands, followed } = detach;
    let (again, path, precision) = (context.clone(), Path::current(), Precision::current());
    let part = Part(move |x, needs: &[bool]| -> Result<_, E> {
        // Leaves are new in each run: gradients of a graph that ended here would be lost.
        let mut attach = Attach { followed: &followed, needs, leaves: Vec::new() };
        let x = attach.leaf(x);
        // Parameters are visited in the order in which `Detach` took them.
        let module = detached.clone().map(&mut attach);
        let y = autocast(precision, || path.take(|| compute(&module, x, &again)))?;
        Ok((y, attach.leaves))
    });
    let kind = &operands[0].as_ref().expect("x").kind;
    // The parents of a step in autodiff's graph are an array. Small ones keep layers cheap, of which a model has many.
    on_backend!(kind, B => match operands.len() {
        0..=32 => record::<B, _, _, 32>(part, operands),
        33..=512 => record::<B, _, _, 512>(part, operands),
        513..=OPERANDS => record::<B, _, _, OPERANDS>(part, operands),
        count => Err(Error::TooManyParameters { found: count - 1, most: OPERANDS - 1 }.into()),
    }, compute(module, x, context))
}

/// What is computed again: from `x`, which is outside autodiff, the output, and what has a gradient: of `x` and of the
/// parameters those that are asked for.
#[derive(Clone)]
struct Part<F>(F);

impl<F> Debug for Part<F> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str("Part")
    }
}

trait Run<E>: Fn(Tensor<2>, &[bool]) -> Result<(Tensor<2>, Leaves), E> + Clone + Send + 'static {}
impl<E, F: Fn(Tensor<2>, &[bool]) -> Result<(Tensor<2>, Leaves), E> + Clone + Send + 'static> Run<E> for F {}

/// The output on autodiff over `B`; `operands` are `x` and the parameters.
fn record<B, F, E, const N: usize>(
    part: Part<F>,
    operands: Vec<Option<DispatchTensor>>,
) -> Result<Tensor<2>, E>
where
    B: Backend,
    F: Run<E>,
    E: Debug + 'static,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    let mut operands = operands.into_iter();
    let x = operands.next().flatten().expect("x");
    let (autodiff, x) = (x.autodiff, follow::<B>(x));
    let mut operands = operands.map(|operand| operand.map(follow::<B>));
    // A constant stands for what is absent, and fills the array.
    let constant = Autodiff::<B>::from_inner(x.primitive().clone());
    let nodes: [NodeGuard; N] = std::array::from_fn(|i| match i {
        0 => x.node(),
        _ => operands.next().flatten().map_or_else(|| constant.node(), |operand| operand.node()),
    });
    let x = x.into_primitive();
    // No gradient is asked for yet: the graph of this forward ends here.
    let (run, seeds) = recorded(|| (part.0)(tensor::<B>(x.clone()), &[false; N]));
    let y = plain::<B>(run?.0.inner().into_dispatch()).float();
    let step = Step::<Part<F>, E>(PhantomData).prepare::<NoCheckpointing>(nodes);
    // Burn saves its output: the part is computed again by its own backward alone.
    let output = match step.compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((part, seeds, x), y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    };
    let output = DispatchTensor::from_backend(BackendTensor::<Autodiff<B>>::Float(output));
    Ok(Tensor::from_dispatch(DispatchTensor { autodiff, ..output }))
}

#[derive(Debug)]
// Burn allows a step no state: that is the graph's.
struct Step<P, E>(PhantomData<fn(P) -> E>);

impl<B, F, E, const N: usize> Backward<B, N> for Step<Part<F>, E>
where
    B: Backend,
    F: Run<E>,
    E: Debug + 'static,
    DispatchTensor: DispatchKindConversion<B>,
{
    /// The part, the seeds that its operators got, and x.
    type State = (Part<F>, Vec<Seed>, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (part, seeds, x) = ops.state;
        let grad = tensor::<B>(grads.consume::<B>(&ops.node));
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        let (y, leaves) =
            replayed(seeds, || (part.0)(tensor::<B>(x), &needs)).expect("the forward had no error");
        // The gradient of this sum by y is `grad`, which Burn's backward cannot be given.
        let mut found = (y * grad.autodiff()).sum().backward();
        for (parent, leaf) in parents.into_iter().zip(leaves) {
            if let (Some(parent), Some(leaf)) = (parent, leaf)
                && let Some(gradient) = leaf(&mut found)
            {
                grads.register::<B>(parent, plain::<B>(gradient).float());
            }
        }
    }
}

/// A tensor outside autodiff.
fn tensor<B: Backend>(tensor: FloatTensor<B>) -> Tensor<2>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    Tensor::from_dispatch(DispatchTensor::from_backend(BackendTensor::<B>::Float(tensor)))
}

/// Takes parameters out of autodiff.
struct Detach {
    /// What was taken out; `None` for a quantised weight, which has no gradient.
    operands: Vec<Option<DispatchTensor>>,
    followed: Vec<bool>,
}

impl ModuleMapper for Detach {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            // Autodiff has no node for a quantised weight.
            let is_quantized = matches!(tensor.dtype(), DType::QFloat(_));
            self.operands.push((!is_quantized).then(|| tensor.clone().into_dispatch()));
            self.followed.push(tensor.is_autodiff());
            tensor.inner()
        })
    }
}

/// For `x` and each parameter, where it is asked for, what takes its gradient out of the others.
type Leaves = Vec<Option<Box<dyn FnOnce(&mut burn::tensor::Gradients) -> Option<DispatchTensor>>>>;

/// Puts parameters under autodiff that were.
struct Attach<'a> {
    followed: &'a [bool],
    /// Which have a gradient.
    needs: &'a [bool],
    leaves: Leaves,
}

impl Attach<'_> {
    fn leaf<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let place = self.leaves.len();
        let tensor = if self.followed[place] { tensor.autodiff() } else { tensor };
        if !self.needs[place] {
            self.leaves.push(None);
            return tensor;
        }
        let leaf = tensor.require_grad();
        let tensor = leaf.clone();
        self.leaves
            .push(Some(Box::new(move |gradients| leaf.grad_remove(gradients).map(Tensor::into_dispatch))));
        tensor
    }
}

impl ModuleMapper for Attach<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| self.leaf(tensor))
    }
}
