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

    fn values<T: Scalar>(&self) -> Option<&[T]> {
        self.data.as_slice().ok()
    }

    fn values_mut<T: Scalar>(&mut self) -> Option<&mut [T]> {
        self.data.as_mut_slice().ok()
    }

    fn into_tensor<const D: usize>(self) -> Tensor<D> {
        let dtype = self.data.dtype();
        Tensor::from_data(self.data, (&self.device, dtype))
    }
}

/// Σ g², and the gradient itself; nothing in the place of the sum if it is not [on the host](is_on_host).
pub(super) fn sum_of_squares<const D: usize>(gradient: Tensor<D>) -> (Option<f64>, Tensor<D>) {
    if !is_on_host(&gradient) {
        return (None, gradient);
    }
    let gradient = HostTensor::take(gradient);
    let sum = with_scalar!(Some(gradient.data.dtype()), T => gradient.values::<T>().map(squares), None);
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
    let scaled = with_scalar!(Some(gradient.data.dtype()), T => {
        gradient.values_mut::<T>().map(|values| {
            let factor = <T as Scalar>::Wide::from_f64(factor);
            parallel::for_each(values.len(), values.chunks_mut(PIECE), |values| {
                Arch::new().dispatch(Scale { values, factor });
            });
        })
    }, None);
    let gradient = gradient.into_tensor();
    if scaled.is_some() { gradient } else { gradient.mul_scalar(factor) }
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

/// What a step reads and changes.
pub(crate) struct Operands<'a, const D: usize> {
    pub(crate) values: Tensor<D>,
    /// In the dtype that the step is computed in.
    pub(crate) moments: Moments<D>,
    /// Of all values, or of these rows alone, which ascend; the others stay as they are.
    pub(crate) gradient: Tensor<D>,
    pub(crate) rows: Option<&'a [usize]>,
}

/// Values and moments after a step of Adam with gradients times `factor`.
/// Gives the operands back unchanged if they are not all [on the host](is_on_host).
#[expect(clippy::result_large_err, reason = "the operands go back as they came")]
pub(crate) fn adam<'a, const D: usize>(
    adam: &Adam,
    step: Step,
    factor: f64,
    operands: Operands<'a, D>,
) -> Result<(Tensor<D>, Moments<D>), Operands<'a, D>> {
    let Operands { values, moments: Moments { mean, square }, gradient, rows } = operands;
    let dtype = values.dtype();
    if !is_on_host(&values) || gradient.dtype() != dtype || mean.dtype() != computed_in(dtype) {
        return Err(Operands { values, moments: Moments { mean, square }, gradient, rows });
    }
    let [mut m, mut v, mut g] = [mean, square, gradient].map(HostTensor::take);
    let (done, values) = match rows {
        None => {
            let w = primitive(values.clone()).to_contiguous();
            let done = with_scalar!(
                Some(dtype),
                T => run::<T>(adam.host_step(step, factor), slice(&w), [&mut m, &mut v, &mut g]),
                None
            );
            if done.is_some() {
                let moments = Moments { mean: m.into_tensor(), square: v.into_tensor() };
                return Ok((g.into_tensor(), moments));
            }
            (done, values)
        }
        Some(rows) => {
            let width = values.dims()[D - 1];
            let mut w = HostTensor::take(values);
            let done = with_scalar!(
                Some(dtype),
                T => run_rows::<T>(adam.host_step(step, factor), rows, width, [&mut w, &mut m, &mut v], &g),
                None
            );
            (done, w.into_tensor())
        }
    };
    let moments = Moments { mean: m.into_tensor(), square: v.into_tensor() };
    match done {
        Some(()) => Ok((values, moments)),
        None => Err(Operands { values, moments, gradient: g.into_tensor(), rows }),
    }
}

/// All values. The new ones are in the gradient's memory: the old ones may be held by others, as Burn's `Learner` does, and
/// need not be copied for that.
fn run<T: Scalar>(step: HostStep<T::Wide>, w: &[T], [m, v, g]: [&mut HostTensor; 3]) -> Option<()> {
    let (m, v, g) = (m.values_mut()?, v.values_mut()?, g.values_mut::<T>()?);
    let count = g.len();
    let pieces = w.chunks(PIECE).zip(m.chunks_mut(PIECE)).zip(v.chunks_mut(PIECE)).zip(g.chunks_mut(PIECE));
    parallel::for_each(count, pieces, |(((w, m), v), g)| {
        Arch::new().dispatch(Piece { step, w, m, v, g });
    });
    Some(())
}

/// The rows with these numbers, which ascend, in place.
fn run_rows<T: Scalar>(
    step: HostStep<T::Wide>,
    rows: &[usize],
    width: usize,
    [w, m, v]: [&mut HostTensor; 3],
    g: &HostTensor,
) -> Option<()> {
    let (w, g) = (w.values_mut::<T>()?, g.values::<T>()?);
    let moments = picked(m.values_mut()?, rows, width).zip(picked(v.values_mut()?, rows, width));
    let all = picked(w, rows, width).zip(moments).zip(g.chunks(width));
    let mut all: Vec<_> = all.map(|((w, (m, v)), g)| Row { step, w, m, v, g }).collect();
    parallel::for_each(g.len(), all.chunks_mut(PIECE.div_ceil(width)), |rows| {
        Arch::new().dispatch(Rows(rows));
    });
    Some(())
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
