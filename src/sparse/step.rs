//! One step of one table: some rows of it take the optimiser's step, and the others stay as they are.

use super::table;
use crate::operator::dtype::computed_in;
#[cfg(feature = "flex")]
use crate::optim::host;
use crate::optim::{Adam, Moments, Step};
use burn::prelude::*;

/// The table after SGD on rows `ids`, which ascend; `gradient` is [ids.len(), H].
pub(super) fn sgd(step: Step, table: Tensor<2>, ids: &[usize], gradient: Tensor<2>) -> Tensor<2> {
    let (narrow, wide) = (table.dtype(), computed_in(table.dtype()));
    let old = table::gather(table.clone(), ids).cast(wide);
    let new = old - gradient.cast(wide).mul_scalar(step.learning_rate);
    table::assign(table, ids, new.cast(narrow))
}

/// The table after Adam on rows `ids`, which ascend; `gradient` is [ids.len(), H] and the moments change too.
///
/// As tensor operations a step goes through some fifteen temporaries of the size of these rows, and fresh memory for them
/// costs a CPU more than the arithmetic does: where the host has the table, they are changed in it.
pub(super) fn adam(
    adam: &Adam,
    step: Step,
    table: Tensor<2>,
    moments: &mut Moments<2>,
    ids: &[usize],
    gradient: Tensor<2>,
) -> Tensor<2> {
    #[cfg(feature = "flex")]
    if host::takes(&table, moments, &gradient) {
        let taken = Moments { mean: moments.mean.extract(), square: moments.square.extract() };
        let (table, new) = host::adam_on_rows(adam, step, ids, table, taken, gradient);
        *moments = new;
        return table;
    }
    let rows = |table: &Tensor<2>| table::gather(table.clone(), ids);
    let old = Moments { mean: rows(&moments.mean), square: rows(&moments.square) };
    let (new, Moments { mean, square }) = adam.step(step, rows(&table), old, gradient);
    moments.mean.inplace(|table| table::assign(table, ids, mean));
    moments.square.inplace(|table| table::assign(table, ids, square));
    table::assign(table, ids, new)
}
