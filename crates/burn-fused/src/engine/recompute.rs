//! A part of a model that the backward computes again, instead of keeping what its operators save.

use crate::engine::call::Path;
use crate::engine::call::Precision;
use crate::engine::call::outside;
use crate::engine::operator::{Gradients, step};
use crate::engine::run::{follow, on_backend, plain};
use crate::error::Error;
use crate::numerics::dropout::{recorded, replayed};
use crate::numerics::precision::autocast;
use burn::backend::autodiff::Autodiff;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Backend, BackendTensor, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor,
    GradientCheckpointingStrategy, TensorMetadata,
};
use burn::module::{ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::DType;
use std::fmt::Debug;

/// The most operands of a part, `x` and its parameters: as many as 250 layers of BERT have, since a whole model can be a part.
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
/// On a device with gradient checkpointing, where [`recomputed_anywhere`] returns an error of its own.
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
/// The backward computes the part again, with the same dropout masks, precision and path. Gradients equal those of a graph that
/// saves everything, up to the order of sums. Parts may contain parts. On devices without kernels this is an ordinary call.
///
/// Gradients go to `x` and to the module's parameters. Another tensor that has one travels in the module as a parameter, as in
/// `(module, Param::initialized(ParamId::new(), tensor))`; `context` is for what has none.
///
/// # Errors
///
/// Those of `compute`; under autodiff [`Error::TooManyParameters`] for a module of 4,096 parameters or more, and
/// [`Error::HiddenOperand`] if `compute` reads a tensor that needs a gradient and is neither `x` nor a parameter of the module.
///
/// # Panics
///
/// The backward panics if `compute` drops out other values than in the forward.
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
    let mut detach = Detach(vec![x.clone().into_dispatch()]);
    let detached = module.clone().map(&mut detach);
    let operands = detach.0;
    let contexts: Vec<_> = operands.iter().map(|operand| operand.autodiff).collect();
    let (again, path, precision) = (context.clone(), Path::current(), Precision::current());
    let run = move |x: Tensor<2>, needs: &[bool]| -> Result<_, E> {
        // Leaves are new in each run: gradients of a graph that ended here would be lost.
        let mut attach = Attach { contexts: &contexts, needs, leaves: Vec::new() };
        let x = attach.leaf(x);
        // Parameters are visited in the order in which `Detach` took them.
        let module = detached.clone().map(&mut attach);
        let y = autocast(precision, || path.take(|| compute(&module, x, &again)))?;
        Ok((y, attach.leaves))
    };
    // The parents of a step in autodiff's graph are an array. Small ones keep layers cheap, of which a model has many: a layer of BERT
    // has 16 parameters, 28 with LoRA.
    on_backend!(&operands[0].kind, B => match operands.len() {
        0..=32 => record::<B, _, _, 32>(run, x.inner(), &operands),
        33..=512 => record::<B, _, _, 512>(run, x.inner(), &operands),
        513..=OPERANDS => record::<B, _, _, OPERANDS>(run, x.inner(), &operands),
        count => Err(Error::TooManyParameters { found: count - 1, most: OPERANDS - 1 }.into()),
    }, compute(module, x, context))
}

/// The output on autodiff over `B`; `operands` are `x` and the parameters. `run` computes it from x, and has a leaf of the graph
/// for each operand whose gradient is asked for.
fn record<B, F, E, const N: usize>(run: F, x: Tensor<2>, operands: &[DispatchTensor]) -> Result<Tensor<2>, E>
where
    B: Backend,
    F: Fn(Tensor<2>, &[bool]) -> Result<(Tensor<2>, Vec<Option<DispatchTensor>>), E> + Clone + Send + 'static,
    E: From<Error> + Debug + 'static,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    // A constant stands for a quantised weight, which has no gradient, and fills the array.
    let constant = follow::<B>(x.clone().into_dispatch());
    let nodes = std::array::from_fn(|i| match operands.get(i) {
        Some(operand) if !matches!(operand.dtype(), DType::QFloat(_)) => follow::<B>(operand.clone()).node(),
        _ => constant.node(),
    });
    // No gradient is asked for yet: the graph of this forward ends here.
    let (first, seeds) = recorded(|| run(x.clone(), &[false; N]));
    let (first, _) = first?;
    if first.is_tracked() {
        return Err(Error::HiddenOperand.into());
    }
    let y = plain::<B>(first.inner().into_dispatch()).float();
    let context = operands[0].autodiff;
    let again = move |grad: FloatTensor<B>, needs: [bool; N]| -> Gradients<B> {
        let (y, leaves) = replayed(seeds, || run(x, &needs)).expect("the forward had no error");
        // The gradient of this sum by y is `grad`, which Burn's backward cannot be given.
        let mut found = (y * under(Tensor::from_primitive::<B>(grad), context)).sum().backward();
        let gradient = |leaf: Option<DispatchTensor>| {
            let gradient = Tensor::<1>::from_dispatch(leaf?).grad_remove(&mut found)?;
            Some(plain::<B>(gradient.into_dispatch()).float())
        };
        leaves.into_iter().map(gradient).collect()
    };
    let backward = |grad, needs| outside(|| again(grad, needs));
    let output = step::<B, _, N>(nodes, |_| (y, backward));
    let output = DispatchTensor::from_backend(BackendTensor::<Autodiff<B>>::Float(output));
    Ok(Tensor::from_dispatch(DispatchTensor { autodiff: context, ..output }))
}

/// A constant under autodiff with the checkpointing of `context`, if that is under autodiff: Burn mixes tensors of one checkpointing
/// alone.
fn under<const D: usize>(tensor: Tensor<D>, context: DispatchAutodiffContext) -> Tensor<D> {
    match context {
        DispatchAutodiffContext::Disabled => tensor,
        autodiff => {
            let tensor = tensor.autodiff().into_dispatch();
            Tensor::from_dispatch(DispatchTensor { autodiff, ..tensor })
        }
    }
}

/// Takes parameters out of autodiff, and keeps them as they were.
struct Detach(Vec<DispatchTensor>);

impl ModuleMapper for Detach {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            self.0.push(tensor.clone().into_dispatch());
            tensor.inner()
        })
    }
}

/// Puts parameters under autodiff as they were.
struct Attach<'a> {
    contexts: &'a [DispatchAutodiffContext],
    /// Whether each of them needs a gradient.
    needs: &'a [bool],
    /// x and the parameters, where they need a gradient.
    leaves: Vec<Option<DispatchTensor>>,
}

impl Attach<'_> {
    fn leaf<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let index = self.leaves.len();
        let tensor = under(tensor, self.contexts[index]);
        let tensor = if self.needs[index] { tensor.require_grad() } else { tensor };
        self.leaves.push(self.needs[index].then(|| tensor.clone().into_dispatch()));
        tensor
    }
}

impl ModuleMapper for Attach<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| self.leaf(tensor))
    }
}
