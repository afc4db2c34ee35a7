//! Gradients of rows: accumulated and clipped.

use super::{dense_gradients, gradients, inputs, loss_weights, module, positions};
use crate::tolerance::{F32, assert_close, values};
use burn::module::Param;
use burn::prelude::*;
use burn_bert::EmbeddingTable;
use burn_bert::sparse::RowGradients;

#[test]
fn accumulated_gradients_are_those_of_the_summed_losses() {
    let (module, weights) = (module(), loss_weights());
    let mut sum: Option<RowGradients> = None;
    for input in inputs() {
        let (_, rows, _) = gradients(&module, &input, &weights);
        sum = Some(match sum {
            Some(sum) => sum.accumulate(rows).unwrap(),
            None => rows,
        });
    }
    let sum = sum.unwrap().mul_scalar(1.0 / 3.0);
    let inputs = inputs();
    let losses = inputs.iter().map(|input| (module.forward(input).powi_scalar(3) * weights.clone()).mean());
    let gradients = losses.reduce(|a, b| a + b).unwrap().div_scalar(3.0).backward();
    for (table, weight) in [
        (EmbeddingTable::Word, &module.word_embeddings.weight),
        (EmbeddingTable::Position, positions(&module)),
    ] {
        let (ids, rows) = sum.get(table).unwrap();
        let dense = weight.grad(&gradients).unwrap();
        let index: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        let index = Tensor::<1, Int>::from_ints(index.as_slice(), &dense.device());
        assert_close(&values(rows.clone()), &values(dense.clone().select(0, index)), F32);
        // Nothing is missing: what is not in the rows is zero.
        assert_close(&values(rows.square().sum()), &values(dense.square().sum()), F32);
    }
    let (ids, _) = sum.get(EmbeddingTable::Word).unwrap();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 19]);
}

#[test]
fn clipping_by_global_norm_is_that_of_dense_training() {
    let (module, weights) = (module(), loss_weights());
    let dense = dense_gradients(&module, &inputs()[0], &weights);
    let dense_of = |param: &Param<Tensor<2>>| dense.get::<2>(param.id).unwrap();
    let vector = |param: &Param<Tensor<1>>| dense.get::<1>(param.id).unwrap();
    let mut squares = values(dense_of(&module.word_embeddings.weight).square().sum())[0];
    squares += values(dense_of(positions(&module)).square().sum())[0];
    squares += values(dense_of(&module.token_type_embeddings.as_ref().unwrap().weight).square().sum())[0];
    squares += values(vector(&module.layer_norm.gamma).square().sum())[0];
    squares += values(vector(module.layer_norm.beta.as_ref().unwrap()).square().sum())[0];
    let norm = squares.sqrt();
    for (max_norm, factor) in [(norm / 4.0, 0.25 * norm / (norm + 1e-6)), (norm * 2.0, 1.0)] {
        let (_, mut rows, mut rest) = gradients(&module, &inputs()[0], &weights);
        let plain = rows.clone();
        let before = rest.get::<1>(module.layer_norm.gamma.id).unwrap();
        let found = rows.clip_by_global_norm(&module, &mut rest, max_norm).unwrap();
        assert_close(&values(found), &[norm], F32);
        for table in [EmbeddingTable::Word, EmbeddingTable::Position] {
            let expected = plain.get(table).unwrap().1.mul_scalar(factor);
            assert_close(&values(rows.get(table).unwrap().1), &values(expected), F32);
        }
        let gamma = rest.get::<1>(module.layer_norm.gamma.id).unwrap();
        assert_close(&values(gamma), &values(before.mul_scalar(factor)), F32);
    }
}
