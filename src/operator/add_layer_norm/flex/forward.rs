//! The forward pass.

use super::Block;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::{layer_norm, rows_per_task};
use crate::operator::parallel;
use pulp::{Arch, Simd, WithSimd};

/// y [N, H], mean and rstd `[N]`.
pub(super) fn forward<T: Scalar>(
    x: &[T],
    residual: &[T],
    block: &Block<T::Wide>,
) -> (Vec<T>, Vec<T::Wide>, Vec<T::Wide>) {
    let hidden = block.gamma.len();
    let rows = x.len() / hidden;
    let step = rows_per_task(hidden);
    let mut y = vec![T::default(); x.len()];
    let mut mean = vec![T::Wide::ZERO; rows];
    let mut rstd = vec![T::Wide::ZERO; rows];
    let inputs = x.chunks(step * hidden).zip(residual.chunks(step * hidden));
    let outputs = y.chunks_mut(step * hidden).zip(mean.chunks_mut(step)).zip(rstd.chunks_mut(step));
    let tasks = inputs.zip(outputs).enumerate().map(|(task, ((x, residual), ((y, mean), rstd)))| Task {
        first: task * step,
        block,
        x,
        residual,
        y,
        mean,
        rstd,
    });
    parallel::for_each(x.len(), tasks, |task| Arch::new().dispatch(task));
    (y, mean, rstd)
}

/// Consecutive rows.
struct Task<'a, T: Scalar> {
    first: usize,
    block: &'a Block<T::Wide>,
    x: &'a [T],
    residual: &'a [T],
    y: &'a mut [T],
    mean: &'a mut [T::Wide],
    rstd: &'a mut [T::Wide],
}

impl<T: Scalar> WithSimd for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Block { gamma, beta, epsilon, .. } = self.block;
        let hidden = gamma.len();
        let (mut sum, mut factor) = (vec![T::Wide::ZERO; hidden], vec![T::Wide::ZERO; hidden]);
        let inputs = self.x.chunks_exact(hidden).zip(self.residual.chunks_exact(hidden));
        let outputs = self.y.chunks_exact_mut(hidden).zip(self.mean).zip(self.rstd);
        for (row, ((x, residual), ((y, mean), rstd))) in (self.first..).zip(inputs.zip(outputs)) {
            self.block.add(simd, row, [x, residual], &mut sum, &mut factor);
            (*mean, *rstd) = layer_norm::statistics(&sum, *epsilon);
            for (((&sum, &gamma), &beta), y) in sum.iter().zip(gamma).zip(beta).zip(y) {
                *y = T::narrow((sum - *mean) * *rstd * gamma + beta);
            }
        }
    }
}
