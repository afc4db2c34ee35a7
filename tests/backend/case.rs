//! The device under test, and modules and numbers that are the same on every device.

use crate::tolerance::Tolerance;
pub use crate::tolerance::{assert_all_close as assert_close, values as host};
use burn::module::Param;
use burn::prelude::*;
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
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
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| f64::from(random.random_range(-1.0..1.0f32))).collect()
}

/// 12 words, 3 token types, 20 positions, H 8, pad 0, no dropout; ε 1e-12.
pub fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new()
        .with_vocab_size(12)
        .with_hidden_size(8)
        .with_max_position_embeddings(20)
        .with_type_vocab_size(3)
        .with_hidden_dropout_prob(0.0)
}

/// Padding at the end, inside and at the start.
pub fn input(device: &Device) -> BertEmbeddingsInput {
    let ids = [[5, 3, 11, 5, 0, 0], [1, 0, 4, 0, 0, 9], [0, 2, 2, 7, 10, 0]];
    let types = [[0, 0, 1, 1, 2, 0], [2, 1, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1]];
    BertEmbeddingsInput::from_rows(&ids, device).unwrap().with_token_type_ids(&types).unwrap()
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
    let norm = module.layer_norm.as_mut().unwrap();
    norm.gamma = vector(4, 1.0);
    norm.beta = Some(vector(5, 0.0));
    module
}

/// Σ w·y with weights that differ for every value: a loss that shows every gradient.
pub fn loss<const D: usize>(output: Tensor<D>) -> Tensor<1> {
    let data = TensorData::new(numbers(output.shape().num_elements(), 6), output.shape());
    let weights = Tensor::from_data(data, (&output.device(), output.dtype()));
    (output * weights).sum()
}
