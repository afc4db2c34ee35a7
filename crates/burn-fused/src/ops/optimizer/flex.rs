//! Flex, Burn's CPU backend: tensors in host memory are read, scaled and updated in place, on all threads.
//!
//! Memory that something else holds is copied once. Values are cut into pieces of a fixed size, so that results do not depend on
//! the number of threads.

use super::{AdamStep, HostSum};
use crate::engine::run::plain;
use crate::flex::{Rows, Scalar, Wide, for_each, simd_fn, slice, total_of_each, with_scalar};
use crate::numerics::precision::computed_in;
use burn::backend::{
    BackendTensor, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor, DispatchTensorKind, Flex,
    TensorMetadata,
};
use burn::prelude::*;
use burn::tensor::DType;

/// Values of a task.
const PIECE: usize = 16 * 1024;

/// Partial sums.
// In f64, two vectors of AVX-512: sums of this many do not wait for each other.
const LANES: usize = 16;

/// What [`is_on_host`] and [`takes`] make sure of.
const DTYPE: &str = "floats of the kernel's dtype";

/// Whether a tensor, outside autodiff, is floats in host memory.
pub(super) fn is_on_host(tensor: &DispatchTensor) -> bool {
    let is_flex = matches!(tensor.kind, DispatchTensorKind::Flex(_))
        && matches!(tensor.autodiff, DispatchAutodiffContext::Disabled);
    is_flex && with_scalar!(Some(tensor.dtype()), _Float => true, false)
}

fn dispatched(tensor: Rows) -> DispatchTensor {
    DispatchTensor::from_backend(BackendTensor::<Flex>::Float(tensor.output))
}

/// The sum over gradients that [are on the host](is_on_host), if there are any, and handles of the others.
pub(super) fn sums_of_squares(gradients: &[DispatchTensor]) -> (Option<HostSum>, Vec<DispatchTensor>) {
    let mut host: Option<HostSum> = None;
    let (own, elsewhere): (Vec<_>, Vec<_>) = gradients.iter().partition(|gradient| is_on_host(gradient));
    for gradient in own {
        let (sum, dtype, _) = host.get_or_insert((0.0, DType::F32, Device::flex()));
        *sum += sum_of_squares(gradient);
        if gradient.dtype() == DType::F64 {
            *dtype = DType::F64;
        }
    }
    (host, elsewhere.into_iter().cloned().collect())
}

fn sum_of_squares(tensor: &DispatchTensor) -> f64 {
    let tensor = plain::<Flex>(tensor.clone()).float().to_contiguous();
    let sum = with_scalar!(Some(tensor.dtype()), T => {
        let values = slice::<T>(&tensor);
        total_of_each(values.len(), values.chunks(PIECE), 1, |piece, sum: &mut [f64]| sum[0] += squares(piece))
    }, unreachable!("{DTYPE}"));
    sum[0]
}

simd_fn! {
    fn squares<S, T: Scalar>(simd, values: &'a [T]) -> f64 {
        // Blocks of a known length, which the compiler vectorises, and what is left of them.
        let (blocks, rest) = values.as_chunks::<LANES>();
        let mut lanes = [0.0; LANES];
        for block in blocks {
            for (lane, value) in lanes.iter_mut().zip(block) {
                let value = value.widen().to_f64();
                *lane += value * value;
            }
        }
        for (lane, value) in lanes.iter_mut().zip(rest) {
            let value = value.widen().to_f64();
            *lane += value * value;
        }
        lanes.into_iter().sum()
    }
}

/// A tensor that [is on the host](is_on_host) times `factor`.
pub(super) fn scaled(tensor: DispatchTensor, factor: f64) -> DispatchTensor {
    let (dtype, count) = (tensor.dtype(), tensor.shape().num_elements());
    let mut values = Rows::new(plain::<Flex>(tensor).float());
    with_scalar!(Some(dtype), T => {
        let factor = <T as Scalar>::Wide::from_f64(factor);
        for_each(count, values.tasks::<T>(PIECE), |piece| multiply(piece(), factor));
    }, unreachable!("{DTYPE}"));
    dispatched(values)
}

simd_fn! {
    fn multiply<S, T: Scalar>(simd, values: &'a mut [T], factor: T::Wide) {
        for value in values {
            *value = T::narrow(value.widen() * factor);
        }
    }
}

/// Whether [`adam`] here takes the values, the running means and the gradient of one parameter: all in host memory, and of the
/// dtypes that [`super::adam`] computes them in.
pub(super) fn takes(tensors: &[DispatchTensor; 4]) -> bool {
    let (dtype, wide) = (tensors[0].dtype(), computed_in(tensors[0].dtype()));
    let dtypes = [dtype, wide, wide, dtype];
    tensors.iter().zip(dtypes).all(|(tensor, dtype)| is_on_host(tensor) && tensor.dtype() == dtype)
}

/// [`super::adam`] of tensors that this module [`takes`].
///
/// The new values are in the gradient's memory: the old ones may be held by others, as Burn's `Learner` does, and need not be
/// copied for that.
pub(super) fn adam(step: AdamStep, tensors: [DispatchTensor; 4]) -> [DispatchTensor; 3] {
    let [values, mean, square, gradient] = tensors.map(|tensor| plain::<Flex>(tensor).float());
    // Only read: whoever else holds them keeps them.
    let values = values.to_contiguous();
    let [mut mean, mut square, mut gradient] = [mean, square, gradient].map(Rows::new);
    with_scalar!(Some(values.dtype()), T => {
        let w = slice::<T>(&values);
        let moments = mean.tasks(PIECE).zip(square.tasks(PIECE));
        let pieces = w.chunks(PIECE).zip(moments).zip(gradient.tasks(PIECE));
        for_each(w.len(), pieces, |((w, (m, v)), g)| adam_step::<T>(step, w, m(), v(), g()));
    }, unreachable!("{DTYPE}"));
    [gradient, mean, square].map(dispatched)
}

simd_fn! {
    /// One step of values w, with their optimizer state m and v and their gradients g, whose memory the new values take.
    fn adam_step<S, T: Scalar>(
        simd,
        step: AdamStep,
        w: &'a [T],
        m: &'a mut [T::Wide],
        v: &'a mut [T::Wide],
        g: &'a mut [T],
    ) {
        let AdamStep { beta_1, beta_2, epsilon, keep, root, size } = step;
        // 1 − β in f64: of an f32 β near 1 few digits would be left.
        let [toward_1, toward_2] = [1.0 - beta_1, 1.0 - beta_2].map(T::Wide::from_f64);
        let [epsilon, keep, root, size] = [epsilon, keep, root, size].map(T::Wide::from_f64);
        for (((w, m), v), g) in w.iter().zip(m).zip(v).zip(g) {
            let gradient = g.widen();
            *m = (gradient - *m) * toward_1 + *m;
            *v = (gradient * gradient - *v) * toward_2 + *v;
            *g = T::narrow(w.widen() * keep - *m / (v.sqrt() * root + epsilon) * size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::takes;
    use burn::prelude::*;
    use burn::tensor::DType::{self, BF16, F32, F64};

    #[test]
    fn adam_leaves_operands_of_another_dtype_to_tensors() {
        let zeros = |dtype| Tensor::<1>::zeros([2], (&Device::flex(), dtype)).into_dispatch();
        let taken = |dtypes: [DType; 4]| takes(&dtypes.map(zeros));
        assert!(taken([F32; 4]) && taken([F64; 4]) && taken([BF16, F32, F32, BF16]));
        for other in [[F32, F64, F32, F32], [F32, F32, F64, F32], [F32, F32, F32, F64], [BF16; 4]] {
            assert!(!taken(other), "{other:?}");
        }
    }
}
