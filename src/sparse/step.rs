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
    adam_on_tensors(adam, step, table, moments, ids, gradient)
}

fn adam_on_tensors(
    adam: &Adam,
    step: Step,
    table: Tensor<2>,
    moments: &mut Moments<2>,
    ids: &[usize],
    gradient: Tensor<2>,
) -> Tensor<2> {
    let rows = |table: &Tensor<2>| table::gather(table.clone(), ids);
    let old = Moments { mean: rows(&moments.mean), square: rows(&moments.square) };
    let (new, Moments { mean, square }) = adam.step(step, rows(&table), old, gradient);
    moments.mean.inplace(|table| table::assign(table, ids, mean));
    moments.square.inplace(|table| table::assign(table, ids, square));
    table::assign(table, ids, new)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::optim::AdamKind;
    use burn::tensor::{DType, Distribution};

    const IDS: [usize; 5] = [0, 3, 4, 11, 19];
    const HIDDEN: usize = 13;

    #[test]
    fn adam_in_the_hosts_memory_is_adam_on_tensors_bit_for_bit() {
        let device = Device::flex();
        for dtype in [DType::F32, DType::F64] {
            let normal = |rows: usize| {
                let normal = Distribution::Normal(0.0, 1.0);
                Tensor::<2>::random([rows, HIDDEN], normal, (&device, dtype))
            };
            for kind in [AdamKind::Sparse, AdamKind::W { weight_decay: 0.01 }] {
                let rule = &Adam::new(0.9, 0.999, 1e-8, kind).unwrap();
                let (mut table, zeros) = (normal(20), Tensor::zeros([20, HIDDEN], (&device, dtype)));
                let mut expected = Tensor::from_data(table.to_data(), (&device, dtype));
                let mut ours = Moments { mean: zeros.clone(), square: zeros };
                let mut theirs = ours.clone();
                for time in 1..=5 {
                    let (step, gradient) = (Step { learning_rate: 0.3, time }, normal(IDS.len()));
                    expected = adam_on_tensors(rule, step, expected, &mut theirs, &IDS, gradient.clone());
                    table = adam(rule, step, table, &mut ours, &IDS, gradient);
                    for (ours, theirs) in
                        [(&table, &expected), (&ours.mean, &theirs.mean), (&ours.square, &theirs.square)]
                    {
                        assert_eq!(ours.to_data(), theirs.to_data());
                    }
                }
            }
        }
    }
}
