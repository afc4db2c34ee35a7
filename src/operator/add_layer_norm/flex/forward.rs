//! The forward pass.

use super::Block;
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::flex::{Rows, layer_norm, rows_per_task};
use crate::operator::parallel;
use pulp::{Arch, Simd, WithSimd};

/// y [N, H] in the place of x, mean and rstd `[N]`.
pub(super) fn forward<T: Scalar>(
    x: &mut Rows,
    residual: &[T],
    block: &Block<T::Wide>,
) -> (Vec<T::Wide>, Vec<T::Wide>) {
    let hidden = block.gamma.len();
    let rows = residual.len() / hidden;
    let step = rows_per_task(hidden);
    let mut mean = vec![T::Wide::ZERO; rows];
    let mut rstd = vec![T::Wide::ZERO; rows];
    let rows = x.tasks::<T>(step * hidden).zip(residual.chunks(step * hidden));
    let statistics = mean.chunks_mut(step).zip(rstd.chunks_mut(step));
    let tasks = rows.zip(statistics).enumerate().map(|(task, (((x, y), residual), (mean, rstd)))| Task {
        first: task * step,
        block,
        x,
        residual,
        y,
        mean,
        rstd,
    });
    parallel::for_each(residual.len(), tasks, |task| Arch::new().dispatch(task));
    (mean, rstd)
}

/// Consecutive rows.
struct Task<'a, T: Scalar> {
    first: usize,
    block: &'a Block<T::Wide>,
    /// Where not in `y`.
    x: Option<&'a [T]>,
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
        if let Some(x) = self.x {
            self.y.copy_from_slice(x);
        }
        let rows = self.y.chunks_exact_mut(hidden).zip(self.residual.chunks_exact(hidden));
        let statistics = self.mean.iter_mut().zip(self.rstd);
        for (row, ((y, residual), (mean, rstd))) in (self.first..).zip(rows.zip(statistics)) {
            self.block.add(simd, row, [y, residual], &mut sum, &mut factor);
            (*mean, *rstd) = layer_norm::statistics(&sum, *epsilon);
            for (((&sum, &gamma), &beta), y) in sum.iter().zip(gamma).zip(beta).zip(y) {
                *y = T::narrow((sum - *mean) * *rstd * gamma + beta);
            }
        }
    }
}
