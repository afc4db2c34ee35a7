//! The squares of many tensors, added up.

use crate::numerics::sums::wide;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensor};
use burn::prelude::*;

/// Σ x² over all values of all `tensors`, outside autodiff: numbers that add up to it, each `[1]`, in the dtype in which the
/// tensor is computed.
///
/// On a CubeCL device many tensors are read by one launch, and each dtype gives one number.
pub fn sums_of_squares(tensors: Vec<DispatchTensor>) -> Vec<Tensor<1>> {
    let mut sums = Vec::new();
    #[cfg(feature = "_cubecl")]
    let tensors = on_cube(tensors, &mut sums);
    sums.extend(tensors.into_iter().map(sum_of_squares::<Dispatch>));
    sums.into_iter().map(Tensor::from_dispatch).collect()
}

fn sum_of_squares<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let tensor = wide::<B>(tensor);
    B::float_sum(B::float_mul(tensor.clone(), tensor))
}

/// Adds the sums of those tensors that the kernel takes, and returns the others.
#[cfg(feature = "_cubecl")]
fn on_cube(tensors: Vec<DispatchTensor>, sums: &mut Vec<DispatchTensor>) -> Vec<DispatchTensor> {
    use crate::cube::launch::is_computed;
    use crate::engine::run::Path;
    use burn::backend::{BackendTensor, Cube, DispatchKindConversion, DispatchTensorKind, TensorMetadata};
    let takes = |tensor: &DispatchTensor| {
        Path::current() == Path::Fused
            && matches!(tensor.kind, DispatchTensorKind::Cube(_))
            && is_computed(tensor.dtype())
    };
    let (ours, others): (Vec<_>, Vec<_>) = tensors.into_iter().partition(takes);
    let mut ours: Vec<_> =
        ours.into_iter().map(|tensor| crate::engine::run::plain::<Cube>(tensor).float()).collect();
    while let Some(first) = ours.first() {
        let kind = (first.device(), first.dtype());
        let (alike, rest) = ours.into_iter().partition(|other| (other.device(), other.dtype()) == kind);
        ours = rest;
        let sum = crate::engine::deferred::sum_of_squares(alike);
        sums.push(DispatchTensor::from_backend(BackendTensor::<Cube>::Float(sum)));
    }
    others
}
