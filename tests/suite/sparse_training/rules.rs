//! The update rules, beside those of dense training.

use super::{
    HIDDEN, LEARNING_RATE, config, dense_gradients, device, gradients, input, inputs, loss_weights, module,
    parameters, row, train,
};
use crate::devices::supported;
use crate::tolerance::{F32, assert_close, values};
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::module::Param;
use burn::optim::{AdamWConfig, GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::{DType, Distribution, FloatDType};
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, RowSgdConfig, SparseAdamConfig};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingTable, cast_module};

#[test]
fn row_sgd_is_dense_sgd() {
    let (mut sparse, weights) = (module(), loss_weights());
    let mut dense = sparse.clone();
    let mut rest = SgdConfig::new().init();
    train(&mut sparse, &mut RowSgdConfig::new().init(), &mut rest, &weights, 0..6);
    for step in 0..6 {
        let gradients = dense_gradients(&dense, &inputs()[step % 3], &weights);
        dense = rest.step(LEARNING_RATE, dense, gradients);
    }
    assert_close(&parameters(&sparse), &parameters(&dense), F32);
}

#[test]
fn lazy_adamw_is_dense_adamw_where_every_row_is_touched_every_step() {
    let everything: Vec<Vec<i32>> =
        vec![(0..12).map(|id| id % 10).collect(), (0..12).map(|id| 9 - id % 10).collect()];
    let input = BertEmbeddingsInput::from_rows(&everything, &device()).unwrap();
    let config = config().with_vocab_size(10).with_pad_token_id(None);
    let mut sparse = config.init(&device());
    let mut dense = sparse.clone();
    let weights = Tensor::random([2, 12, HIDDEN], Distribution::Normal(0.0, 1.0), &device());
    let adamw = || AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.1).init();
    let (mut rest, mut all) = (adamw(), adamw());
    let mut rows = LazyAdamWConfig::new().with_weight_decay(0.1).init();
    for _ in 0..10 {
        let (_, row_gradients, gradients) = gradients(&sparse, &input, &weights);
        rows.step(1e-2, &mut sparse, row_gradients).unwrap();
        sparse = rest.step(1e-2, sparse, gradients);
        let gradients = dense_gradients(&dense, &input, &weights);
        dense = all.step(1e-2, dense, gradients);
    }
    assert_close(&parameters(&sparse), &parameters(&dense), F32);
}

/// A layer of one number a vector, one of whose rows gets the gradient 1 in step 1 and is not touched in step 2.
#[test]
fn the_worked_example_of_lazy_adamw_is_right() {
    let config = BertEmbeddingsConfig::new().with_vocab_size(3).with_hidden_size(1).with_pad_token_id(None);
    let mut lazy = config.init(&device());
    lazy.word_embeddings.weight = Param::from_tensor(Tensor::ones([3, 1], &device()).require_grad());
    let mut dense = lazy.word_embeddings.clone();

    let mut rows = LazyAdamWConfig::new().with_weight_decay(0.5).init();
    let mut adamw = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.5).init();
    for (id, w_lazy, w_dense) in [(1, 0.85, 0.85), (2, 0.85, 0.740_494)] {
        let input = BertEmbeddingsInput::from_rows(&[[id]], &device()).unwrap();
        let touched = lazy.touched_rows(&input).unwrap();
        // Straight through the lookup: the gradient of the row is 1.
        let looked_up =
            touched.embeddings().word_embeddings.forward::<2, 3>(touched.input().input_ids().unwrap());
        let mut gradients = looked_up.sum().backward();
        let row_gradients = RowGradients::from_grads(&mut gradients, touched, &lazy).unwrap();
        rows.step(0.1, &mut lazy, row_gradients).unwrap();
        assert_close(&row(&lazy.word_embeddings.weight, 1), &[w_lazy], F32);

        let ids = input.input_ids().unwrap();
        let gradients = GradientsParams::from_grads(dense.forward::<2, 3>(ids).sum().backward(), &dense);
        dense = adamw.step(0.1, dense, gradients);
        assert_close(&row(&dense.weight, 1), &[w_dense], F32);
    }
}

#[test]
fn a_batch_of_padding_counts_as_a_step_of_the_word_table_that_moves_nothing() {
    let weights = loss_weights().mul_scalar(1e3); // so that ε is nothing beside the gradient
    let initial = module();
    let after = |padding_first: bool| {
        let mut module = initial.clone();
        let mut rows = SparseAdamConfig::new().init();
        if padding_first {
            let (_, gradients, _) = gradients(&module, &input(&[[0; 5]; 2]), &weights);
            rows.step(LEARNING_RATE, &mut module, gradients).unwrap();
            let words = |module: &BertEmbeddings| values(module.word_embeddings.weight.val());
            assert_eq!(words(&module), words(&initial));
        }
        let (_, gradients, _) = gradients(&initial, &inputs()[0], &weights);
        rows.step(LEARNING_RATE, &mut module, gradients).unwrap();
        row(&module.word_embeddings.weight, 9)
    };
    // The first step of a row divides by other corrections when it is the table's second.
    let [first, second] = [after(false), after(true)];
    let w = row(&initial.word_embeddings.weight, 9);
    let expected =
        |time: i32| 0.1 * (1.0 - 0.999f64.powi(time)).sqrt() / (1.0 - 0.9f64.powi(time)) / 0.001f64.sqrt();
    for i in 0..HIDDEN {
        let moved = |to: &[f64]| (to[i] - w[i]).abs() / LEARNING_RATE;
        assert!((moved(&first) - expected(1)).abs() < 1e-3, "{} is not {}", moved(&first), expected(1));
        assert!((moved(&second) - expected(2)).abs() < 1e-3, "{} is not {}", moved(&second), expected(2));
    }
}

#[test]
fn a_schedule_of_burn_sets_the_rate_of_each_step() {
    let (mut module, weights) = (module(), loss_weights());
    let mut schedule = CosineAnnealingLrSchedulerConfig::new(0.1, 5).init().unwrap();
    let mut rows = RowSgdConfig::new().init();
    for _ in 0..4 {
        let before = row(&module.word_embeddings.weight, 4);
        let (_, gradients, _) = gradients(&module, &inputs()[0], &weights);
        let (ids, gradient) = gradients.get(EmbeddingTable::Word).unwrap();
        let at = ids.iter().position(|&id| id == 4).unwrap();
        let gradient = values(gradient.narrow(0, at, 1));
        let lr = schedule.step();
        rows.step(lr.clone(), &mut module, gradients).unwrap();
        let lr = lr.base();
        let expected: Vec<f64> = before.iter().zip(gradient).map(|(w, g)| w - lr * g).collect();
        assert_close(&row(&module.word_embeddings.weight, 4), &expected, F32);
    }
}

#[test]
fn sixteen_bit_tables_are_updated_in_f32() {
    supported(&device(), &[DType::F16]);
    let mut module = module();
    let mut half = cast_module(module.clone(), FloatDType::F16);
    module = cast_module(half.clone(), FloatDType::F32);
    let ids = &inputs()[0];
    let step = |module: &mut BertEmbeddings| {
        let touched = module.touched_rows(ids).unwrap();
        let mut gradients = touched.embeddings().word_embeddings.weight.val().sum().backward();
        let rows = RowGradients::from_grads(&mut gradients, touched, module).unwrap();
        SparseAdamConfig::new().init().step(1e-2, module, rows).unwrap(); // in f16 ε would be 0
    };
    step(&mut half);
    step(&mut module);
    assert_eq!(half.word_embeddings.weight.val().dtype(), DType::F16);
    let rounded = module.word_embeddings.weight.val().cast(FloatDType::F16);
    assert_eq!(values(half.word_embeddings.weight.val()), values(rounded));
}

#[test]
fn moments_follow_a_module_that_is_cast() {
    let weights = loss_weights();
    let steps = |dtypes: [FloatDType; 2], module: &BertEmbeddings| {
        let mut module = module.clone();
        let mut rows = LazyAdamWConfig::new().init();
        for (dtype, input) in dtypes.into_iter().zip(&inputs()) {
            module = cast_module(module, dtype);
            let (_, gradients, _) = gradients(&module, input, &weights.clone().cast(dtype));
            rows.step(LEARNING_RATE, &mut module, gradients).unwrap();
        }
        module
    };
    let module = module();
    let cast = steps([FloatDType::F32, FloatDType::F64], &module);
    assert_eq!(cast.word_embeddings.weight.dtype(), DType::F64);
    assert_close(&parameters(&cast), &parameters(&steps([FloatDType::F64; 2], &module)), F32);
}
