//! The device under test, and modules and numbers that are the same on every device.

use crate::reference::{Batch, Expected, Reference, Sums, host};
use crate::tolerance::Tolerance;
use burn::module::Param;
use burn::prelude::*;
use burn::tensor::{DType, Gradients};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, PositionEmbeddingType};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A device, and how exact it is in f32.
pub struct Case {
    pub device: Device,
    pub tolerance: Tolerance,
}

/// A device's random numbers are one stream for the whole process, and tests run side by side. Whoever draws
/// from it holds this; every other test fills its modules from the host.
pub fn hold_random_numbers() -> MutexGuard<'static, ()> {
    static STREAM: Mutex<()> = Mutex::new(());
    STREAM.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Case {
    pub fn autodiff(&self) -> Device {
        self.device.clone().autodiff()
    }
}

/// Numbers uniform in (−1, 1), rounded to f32: every device and dtype from there on sees the same.
pub fn numbers(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        // xorshift64*, Vigna 2016
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        f64::from((bits as f32 / (1u32 << 23) as f32) - 1.0)
    };
    (0..len).map(|_| next()).collect()
}

/// 12 words, 3 token types, 20 positions, H 8, pad 0, no dropout; ε 1e-12.
pub fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(12)
        .with_hidden_size(8)
        .with_max_position_embeddings(20)
        .with_type_vocab_size(3)
        .with_layer_norm_eps(crate::reference::EPSILON)
        .with_hidden_dropout_prob(0.0)
}

/// The module of `config`, filled from the host; a device's random numbers are not touched.
///
/// Tables are about as large as at initialisation, ±0.035, γ lies around 1 and β around 0. The padding row is
/// not zero, so that a lookup which returns zeros for it is found out.
pub fn module(config: &BertEmbeddingsConfig, device: &Device) -> BertEmbeddings {
    let fill = |param: &mut Param<Tensor<2>>, seed: u64| {
        let shape = param.lazy_shape();
        let values: Vec<f64> = numbers(shape.num_elements(), seed).iter().map(|x| x * 0.035).collect();
        *param = Param::from_data(TensorData::new(values, shape), device);
    };
    let mut module = config.init(device);
    fill(&mut module.word_embeddings.weight, 1);
    fill(&mut module.token_type_embeddings.as_mut().unwrap().weight, 2);
    if let Some(table) = &mut module.position_embeddings {
        fill(&mut table.weight, 3);
    }
    let vector = |seed: u64, middle: f64| {
        let values: Vec<f64> = numbers(config.hidden_size, seed).iter().map(|x| middle + x * 0.3).collect();
        Param::<Tensor<1>>::from_data(TensorData::new(values, [config.hidden_size]), device)
    };
    module.layer_norm.gamma = vector(4, 1.0);
    module.layer_norm.beta = Some(vector(5, 0.0));
    module
}

/// Weights of a loss Σ w·y, different for every value.
pub fn weights(output: &Tensor<3>) -> (Tensor<3>, Vec<f64>) {
    let values = numbers(output.shape().num_elements(), 6);
    let data = TensorData::new(values, output.shape());
    let weights = Tensor::from_data(data, (&output.device(), output.dtype()));
    (weights.clone(), host(weights))
}

/// Runs a batch of ids or of vectors forward and backward and compares everything with the loops.
#[track_caller]
pub fn assert_equals_reference(what: &str, module: &BertEmbeddings, batch: &Batch, tolerance: Tolerance) {
    let weight = module.word_embeddings.weight.val();
    let (mut batch, device) = (batch.clone(), weight.device());
    let (input, embeds) = match &batch.embeds {
        None => (batch.input(&device), None),
        Some(_) => {
            let (input, embeds) = batch.embeds_input(module.hidden_size(), &device, weight.dtype());
            batch.embeds = Some(host(embeds.clone()));
            (input, Some(embeds))
        }
    };
    let output = module.forward(&input);
    let (weight, upstream) = weights(&output);
    let expected = Reference::of(module).run(&batch, |_| upstream);
    let gradients = (output.clone() * weight).sum().backward();
    assert_close(&format!("{what}: output"), &host(output), &expected.output, tolerance);
    assert_gradients(what, module, &gradients, &expected, tolerance, embeds.is_none());
    if let Some(embeds) = embeds {
        let found = host(embeds.grad(&gradients).unwrap());
        assert_sums(&format!("{what}: gradient of inputs_embeds"), &found, &expected.input, tolerance);
    }
}

#[track_caller]
fn assert_gradients(
    what: &str,
    module: &BertEmbeddings,
    gradients: &Gradients,
    expected: &Expected,
    tolerance: Tolerance,
    from_ids: bool,
) {
    let word = module.word_embeddings.weight.grad(gradients);
    assert_eq!(word.is_some(), from_ids, "{what}: the word table has a gradient exactly if it was looked up");
    let position = module.position_embeddings.as_ref().and_then(|table| table.weight.grad(gradients));
    assert_eq!(position.is_some(), module.position_embeddings.is_some());
    let beta = module.layer_norm.beta.as_ref().and_then(|beta| beta.grad(gradients));
    for (name, found, expected) in [
        ("word table", word.map(host), &expected.word),
        ("position table", position.map(host), &expected.position),
        (
            "token type table",
            module.token_type_embeddings.as_ref().unwrap().weight.grad(gradients).map(host),
            &expected.token_type,
        ),
        ("gamma", module.layer_norm.gamma.grad(gradients).map(host), &expected.gamma),
        ("beta", beta.map(host), &expected.beta),
    ] {
        if let Some(found) = found {
            assert_sums(&format!("{what}: gradient of {name}"), &found, expected, tolerance);
        }
    }
    let padding = module.position_embedding_type() == PositionEmbeddingType::AfterPadding;
    assert_padding_row_is_zero(what, &module.word_embeddings, gradients);
    if let (true, Some(table)) = (padding, &module.position_embeddings) {
        assert_padding_row_is_zero(what, table, gradients);
    }
}

#[track_caller]
fn assert_sums(what: &str, found: &[f64], expected: &Sums, tolerance: Tolerance) {
    assert_close_sums(what, found, &expected.value, &expected.magnitude, tolerance);
}

/// As [`tolerance::assert_close`](crate::tolerance::assert_close), saying of what.
#[track_caller]
pub fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: Tolerance) {
    assert_close_sums(what, found, expected, expected, tolerance);
}

/// As [`assert_close`], with the relative part taken of the sum of the absolute values of what was added up:
/// where large terms cancel, their roundings do not.
#[track_caller]
pub fn assert_close_sums(
    what: &str,
    found: &[f64],
    expected: &[f64],
    magnitude: &[f64],
    tolerance: Tolerance,
) {
    assert_eq!(found.len(), expected.len(), "{what}: as many values");
    for (i, ((&found, &expected), &magnitude)) in found.iter().zip(expected).zip(magnitude).enumerate() {
        let allowed = tolerance.absolute + tolerance.relative * magnitude.abs();
        let error = (found - expected).abs();
        assert!(
            error <= allowed,
            "{what}[{i}] is {found}, not {expected}: {error:e} apart, {allowed:e} allowed"
        );
    }
}

/// Exactly 0.0, whatever the tolerance.
#[track_caller]
fn assert_padding_row_is_zero(what: &str, table: &burn_bert::TokenEmbedding, gradients: &Gradients) {
    let Some(gradient) = table.weight.grad(gradients) else { return };
    let Some(row) = table.padding_idx() else { return };
    let row = host(gradient.narrow(0, row, 1));
    assert!(row.iter().all(|&value| value == 0.0), "{what}: gradient of the padding row is {row:?}, not 0.0");
}

/// The dtypes besides f32 that the device computes in, at least one.
pub fn other_dtypes(device: &Device) -> Vec<DType> {
    crate::devices::supported(device, &[DType::F64, DType::F16, DType::BF16])
}
