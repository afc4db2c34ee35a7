//! Row optimisers, and training with them: what moves and what does not, beside dense training.

mod gradients;
mod refused;
mod rules;
mod what_moves;

use crate::tolerance::values;
use burn::module::Param;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_bert::sparse::{RowGradients, SparseOptimizer};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

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
    all.extend(values(module.token_type_embeddings.as_ref().unwrap().weight.val()));
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
