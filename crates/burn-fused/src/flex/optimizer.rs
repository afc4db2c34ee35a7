//! Tensors in host memory: read, scaled and updated in place, on all threads.
//!
//! Flex gives the memory of a tensor that nothing else holds to the host and takes it back without a copy; one that
//! something else holds is copied once. Values are cut into pieces of a fixed size, so that results do not depend on
//! the number of threads.

use crate::engine::run::plain;
use crate::flex::{Scalar, Wide, for_each, simd_fn, slice, total_of_each, with_scalar};
use crate::numerics::precision::computed_in;
pub use crate::ops::optimizer::AdamStep;
use burn::backend::Flex;
use burn::prelude::*;

/// Values of a task.
const PIECE: usize = 16 * 1024;

/// Partial sums.
// In f64, two vectors of AVX-512: sums of this many do not wait for each other.
const LANES: usize = 16;

/// What every tensor here is.
const DTYPE: &str = "floats of the kernel's dtype";

/// Whether a tensor, outside autodiff, is floats in the host's memory.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::host::{is_on_host, scale, sum_of_squares};
///
/// let gradient = Tensor::<1>::from_floats([3.0, 4.0], &Device::flex());
/// assert!(is_on_host(&gradient));
/// let (squares, gradient) = sum_of_squares(gradient);
/// let unit = scale(gradient, squares.sqrt().recip());
/// assert_eq!(unit.into_data(), TensorData::from([0.6f32, 0.8]));
/// ```
pub fn is_on_host<const D: usize>(tensor: &Tensor<D>) -> bool {
    with_scalar!(Some(tensor.dtype()), _Float => tensor.device() == Device::flex(), false)
}

fn values_of<T: Scalar>(data: &mut TensorData) -> &mut [T] {
    data.as_mut_slice().expect(DTYPE)
}

/// The tensor of memory that was taken from one on the host.
fn tensor<const D: usize>(data: TensorData) -> Tensor<D> {
    let dtype = data.dtype();
    Tensor::from_data(data, (&Device::flex(), dtype))
}

/// Σ g² of a gradient that is [on the host](is_on_host), and the gradient itself.
pub fn sum_of_squares<const D: usize>(gradient: Tensor<D>) -> (f64, Tensor<D>) {
    let gradient = gradient.into_data();
    let sum = with_scalar!(Some(gradient.dtype()), T => {
        let values = gradient.as_slice::<T>().expect(DTYPE);
        total_of_each(values.len(), values.chunks(PIECE), 1, |piece, sum: &mut [f64]| sum[0] += squares(piece))
    }, unreachable!("{DTYPE}"));
    (sum[0], tensor(gradient))
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

/// A gradient [on the host](is_on_host) times `factor`.
pub fn scale<const D: usize>(gradient: Tensor<D>, factor: f64) -> Tensor<D> {
    let mut gradient = gradient.into_data();
    with_scalar!(Some(gradient.dtype()), T => {
        let values = values_of::<T>(&mut gradient);
        let factor = <T as Scalar>::Wide::from_f64(factor);
        for_each(values.len(), values.chunks_mut(PIECE), |values| multiply(values, factor));
    }, unreachable!("{DTYPE}"));
    tensor(gradient)
}

simd_fn! {
    fn multiply<S, T: Scalar>(simd, values: &'a mut [T], factor: T::Wide) {
        for value in values {
            *value = T::narrow(value.widen() * factor);
        }
    }
}

/// Whether the [`adam`] here takes these operands of [`crate::adam`]: all in host memory, and of the dtypes of one
/// parameter.
pub fn takes<const D: usize>(
    values: &Tensor<D>,
    [mean, square]: [&Tensor<D>; 2],
    gradient: &Tensor<D>,
) -> bool {
    let dtype = values.dtype();
    let is = |tensor: &Tensor<D>, dtype| is_on_host(tensor) && tensor.dtype() == dtype;
    let wide = computed_in(dtype);
    is(values, dtype) && is(gradient, dtype) && is(mean, wide) && is(square, wide)
}

/// [`crate::adam`] of operands that this module [`takes`].
///
/// The new values are in the gradient's memory: the old ones may be held by others, as Burn's `Learner` does, and need not be
/// copied for that.
pub fn adam<const D: usize>(
    step: AdamStep,
    values: Tensor<D>,
    [mean, square]: [Tensor<D>; 2],
    gradient: Tensor<D>,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let [mut m, mut v, mut g] = [mean, square, gradient].map(Tensor::into_data);
    // Only read: whoever else holds them keeps them.
    let w = plain::<Flex>(values.into_dispatch()).float().to_contiguous();
    with_scalar!(Some(g.dtype()), T => {
        let (w, m, v, g) = (slice::<T>(&w), values_of(&mut m), values_of(&mut v), values_of(&mut g));
        let moments = m.chunks_mut(PIECE).zip(v.chunks_mut(PIECE));
        let pieces = w.chunks(PIECE).zip(moments).zip(g.chunks_mut(PIECE));
        for_each(w.len(), pieces, |((w, (m, v)), g)| adam_step(step, w, m, v, g));
    }, unreachable!("{DTYPE}"));
    (tensor(g), [tensor(m), tensor(v)])
}

simd_fn! {
    /// One step of values w, with their optimizer state m and v and their gradients g, whose place the new values take.
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
