//! Tensors in host memory: read, scaled and updated in place, on all threads.
//!
//! Flex gives the memory of a tensor that nothing else holds to the host and takes it back without a copy; one that
//! something else holds is copied once. Values are cut into pieces of a fixed size, so that results do not depend on
//! the number of threads.

use super::adam::{Adam, HostStep, Moments, Step};
use crate::operator::dtype::computed_in;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::{primitive, slice, with_scalar};
use crate::operator::parallel;
use burn::prelude::*;
use pulp::{Arch, Simd, WithSimd};

/// Values of a task.
const PIECE: usize = 16 * 1024;

/// Partial sums.
const LANES: usize = 16;

/// What every tensor here is.
const DTYPE: &str = "floats of the kernel's dtype";

/// Whether a tensor, outside autodiff, is floats in the host's memory.
pub(crate) fn is_on_host<const D: usize>(tensor: &Tensor<D>) -> bool {
    with_scalar!(Some(tensor.dtype()), _Float => tensor.device() == Device::flex(), false)
}

/// A tensor whose memory the host has taken temporarily.
struct HostTensor {
    data: TensorData,
    device: Device,
}

impl HostTensor {
    fn take<const D: usize>(tensor: Tensor<D>) -> Self {
        Self { device: tensor.device(), data: tensor.into_data() }
    }

    fn values<T: Scalar>(&self) -> &[T] {
        self.data.as_slice().expect(DTYPE)
    }

    fn values_mut<T: Scalar>(&mut self) -> &mut [T] {
        self.data.as_mut_slice().expect(DTYPE)
    }

    fn into_tensor<const D: usize>(self) -> Tensor<D> {
        let dtype = self.data.dtype();
        Tensor::from_data(self.data, (&self.device, dtype))
    }
}

/// Runs `$body` with the type alias `$scalar` for what a [`HostTensor`] holds.
macro_rules! on_host {
    ($tensor:ident, $scalar:ident => $body:expr) => {
        with_scalar!(Some($tensor.data.dtype()), $scalar => $body, unreachable!("{DTYPE}"))
    };
}

/// Σ g² of a gradient that is [on the host](is_on_host), and the gradient itself.
pub(super) fn sum_of_squares<const D: usize>(gradient: Tensor<D>) -> (f64, Tensor<D>) {
    let gradient = HostTensor::take(gradient);
    let sum = on_host!(gradient, T => squares(gradient.values::<T>()));
    (sum, gradient.into_tensor())
}

fn squares<T: Scalar>(values: &[T]) -> f64 {
    let mut sums = vec![0.0; values.len().div_ceil(PIECE)];
    parallel::for_each(values.len(), values.chunks(PIECE).zip(&mut sums), |(values, sum)| {
        *sum = Arch::new().dispatch(Squares(values));
    });
    sums.into_iter().sum()
}

struct Squares<'a, T>(&'a [T]);

impl<T: Scalar> WithSimd for Squares<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> f64 {
        let (blocks, rest) = self.0.as_chunks::<LANES>();
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
pub(super) fn scale<const D: usize>(gradient: Tensor<D>, factor: f64) -> Tensor<D> {
    let mut gradient = HostTensor::take(gradient);
    on_host!(gradient, T => {
        let values = gradient.values_mut::<T>();
        let factor = <T as Scalar>::Wide::from_f64(factor);
        parallel::for_each(values.len(), values.chunks_mut(PIECE), |values| {
            Arch::new().dispatch(Scale { values, factor });
        });
    });
    gradient.into_tensor()
}

struct Scale<'a, T: Scalar> {
    values: &'a mut [T],
    factor: T::Wide,
}

impl<T: Scalar> WithSimd for Scale<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for value in self.values {
            *value = T::narrow(value.widen() * self.factor);
        }
    }
}

/// Whether [`adam`] and [`adam_on_rows`] take these operands: all in the host's memory, and of the dtypes of one table.
pub(crate) fn takes<const D: usize>(values: &Tensor<D>, moments: &Moments<D>, gradient: &Tensor<D>) -> bool {
    let dtype = values.dtype();
    let is = |tensor: &Tensor<D>, dtype| is_on_host(tensor) && tensor.dtype() == dtype;
    let wide = computed_in(dtype);
    is(values, dtype) && is(gradient, dtype) && is(&moments.mean, wide) && is(&moments.square, wide)
}

/// Values and moments after a step of Adam with gradients times `factor`.
///
/// The new values are in the gradient's memory: the old ones may be held by others, as Burn's `Learner` does, and need not be
/// copied for that.
pub(super) fn adam<const D: usize>(
    adam: &Adam,
    step: Step,
    factor: f64,
    values: Tensor<D>,
    Moments { mean, square }: Moments<D>,
    gradient: Tensor<D>,
) -> (Tensor<D>, Moments<D>) {
    let [mut m, mut v, mut g] = [mean, square, gradient].map(HostTensor::take);
    let w = primitive(values).to_contiguous();
    on_host!(g, T => {
        let step = adam.host_step(step, factor);
        let (w, m, v, g) = (slice::<T>(&w), m.values_mut(), v.values_mut(), g.values_mut());
        let moments = m.chunks_mut(PIECE).zip(v.chunks_mut(PIECE));
        let pieces = w.chunks(PIECE).zip(moments).zip(g.chunks_mut(PIECE));
        parallel::for_each(w.len(), pieces, |((w, (m, v)), g)| {
            Arch::new().dispatch(Piece { step, w, m, v, g });
        });
    });
    (g.into_tensor(), Moments { mean: m.into_tensor(), square: v.into_tensor() })
}

/// The same for these rows alone, which ascend and of which `gradient` is: they change in their place.
pub(crate) fn adam_on_rows(
    adam: &Adam,
    step: Step,
    rows: &[usize],
    values: Tensor<2>,
    Moments { mean, square }: Moments<2>,
    gradient: Tensor<2>,
) -> (Tensor<2>, Moments<2>) {
    let [_, width] = values.dims();
    let [mut w, mut m, mut v, g] = [values, mean, square, gradient].map(HostTensor::take);
    on_host!(g, T => {
        let (step, g) = (adam.host_step(step, 1.0), g.values::<T>());
        let moments = picked(m.values_mut(), rows, width).zip(picked(v.values_mut(), rows, width));
        let all = picked(w.values_mut(), rows, width).zip(moments).zip(g.chunks(width));
        let mut all: Vec<_> = all.map(|((w, (m, v)), g)| Row { step, w, m, v, g }).collect();
        parallel::for_each(g.len(), all.chunks_mut(PIECE.div_ceil(width)), |rows| {
            Arch::new().dispatch(Rows(rows));
        });
    });
    (w.into_tensor(), Moments { mean: m.into_tensor(), square: v.into_tensor() })
}

fn picked<'a, T>(values: &'a mut [T], rows: &'a [usize], width: usize) -> impl Iterator<Item = &'a mut [T]> {
    let mut all = values.chunks_mut(width);
    let mut passed = 0;
    rows.iter().map_while(move |&row| {
        let values = all.nth(row - passed);
        passed = row + 1;
        values
    })
}

struct Piece<'a, T: Scalar> {
    step: HostStep<T::Wide>,
    w: &'a [T],
    m: &'a mut [T::Wide],
    v: &'a mut [T::Wide],
    g: &'a mut [T],
}

impl<T: Scalar> WithSimd for Piece<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.step.run_into_gradients(self.w, self.m, self.v, self.g);
    }
}

struct Row<'a, T: Scalar> {
    step: HostStep<T::Wide>,
    w: &'a mut [T],
    m: &'a mut [T::Wide],
    v: &'a mut [T::Wide],
    g: &'a [T],
}

struct Rows<'a, 'b, T: Scalar>(&'a mut [Row<'b, T>]);

impl<T: Scalar> WithSimd for Rows<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for Row { step, w, m, v, g } in self.0 {
            step.run(w, m, v, g);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::DType;

    #[test]
    fn operands_of_another_dtype_are_left_to_tensors() {
        let zeros = |dtype| Tensor::<1>::zeros([2], (&Device::flex(), dtype));
        let taken = |[values, mean, square, gradient]: [DType; 4]| {
            takes(&zeros(values), &Moments { mean: zeros(mean), square: zeros(square) }, &zeros(gradient))
        };
        use DType::{BF16, F32, F64};
        assert!(taken([F32; 4]) && taken([F64; 4]) && taken([BF16, F32, F32, BF16]));
        for other in [[F32, F64, F32, F32], [F32, F32, F64, F32], [F32, F32, F32, F64], [BF16; 4]] {
            assert!(!taken(other), "{other:?}");
        }
    }
}
