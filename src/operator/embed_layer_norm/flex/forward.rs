//! The forward pass.

use super::row::{self, Norm};
use super::{Source, TASK};
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
    let values = sources.each_ref().map(|source| source.as_ref().map(Source::values));
    let mut y = vec![T::default(); tokens * hidden];
    let mut mean = vec![T::Wide::ZERO; tokens];
    let mut rstd = vec![T::Wide::ZERO; tokens];
    let tasks = y.chunks_mut(TASK * hidden).zip(mean.chunks_mut(TASK)).zip(rstd.chunks_mut(TASK)).enumerate();
    let tasks = tasks.map(|(task, ((y, mean), rstd))| Task {
        first: task * TASK,
        values,
        sources,
        norm,
        y,
        mean,
        rstd,
    });
    parallel::for_each(tokens * hidden, tasks, |task| Arch::new().dispatch(task));
    (y, mean, rstd)
}

/// Consecutive tokens.
struct Task<'a, T: Scalar> {
    first: usize,
    values: [Option<&'a [T]>; 3],
    sources: &'a [Option<Source>; 3],
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
            let rows = super::rows(&self.values, self.sources, token, hidden);
            (*mean, *rstd) = row::forward(simd, token as u64, rows, self.norm, &mut sum, y);
        }
    }
}
