//! What is refused.

use super::{
    HIDDEN, LEARNING_RATE, config, device, gradients, inputs, loss_weights, module, parameters, positions,
};
use burn_bert::sparse::{LazyAdamWConfig, RowGradients, SparseAdamConfig, TouchedRows};
use burn_bert::{EmbeddingTable, Error};

#[test]
fn a_head_tied_to_the_word_table_is_refused() {
    let module = module();
    let touched: TouchedRows = module.touched_rows(&inputs()[0]).unwrap();
    let hidden = touched.forward().reshape([-1, HIDDEN as i32]);
    let scores = hidden.matmul(module.word_embeddings.weight.val().transpose());
    let mut gradients = scores.powi_scalar(2).mean().backward();
    let error = RowGradients::from_grads(&mut gradients, touched, &module).unwrap_err();
    assert!(matches!(error, Error::NotRowSparse { table: EmbeddingTable::Word, .. }), "{error}");
    assert!(module.word_embeddings.weight.grad(&gradients).is_some(), "nothing is taken out");
}

#[test]
fn a_dense_gradient_of_the_position_table_is_refused() {
    let module = module();
    let touched = module.touched_rows(&inputs()[0]).unwrap();
    let loss = touched.forward().sum() + positions(&module).val().square().sum();
    let error = RowGradients::from_grads(&mut loss.backward(), touched, &module).unwrap_err();
    assert!(matches!(error, Error::NotRowSparse { table: EmbeddingTable::Position, .. }), "{error}");
}

#[test]
fn gradients_of_another_table_are_refused_and_nothing_changes() {
    let (mut module, weights) = (module(), loss_weights());
    let larger = config().with_vocab_size(21).init(&device());
    let (_, theirs, _) = gradients(&larger, &inputs()[0], &weights);
    let (_, ours, _) = gradients(&module, &inputs()[0], &weights);
    let error = ours.clone().accumulate(theirs.clone()).unwrap_err();
    assert!(matches!(&error, Error::Data { what, .. } if what == "the row gradient"), "{error}");
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
fn values_outside_their_range_are_config_errors() {
    let field = |error: Error| match error {
        Error::Config { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(SparseAdamConfig::new().with_beta_1(1.0).try_init().unwrap_err()), "beta_1");
    assert_eq!(field(SparseAdamConfig::new().with_beta_2(-0.1).try_init().unwrap_err()), "beta_2");
    for epsilon in [0.0, 1e-300] {
        assert_eq!(field(SparseAdamConfig::new().with_epsilon(epsilon).try_init().unwrap_err()), "epsilon");
    }
    assert_eq!(field(LazyAdamWConfig::new().with_beta_2(f64::NAN).try_init().unwrap_err()), "beta_2");
    assert_eq!(field(LazyAdamWConfig::new().with_weight_decay(-1.0).try_init().unwrap_err()), "weight_decay");
}

#[test]
fn a_learning_rate_that_is_negative_or_no_number_is_an_error_that_changes_nothing() {
    let (mut module, mut optimizer) = (module(), LazyAdamWConfig::new().init());
    let before = parameters(&module);
    for rate in [f64::NAN, -1e-3, f64::INFINITY] {
        let (_, rows, _) = gradients(&module, &inputs()[0], &loss_weights());
        let error = optimizer.step(rate, &mut module, rows).unwrap_err();
        let expected = format!("the learning rate is {rate}, but must be finite and not negative");
        assert_eq!(error.to_string(), expected);
        assert_eq!(parameters(&module), before);
    }
}

#[test]
#[should_panic(expected = "max_norm is -1, but must be above 0")]
fn a_negative_norm_is_refused_before_it_turns_the_gradients_of_rows_around() {
    let module = module();
    let (_, mut rows, mut rest) = gradients(&module, &inputs()[0], &loss_weights());
    rows.clip_by_global_norm(&module, &mut rest, -1.0);
}
