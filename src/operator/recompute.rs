//! A part of a model that the backward computes again, instead of keeping what its operators keep.

use super::dropout::{Seed, recorded, replayed};
use super::inputs::Held;
use super::path::Path;
use super::precision::Rounding;
use super::run::{follow, on_backend, plain};
use crate::error::Result;
use burn::backend::autodiff::{
    Autodiff,
    checkpoint::{
        base::Checkpointer,
        strategy::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing},
    },
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind},
};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    AutodiffBackend, Backend, BackendTensor, DispatchKindConversion, DispatchTensor, DispatchTensorKind,
    GradientCheckpointingStrategy,
};
use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::DType;
use std::marker::PhantomData;

/// What a part computes from its module, `x` and what else it takes.
type Compute<M, C> = fn(&M, Tensor<2>, &C) -> Result<Tensor<2>>;

/// `compute(module, x, context)`; if `x` is on a device with gradient checkpointing, [as one step](recomputed_anywhere) of
/// the graph. A module of 32 parameters or more, those of adapters among them, is not computed again.
pub(crate) fn recomputed<M, C>(
    module: &M,
    x: Tensor<2>,
    context: &C,
    compute: Compute<M, C>,
) -> Result<Tensor<2>>
where
    M: Module + 'static,
    C: Held,
{
    match x.gradient_checkpointing_strategy() {
        Some(GradientCheckpointingStrategy::Balanced) => {
            recomputed_anywhere::<M, C, 32>(module, x, context, compute)
        }
        _ => compute(module, x, context),
    }
}

/// `compute(module, x, context)`; if `x` is under autodiff, as one step of the graph, which keeps `x` and the module's
/// parameters alone.
///
/// The backward computes the part again, with the same masks, and its gradients from there: those of a graph that keeps all, up to
/// the order of their sums, which is the same in BERT's layers, bit for bit. A module of `OPERANDS` parameters or more is not computed again. Parts are not nested: within one, layers are kept
/// until its backward ends.
pub(crate) fn recomputed_anywhere<M, C, const OPERANDS: usize>(
    module: &M,
    x: Tensor<2>,
    context: &C,
    compute: Compute<M, C>,
) -> Result<Tensor<2>>
where
    M: Module + 'static,
    C: Held,
{
    let Some(strategy) = x.gradient_checkpointing_strategy() else { return compute(module, x, context) };
    let mut detach = Detach { operands: vec![Some(x.clone().into_dispatch())], followed: vec![true] };
    let detached = module.clone().map(&mut detach);
    let Detach { operands, followed } = detach;
    if operands.len() > OPERANDS {
        return compute(module, x, context);
    }
    let part = Part {
        module: detached,
        followed,
        context: context.clone(),
        compute,
        path: Path::current(),
        rounding: Rounding::current(),
        seeds: Vec::new(),
    };
    let operand = operands[0].as_ref().expect("x");
    let kind = match &operand.kind {
        DispatchTensorKind::Autodiff(inner) => inner,
        kind => kind,
    };
    on_backend!(kind, B => match strategy {
        GradientCheckpointingStrategy::Disabled => record::<B, NoCheckpointing, M, C, OPERANDS>(part, operands),
        GradientCheckpointingStrategy::Balanced => record::<B, BalancedCheckpointing, M, C, OPERANDS>(part, operands),
    }, compute(module, x, context))
}

/// What is computed again.
#[derive(Clone, Debug)]
struct Part<M, C> {
    /// Outside autodiff.
    module: M,
    /// Whether `x` and each parameter were under autodiff.
    followed: Vec<bool>,
    context: C,
    compute: Compute<M, C>,
    path: Path,
    rounding: Option<Rounding>,
    /// Those that the operators got.
    seeds: Vec<Seed>,
}

impl<M: Module, C> Part<M, C> {
    /// The output for `x`, and what has a gradient: of `x` and of the parameters those that `needs` asks for.
    fn run(&self, x: Tensor<2>, needs: &[bool]) -> Result<(Tensor<2>, Vec<Option<Leaf>>)> {
        let mut attach = Attach { followed: &self.followed, needs, leaves: Vec::new() };
        let x = attach.leaf(x);
        let module = self.module.clone().map(&mut attach);
        let compute = || self.path.take(|| (self.compute)(&module, x, &self.context));
        Ok((Rounding::take(self.rounding, compute)?, attach.leaves))
    }
}

/// The step in the graph.
#[derive(Debug)]
struct Step<M, C>(PhantomData<fn(M, C)>);

/// The output on autodiff over `B`; `operands` are `x` and the parameters.
fn record<B, S, M, C, const OPERANDS: usize>(
    mut part: Part<M, C>,
    operands: Vec<Option<DispatchTensor>>,
) -> Result<Tensor<2>>
where
    B: Backend,
    S: CheckpointStrategy,
    M: Module + 'static,
    C: Held,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B, S>>,
{
    let follow = follow::<B, S>;
    let mut operands = operands.into_iter();
    let x = follow(operands.next().flatten().expect("x"));
    // A constant stands for what is absent.
    let constant = Autodiff::<B, S>::from_inner(x.primitive().clone());
    let mut nodes = vec![x.node()];
    nodes.extend(
        operands.map(|operand| operand.map_or_else(|| constant.node(), |tensor| follow(tensor).node())),
    );
    let mut nodes = nodes.into_iter();
    let nodes: [NodeGuard; OPERANDS] =
        std::array::from_fn(|_| nodes.next().unwrap_or_else(|| constant.node()));
    let x = x.into_primitive();
    let (run, seeds) = recorded(|| part.run(tensor::<B>(x.clone()), &[false; OPERANDS]));
    let (y, _) = run?;
    part.seeds = seeds;
    let y = plain::<B>(y.inner().into_dispatch()).float();
    let step = Backward::<B, OPERANDS>::prepare::<S>(Step::<M, C>(PhantomData), nodes).compute_bound();
    let output = match step.stateful() {
        OpsKind::Tracked(prep) => prep.finish((part, x), y),
        OpsKind::UnTracked(prep) => prep.finish(y),
    };
    let output = BackendTensor::<Autodiff<B, S>>::Float(output);
    Ok(Tensor::from_dispatch(DispatchTensor::from_backend(output)))
}

impl<B, M, C, const OPERANDS: usize> Backward<B, OPERANDS> for Step<M, C>
where
    B: Backend,
    M: Module + 'static,
    C: Held,
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = (Part<M, C>, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, OPERANDS>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (part, x) = ops.state;
        let grad = tensor::<B>(grads.consume::<B>(&ops.node));
        let parents = ops.parents.map(|parent| parent.map(|parent| parent.id));
        let needs = parents.map(|parent| parent.is_some());
        let run = replayed(part.seeds.clone(), || part.run(tensor::<B>(x), &needs));
        let (y, leaves) = run.expect("the forward had no error");
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
            let is_quantized = matches!(tensor.dtype(), DType::QFloat(_));
            self.operands.push((!is_quantized).then(|| tensor.clone().into_dispatch()));
            self.followed.push(tensor.is_autodiff());
            tensor.inner()
        })
    }
}

/// Gives the gradient of what it was made from.
type Leaf = Box<dyn FnOnce(&mut burn::tensor::Gradients) -> Option<DispatchTensor>>;

/// Puts parameters under autodiff that were.
struct Attach<'a> {
    followed: &'a [bool],
    /// Which have a gradient.
    needs: &'a [bool],
    leaves: Vec<Option<Leaf>>,
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
