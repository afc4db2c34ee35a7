//! Tensors in host memory: read, scaled and updated in place, on all threads.
//!
//! Flex gives the memory of a tensor that nothing else holds to the host and takes it back without a copy; one that
//! something else holds is copied once. Values are cut into pieces of a fixed size, so that results do not depend on
//! the number of threads.

use super::adam::{Adam, Moments, Step};
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::with_scalar;
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

/// A gradient times `factor`; on other devices than the host's too.
pub(super) fn scale<const D: usize>(gradient: Tensor<D>, factor: f64) -> Tensor<D> {
    if !is_on_host(&gradient) {
        return gradient.mul_scalar(factor);
    }
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
    if !is_on_host(&values) {
        return Err(Operands { values, moments: Moments { mean, square }, gradient, rows });
    }
    let width = if rows.is_some() { values.dims()[D - 1] } else { PIECE };
    let [mut w, mut m, mut v, g] = [values, mean, square, gradient].map(HostTensor::take);
    let pieces = Pieces { width, rows };
    let done = with_scalar!(
        Some(dtype),
        T => run::<T>(adam, step, factor, pieces, [&mut w, &mut m, &mut v], &g),
        None
    );
    let (values, moments) = (w.into_tensor(), Moments { mean: m.into_tensor(), square: v.into_tensor() });
    match done {
        Some(()) => Ok((values, moments)),
        None => Err(Operands { values, moments, gradient: g.into_tensor(), rows }),
    }
}

/// Pieces of some width, all or those with these numbers, which ascend.
#[derive(Clone, Copy)]
struct Pieces<'a> {
    width: usize,
    rows: Option<&'a [usize]>,
}

impl<'a> Pieces<'a> {
    fn of<T>(self, values: &'a mut [T]) -> impl Iterator<Item = &'a mut [T]> {
        let mut pieces = values.chunks_mut(self.width);
        let mut rows = self.rows.map(|rows| rows.iter());
        let mut passed = 0;
        std::iter::from_fn(move || {
            let Some(rows) = &mut rows else { return pieces.next() };
            let row = *rows.next()?;
            let piece = pieces.nth(row - passed);
            passed = row + 1;
            piece
        })
    }
}

fn run<T: Scalar>(
    adam: &Adam,
    step: Step,
    factor: f64,
    pieces: Pieces,
    [w, m, v]: [&mut HostTensor; 3],
    g: &HostTensor,
) -> Option<()> {
    let (w, g) = (w.values_mut::<T>()?, g.values::<T>()?);
    let (m, v) = (m.values_mut()?, v.values_mut()?);
    let step = adam.host_step(step, factor);
    let moments = pieces.of(m).zip(pieces.of(v));
    let all = pieces.of(w).zip(moments).zip(g.chunks(pieces.width));
    let mut all: Vec<_> = all.map(|((w, (m, v)), g)| Piece { step, w, m, v, g }).collect();
    parallel::for_each(g.len(), all.chunks_mut(PIECE.div_ceil(pieces.width)), |pieces| {
        Arch::new().dispatch(Run(pieces));
    });
    Some(())
}

struct Piece<'a, T: Scalar> {
    step: super::adam::HostStep<T::Wide>,
    w: &'a mut [T],
    m: &'a mut [T::Wide],
    v: &'a mut [T::Wide],
    g: &'a [T],
}

struct Run<'a, 'b, T: Scalar>(&'a mut [Piece<'b, T>]);

impl<T: Scalar> WithSimd for Run<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for Piece { step, w, m, v, g } in self.0 {
            step.run(w, m, v, g);
        }
    }
}
