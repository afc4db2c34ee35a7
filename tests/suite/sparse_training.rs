//! Row optimisers, and training with them: what moves and what does not, beside dense training.

use crate::devices::supported;
use crate::tolerance::{F32, assert_close, values};
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::module::{Module, Param};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::prelude::*;
use burn::tensor::{DType, Distribution, FloatDType};
use burn_bert::sparse::{
    LazyAdamWConfig, RowGradients, RowSgdConfig, SparseAdamConfig, SparseOptimizer, TouchedRows,
};
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingTable, Error, VocabularyResize,
    cast_module,
};

const HIDDEN: usize = 8;
const LEARNING_RATE: f64 = 0.05;

fn device() -> Device {
    Device::default().autodiff()
}

fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(20)
        .with_hidden_size(HIDDEN)
        .with_max_position_embeddings(12)
        .with_hidden_dropout_prob(0.0)
}

/// A module whose padding row is not zero, so that what moves it is seen.
fn module() -> BertEmbeddings {
    let mut module = config().init(&device());
    let normal =
        |rows| Tensor::random([rows, HIDDEN], Distribution::Normal(0.0, 1.0), &device()).require_grad();
    module.word_embeddings.weight = Param::from_tensor(normal(20));
    module.position_embeddings.as_mut().unwrap().weight = Param::from_tensor(normal(12));
    module
}

fn input(ids: &[[i32; 5]]) -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(ids, &device()).unwrap()
}

/// Batches with other ids each, some shared, some repeated, some padding.
fn inputs() -> Vec<BertEmbeddingsInput> {
    vec![
        input(&[[4, 5, 6, 0, 0], [9, 8, 7, 6, 0]]),
        input(&[[4, 4, 4, 0, 0], [10, 11, 12, 13, 14]]).with_past_key_values_length(4),
        input(&[[19, 0, 19, 0, 4], [1, 2, 3, 4, 5]]),
    ]
}

fn loss_weights() -> Tensor<3> {
    Tensor::random([2, 5, HIDDEN], Distribution::Normal(0.0, 1.0), &device())
}

fn positions(module: &BertEmbeddings) -> &Param<Tensor<2>> {
    &module.position_embeddings.as_ref().unwrap().weight
}

fn row(table: &Param<Tensor<2>>, row: usize) -> Vec<f64> {
    values(table.val().narrow(0, row, 1))
}

/// Every parameter of a module.
fn parameters(module: &BertEmbeddings) -> Vec<f64> {
    let mut all = values(module.word_embeddings.weight.val());
    all.extend(values(positions(module).val()));
    all.extend(values(module.token_type_embeddings.weight.val()));
    all.extend(values(module.layer_norm.gamma.val()));
    all.extend(values(module.layer_norm.beta.as_ref().unwrap().val()));
    all
}

/// The gradients of Σ y³·w, of rows and of everything else.
fn gradients(
    module: &BertEmbeddings,
    input: &BertEmbeddingsInput,
    weights: &Tensor<3>,
) -> (f64, RowGradients, GradientsParams) {
    let touched = module.touched_rows(input).unwrap();
    let loss = (touched.forward().powi_scalar(3) * weights.clone()).mean();
    let mut gradients = loss.backward();
    let rows = RowGradients::from_grads(&mut gradients, touched, module).unwrap();
    (values(loss)[0], rows, GradientsParams::from_grads(gradients, module))
}

fn dense_gradients(
    module: &BertEmbeddings,
    input: &BertEmbeddingsInput,
    weights: &Tensor<3>,
) -> GradientsParams {
    let loss = (module.forward(input).powi_scalar(3) * weights.clone()).mean();
    GradientsParams::from_grads(loss.backward(), module)
}

/// Trains on `inputs` in turn and returns the losses.
fn train(
    module: &mut BertEmbeddings,
    rows: &mut SparseOptimizer,
    rest: &mut ModuleOptimizer,
    weights: &Tensor<3>,
    steps: std::ops::Range<usize>,
) -> Vec<f64> {
    let inputs = inputs();
    let step = |step: usize| {
        let (loss, row_gradients, gradients) = gradients(module, &inputs[step % inputs.len()], weights);
        rows.step(LEARNING_RATE, module, row_gradients).unwrap();
        *module = rest.step(LEARNING_RATE, module.clone(), gradients);
        loss
    };
    steps.map(step).collect()
}

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
fn only_touched_rows_move_and_the_padding_row_never_does() {
    for mut rows in [
        RowSgdConfig::new().init(),
        SparseAdamConfig::new().init(),
        LazyAdamWConfig::new().with_weight_decay(0.5).init(),
    ] {
        let mut module = module();
        let mut rest = AdamWConfig::new().init();
        let weights = loss_weights();
        train(&mut module, &mut rows, &mut rest, &weights, 0..3); // every word but 15..19 and 0 has momentum now
        let before = module.clone();
        let (_, gradients, _) = gradients(&module, &inputs()[0], &weights);
        rows.step(LEARNING_RATE, &mut module, gradients).unwrap();
        let moved = |table: &dyn Fn(&BertEmbeddings) -> Param<Tensor<2>>, ids: std::ops::Range<usize>| {
            ids.filter(|&id| row(&table(&module), id) != row(&table(&before), id)).collect::<Vec<_>>()
        };
        assert_eq!(
            moved(&|module| module.word_embeddings.weight.clone(), 0..20),
            [4, 5, 6, 7, 8, 9],
            "{rows:?}"
        );
        assert_eq!(moved(&|module| positions(module).clone(), 0..12), [0, 1, 2, 3, 4], "{rows:?}");
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
fn a_frozen_table_stays_and_the_others_train() {
    let mut module = module();
    module.word_embeddings.weight = module.word_embeddings.weight.set_require_grad(false);
    let before = module.clone();
    let (mut rows, mut rest) = (SparseAdamConfig::new().init(), SgdConfig::new().init());
    train(&mut module, &mut rows, &mut rest, &loss_weights(), 0..3);
    assert_eq!(values(module.word_embeddings.weight.val()), values(before.word_embeddings.weight.val()));
    assert!(!module.word_embeddings.weight.is_require_grad());
    assert_ne!(values(positions(&module).val()), values(positions(&before).val()));
    assert!(positions(&module).is_require_grad());

    // Frozen altogether: there is nothing to step, and nothing to stumble over.
    let touched = before.clone().freeze().touched_rows(&inputs()[0]).unwrap();
    assert!(!touched.forward().is_tracked());
}

#[test]
fn a_step_keeps_parameter_ids_and_clones_keep_their_values() {
    let mut module = module();
    let before = module.clone();
    let held = values(before.word_embeddings.weight.val());
    let (mut rows, mut rest) = (SparseAdamConfig::new().init(), SgdConfig::new().init());
    train(&mut module, &mut rows, &mut rest, &loss_weights(), 0..2);
    assert_eq!(module.word_embeddings.weight.id, before.word_embeddings.weight.id);
    assert_eq!(values(before.word_embeddings.weight.val()), held);
    assert_ne!(values(module.word_embeddings.weight.val()), held);
}

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
    squares += values(dense_of(&module.token_type_embeddings.weight).square().sum())[0];
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
fn a_head_tied_to_the_word_table_is_refused() {
    let module = module();
    let touched: TouchedRows = module.touched_rows(&inputs()[0]).unwrap();
    let hidden = touched.forward().reshape([-1, HIDDEN as i32]);
    let scores = hidden.matmul(module.word_embeddings.weight.val().transpose());
    let mut gradients = scores.powi_scalar(2).mean().backward();
    let error = RowGradients::from_grads(&mut gradients, touched, &module).unwrap_err();
    assert!(matches!(error, Error::DenseGradient { table: EmbeddingTable::Word }), "{error}");
    assert_eq!(
        error.to_string(),
        "the word table got a dense gradient beside that of its rows: another part of the model reads the whole \
         table (a tied output head does); train the table densely with BertEmbeddings::forward, or untie the head"
    );
    assert!(module.word_embeddings.weight.grad(&gradients).is_some(), "nothing is taken out");
}

#[test]
fn a_dense_gradient_of_the_position_table_is_refused() {
    let module = module();
    let touched = module.touched_rows(&inputs()[0]).unwrap();
    let loss = touched.forward().sum() + positions(&module).val().square().sum();
    let error = RowGradients::from_grads(&mut loss.backward(), touched, &module).unwrap_err();
    assert!(matches!(error, Error::DenseGradient { table: EmbeddingTable::Position }), "{error}");
}

#[test]
fn gradients_of_another_table_are_refused_and_nothing_changes() {
    let (mut module, weights) = (module(), loss_weights());
    let larger = config().with_vocab_size(21).init(&device());
    let (_, theirs, _) = gradients(&larger, &inputs()[0], &weights);
    let (_, ours, _) = gradients(&module, &inputs()[0], &weights);
    let error = ours.clone().accumulate(theirs.clone()).unwrap_err();
    assert!(matches!(error, Error::RowsOfOtherTable { table: EmbeddingTable::Word, .. }), "{error}");
    let before = parameters(&module);
    let mut rows = SparseAdamConfig::new().init();
    let error = rows.step(LEARNING_RATE, &mut module, theirs).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the row gradient is for a word table of shape [21, 8], but this one has shape [20, 8]; \
         was the model resized or another one passed?"
    );
    assert_eq!(parameters(&module), before);

    // The same with a loaded state of another shape.
    rows.step(LEARNING_RATE, &mut module, ours).unwrap();
    let mut rows = SparseAdamConfig::new().init().from_bytes(rows.to_bytes().unwrap(), &device()).unwrap();
    let mut larger = larger;
    let (_, theirs, _) = gradients(&larger, &inputs()[0], &weights);
    let error = rows.step(LEARNING_RATE, &mut larger, theirs).unwrap_err();
    assert!(error.to_string().starts_with("the state of the optimiser is for a word table"), "{error}");
}

#[test]
fn a_resized_table_starts_afresh_and_the_other_one_goes_on() {
    // Larger, smaller, and of the old size again with rows that are new.
    for sizes in [&[24][..], &[15], &[15, 20]] {
        let (mut module, weights) = (module(), loss_weights());
        let mut rows = SparseAdamConfig::new().init();
        train(&mut module, &mut rows, &mut SgdConfig::new().init(), &weights, 0..4);
        let saved = rows.to_bytes().unwrap();
        for &size in sizes {
            module.resize_vocabulary(&VocabularyResize::new(size)).unwrap();
        }
        let (_, gradients, _) = gradients(&module, &inputs()[0], &weights);

        let mut afresh = module.clone();
        SparseAdamConfig::new().init().step(LEARNING_RATE, &mut afresh, gradients.clone()).unwrap();
        let mut frozen = module.clone();
        frozen.word_embeddings = frozen.word_embeddings.freeze();
        let (_, of_positions, _) = self::gradients(&frozen, &inputs()[0], &weights);
        let mut positions_alone = SparseAdamConfig::new().init().from_bytes(saved, &device()).unwrap();
        positions_alone.step(LEARNING_RATE, &mut frozen, of_positions).unwrap();

        rows.step(LEARNING_RATE, &mut module, gradients).unwrap();
        let words = |module: &BertEmbeddings| values(module.word_embeddings.weight.val());
        assert_eq!(words(&module), words(&afresh), "{sizes:?}");
        assert_eq!(values(positions(&module).val()), values(positions(&frozen).val()), "{sizes:?}");
        assert_ne!(values(positions(&module).val()), values(positions(&afresh).val()), "{sizes:?}");
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
fn values_outside_their_range_are_config_errors() {
    let field = |error: Error| match error {
        Error::Config { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(SparseAdamConfig::new().with_beta_1(1.0).try_init().unwrap_err()), "beta_1");
    assert_eq!(field(SparseAdamConfig::new().with_beta_2(-0.1).try_init().unwrap_err()), "beta_2");
    assert_eq!(field(SparseAdamConfig::new().with_epsilon(0.0).try_init().unwrap_err()), "epsilon");
    assert_eq!(field(LazyAdamWConfig::new().with_beta_2(f64::NAN).try_init().unwrap_err()), "beta_2");
    assert_eq!(field(LazyAdamWConfig::new().with_weight_decay(-1.0).try_init().unwrap_err()), "weight_decay");
}
