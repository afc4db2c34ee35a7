//! The forward pass.

use super::row::{self, Norm, TASK};
use super::source::{Source, Summand, rows, summands_of};
use crate::operator::flex::scalar::{Scalar, Wide};
use crate::operator::parallel;
use pulp::{Arch, Simd, WithSimd};

/// y [tokens, H], mean and rstd [tokens].
pub(super) fn forward<T: Scalar>(
    sources: &[Option<Source>; 3],
    norm: &Norm<T::Wide>,
    tokens: usize,
) -> (Vec<T>, Vec<T::Wide>, Vec<T::Wide>) {
    let hidden = norm.gamma.len();
    let summands = summands_of(sources);
    let mut y = vec![T::default(); tokens * hidden];
    let mut mean = vec![T::Wide::ZERO; tokens];
    let mut rstd = vec![T::Wide::ZERO; tokens];
    let tasks = y.chunks_mut(TASK * hidden).zip(mean.chunks_mut(TASK)).zip(rstd.chunks_mut(TASK)).enumerate();
    let tasks =
        tasks.map(|(task, ((y, mean), rstd))| Task { first: task * TASK, summands, norm, y, mean, rstd });
    parallel::for_each(tokens * hidden, tasks, |task| Arch::new().dispatch(task));
    (y, mean, rstd)
}

/// Consecutive tokens.
struct Task<'a, T: Scalar> {
    first: usize,
    summands: [Summand<'a, T>; 3],
    norm: &'a Norm<T::Wide>,
    y: &'a mut [T],
    mean: &'a mut [T::Wide],
    rstd: &'a mut [T::Wide],
}

impl<T: Scalar> WithSimd for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let hidden = self.norm.gamma.len();
        let mut sum = vec![T::Wide::ZERO; hidden];
        let tokens = self.y.chunks_exact_mut(hidden).zip(self.mean).zip(self.rstd);
        for (token, ((y, mean), rstd)) in (self.first..).zip(tokens) {
            let rows = rows(&self.summands, token, hidden);
            (*mean, *rstd) = row::forward(simd, token as u64, rows, self.norm, &mut sum, y);
        }
    }
}
