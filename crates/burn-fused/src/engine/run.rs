//! An operator on the device that its tensors are on, and the choice between its kernels and its reference.

use crate::engine::call::Path;
use crate::engine::call::outside;
use crate::engine::operator::{Kernels, Operator, record};
use burn::backend::autodiff::Autodiff;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor,
    GradientCheckpointingStrategy,
};
use burn::tensor::Tensor;
use std::cell::Cell;

/// `$on`, in which `$backend` is the backend of a tensor of `$kind`, whatever autodiff there is, or `$elsewhere` on a device
/// that another crate compiles in.
macro_rules! on_backend {
    ($kind:expr, $backend:ident => $on:expr, $elsewhere:expr) => {
        // Under autodiff, the device's kind is inside.
        match match $kind {
            burn::backend::DispatchTensorKind::Autodiff(inner) => inner,
            kind => kind,
        } {
            #[cfg(feature = "flex")]
            burn::backend::DispatchTensorKind::Flex(_) => {
                type $backend = burn::backend::Flex;
                $on
            }
            #[cfg(feature = "ndarray")]
            burn::backend::DispatchTensorKind::NdArray(_) => {
                #[allow(deprecated)]
                type $backend = burn::backend::NdArray;
                $on
            }
            #[cfg(feature = "_cubecl")]
            burn::backend::DispatchTensorKind::Cube(_) => {
                type $backend = burn::backend::Cube;
                $on
            }
            #[allow(unreachable_patterns)] // reachable with devices that another crate compiles in
            _ => $elsewhere,
        }
    };
}
pub(crate) use on_backend;

/// The output of operator `O`: the kernels' on the devices listed here, elsewhere the reference's, which Burn's own
/// autodiff differentiates.
pub(crate) fn run<O, const N: usize>(inputs: O::On<Dispatch>) -> DispatchTensor
where
    O: OnFlex + OnCube + Operator<Needs = [bool; N]>,
{
    let context = Cell::new(DispatchAutodiffContext::Disabled);
    let merge = |tensor: DispatchTensor| {
        // One tensor under autodiff puts the operator there.
        context.set(context.get().merge(tensor.autodiff));
        tensor
    };
    let inputs =
        O::map::<Dispatch, Dispatch>(inputs, &mut |tensor| merge(tensor), &mut |tensor| merge(tensor));
    let path = Path::current();
    outside(|| {
        on_backend!(&O::operand::<Dispatch>(&inputs).kind, B => match context.get() {
            DispatchAutodiffContext::Disabled => {
                let inputs =
                    O::map::<Dispatch, B>(inputs, &mut |tensor| plain::<B>(tensor).float(), &mut int::<B>);
                let (output, _) = <O as Kernels<B>>::compute(path, inputs);
                DispatchTensor::from_backend(BackendTensor::<B>::Float(output))
            }
            autodiff => {
                let inputs = O::map::<Dispatch, Autodiff<B>>(inputs, &mut follow::<B>, &mut int::<B>);
                let output = BackendTensor::<Autodiff<B>>::Float(record::<O, B, N>(path, inputs));
                DispatchTensor { autodiff, ..DispatchTensor::from_backend(output) }
            }
        }, O::reference::<Dispatch>(inputs).0)
    })
}

/// A float on autodiff over `B`, whatever the checkpointing; one from outside is a constant there.
pub(crate) fn follow<B: Backend>(tensor: DispatchTensor) -> FloatTensor<Autodiff<B>>
where
    DispatchTensor: DispatchKindConversion<Autodiff<B>>,
{
    let tensor = Tensor::<1>::from_dispatch(tensor).autodiff().into_dispatch();
    // The graph's tensors are the same under every strategy, which is a mark on the dispatched one.
    let autodiff = DispatchAutodiffContext::Enabled(GradientCheckpointingStrategy::Disabled);
    plain::<Autodiff<B>>(DispatchTensor { autodiff, ..tensor }).float()
}

/// The tensor on the backend that it is on.
pub(crate) fn plain<B: Backend>(tensor: DispatchTensor) -> BackendTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    DispatchTensor::try_into_backend(tensor).unwrap_or_else(|error| panic!("tensors on two devices: {error}"))
}

fn int<B: Backend>(tensor: DispatchTensor) -> IntTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    // Integers have no graph: they come from the inner backend.
    plain(DispatchTensor { autodiff: DispatchAutodiffContext::Disabled, ..tensor }).int()
}

/// Has what Flex runs, in builds with Flex.
#[cfg(feature = "flex")]
pub(crate) trait OnFlex: Kernels<burn::backend::Flex> {}
#[cfg(feature = "flex")]
impl<O: Kernels<burn::backend::Flex>> OnFlex for O {}
#[cfg(not(feature = "flex"))]
pub(crate) use crate::engine::operator::Operator as OnFlex;

/// Has what the CubeCL devices run, in builds with any.
#[cfg(feature = "_cubecl")]
pub(crate) trait OnCube: Kernels<burn_cubecl::CubeBackend> {}
#[cfg(feature = "_cubecl")]
impl<O: Kernels<burn_cubecl::CubeBackend>> OnCube for O {}
#[cfg(not(feature = "_cubecl"))]
pub(crate) use crate::engine::operator::Operator as OnCube;
