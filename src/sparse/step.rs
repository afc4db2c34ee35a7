//! One step of one table: in the host's memory where it can be had, by tensor operations everywhere else.

#[cfg(feature = "flex")]
use super::host;
use super::table;
use crate::operator::dtype::computed_in;
use crate::optim::{Adam, Moments, Step};
use burn::prelude::*;

/// The table after SGD on rows `ids`, which ascend; `gradient` is [ids.len(), H].
#[cfg_attr(not(feature = "flex"), expect(unused_mut, reason = "only the host's step changes it in place"))]
pub(super) fn sgd(step: Step, mut table: Tensor<2>, ids: &[usize], gradient: Tensor<2>) -> Tensor<2> {
    #[cfg(feature = "flex")]
    let Some(gradient) = host::sgd(step, &mut table, ids, gradient) else { return table };
    sgd_on_tensors(step, table, ids, gradient)
}

/// The table after Adam on rows `ids`, which ascend; `gradient` is [ids.len(), H] and the moments change too.
#[cfg_attr(not(feature = "flex"), expect(unused_mut, reason = "only the host's step changes it in place"))]
pub(super) fn adam(
    adam: &Adam,
    step: Step,
    mut table: Tensor<2>,
    moments: &mut Moments<2>,
    ids: &[usize],
    gradient: Tensor<2>,
) -> Tensor<2> {
    #[cfg(feature = "flex")]
    let Some(gradient) = host::adam(adam, step, &mut table, moments, ids, gradient) else { return table };
    adam_on_tensors(adam, step, table, moments, ids, gradient)
}

fn sgd_on_tensors(step: Step, table: Tensor<2>, ids: &[usize], gradient: Tensor<2>) -> Tensor<2> {
    let (narrow, wide) = (table.dtype(), computed_in(table.dtype()));
    let old = table::gather(table.clone(), ids).cast(wide);
    let new = old - gradient.cast(wide).mul_scalar(step.learning_rate);
    table::assign(table, ids, new.cast(narrow))
}

fn adam_on_tensors(
    adam: &Adam,
    step: Step,
    table: Tensor<2>,
    moments: &mut Moments<2>,
    ids: &[usize],
    gradient: Tensor<2>,
) -> Tensor<2> {
    let (narrow, wide) = (table.dtype(), computed_in(table.dtype()));
    let old = Moments {
        mean: table::gather(moments.mean.clone(), ids),
        square: table::gather(moments.square.clone(), ids),
    };
    let new = adam.follow(old, gradient.cast(wide));
    moments.mean.inplace(|mean| table::assign(mean, ids, new.mean.clone()));
    moments.square.inplace(|square| table::assign(square, ids, new.square.clone()));
    let rows = table::gather(table.clone(), ids).cast(wide);
    table::assign(table, ids, adam.descend(rows, step, new).cast(narrow))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::optim::AdamKind;
    use burn::tensor::Distribution;
    use burn::tensor::FloatDType;

    const IDS: [usize; 5] = [0, 3, 4, 11, 19];
    const HIDDEN: usize = 13;

    fn normal(rows: usize) -> Tensor<2> {
        Tensor::random([rows, HIDDEN], Distribution::Normal(0.0, 1.0), &Device::flex())
    }

    fn bits(tensor: &Tensor<2>) -> Vec<u32> {
        tensor.to_data().iter::<f32>().map(f32::to_bits).collect()
    }

    #[test]
    fn sgd_in_the_hosts_memory_is_sgd_on_tensors_bit_for_bit() {
        let (mut table, gradient) = (normal(20), normal(IDS.len()));
        let step = Step { learning_rate: 0.3, time: 1 };
        let expected = sgd_on_tensors(step, table.clone(), &IDS, gradient.clone());
        assert!(host::sgd(step, &mut table, &IDS, gradient).is_none());
        assert_eq!(bits(&table), bits(&expected));
    }

    #[test]
    fn adam_in_the_hosts_memory_is_adam_on_tensors_bit_for_bit() {
        for kind in [AdamKind::Sparse, AdamKind::W { weight_decay: 0.01 }] {
            let rule = &Adam::new(0.9, 0.999, 1e-8, kind).unwrap();
            let (mut table, mut expected) = (normal(20), Tensor::empty([0, 0], &Device::flex()));
            let zeros = || Tensor::zeros([20, HIDDEN], &Device::flex());
            let moments = || Moments { mean: zeros(), square: zeros() };
            let (mut ours, mut theirs) = (moments(), moments());
            for time in 1..=5 {
                let (step, gradient) = (Step { learning_rate: 0.3, time }, normal(IDS.len()));
                let before = if time == 1 { table.clone() } else { expected };
                expected = adam_on_tensors(rule, step, before, &mut theirs, &IDS, gradient.clone());
                assert!(host::adam(rule, step, &mut table, &mut ours, &IDS, gradient).is_none());
                assert_eq!(bits(&table), bits(&expected));
                assert_eq!(bits(&ours.mean), bits(&theirs.mean));
                assert_eq!(bits(&ours.square), bits(&theirs.square));
            }
        }
    }

    #[test]
    fn a_table_of_another_dtype_is_left_to_tensors() {
        let (table, gradient) = (normal(20).cast(FloatDType::F64), normal(2).cast(FloatDType::F64));
        let (mut same, step) = (table.clone(), Step { learning_rate: 0.3, time: 1 });
        let back = host::sgd(step, &mut same, &[3, 4], gradient.clone()).unwrap();
        assert_eq!((back.to_data(), same.to_data()), (gradient.to_data(), table.to_data()));
    }
}
