//! One golden file: what Hugging Face's embedding layer computed, and the same computed here.

use crate::parity::fixtures;
use crate::tolerance::{Tolerance, parameters, values};
use crate::whole_model::File;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_bert::optim::AdamWConfig;
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, PositionEmbeddingType, cast_module,
};
use std::path::PathBuf;

/// Everything that `tests/fixtures/README.md` describes of one file.
pub struct Golden {
    pub path: PathBuf,
    pub dtype: FloatDType,
    config: BertEmbeddingsConfig,
    file: File,
}

/// The layer's parameters: their Hugging Face names and their paths.
const PARAMETERS: [(&str, &str); 5] = [
    ("word_embeddings.weight", "word_embeddings.weight"),
    ("position_embeddings.weight", "position_embeddings.weight"),
    ("token_type_embeddings.weight", "token_type_embeddings.weight"),
    ("LayerNorm.weight", "layer_norm.gamma"),
    ("LayerNorm.bias", "layer_norm.beta"),
];

impl Golden {
    /// Those of `tests/fixtures/embeddings`.
    pub fn all() -> Vec<Self> {
        let folder = std::fs::read_dir(fixtures().join("embeddings")).unwrap();
        let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert_eq!(paths.len(), 32, "as many fixtures as README.md lists");
        paths.into_iter().map(Self::read).collect()
    }

    fn read(path: PathBuf) -> Self {
        let file = File::at(&path);
        let config = file.metadata("config");
        let size = |key: &str| config[key].as_u64().unwrap() as usize;
        let positions = match config["position_scheme"].as_str().unwrap() {
            "absolute" => PositionEmbeddingType::Absolute,
            "after_padding" => PositionEmbeddingType::AfterPadding,
            other => panic!("{other} is not a position scheme"),
        };
        let config = BertEmbeddingsConfig::new()
            .with_vocab_size(size("vocab_size"))
            .with_hidden_size(size("hidden_size"))
            .with_max_position_embeddings(size("max_position_embeddings"))
            .with_type_vocab_size(size("type_vocab_size"))
            .with_pad_token_id(config["pad_token_id"].as_u64().map(|id| id as usize))
            .with_layer_norm_eps(config["layer_norm_eps"].as_f64().unwrap())
            .with_hidden_dropout_prob(0.0)
            .with_position_embedding_type(positions);
        Self { path, dtype: file.data(PARAMETERS[0].0).dtype().into(), config, file }
    }

    /// The layer with the file's weights, in the file's dtype.
    fn module(&self, device: &Device) -> BertEmbeddings {
        let mut module = cast_module(self.config.init(device), self.dtype).unwrap();
        module.load(&self.path).unwrap();
        module
    }

    fn vectors(&self, name: &str, device: &Device) -> Tensor<3> {
        Tensor::from_data(self.file.data(name), (device, DType::from(self.dtype)))
    }

    /// The batch, and its vectors if it is one of `inputs_embeds`.
    fn input(&self, device: &Device) -> (BertEmbeddingsInput, Option<Tensor<3>>) {
        let ids = |name: &str| {
            self.file.has(name).then(|| Tensor::<2, Int>::from_data(self.file.data(name), device))
        };
        let embeds = self.file.has("inputs_embeds").then(|| {
            let tensor = self.vectors("inputs_embeds", device);
            if device.is_autodiff() { tensor.require_grad() } else { tensor }
        });
        let mut input = match &embeds {
            Some(embeds) => BertEmbeddingsInput::from_embeds(embeds.clone()),
            None => BertEmbeddingsInput::from_ids(ids("input_ids").unwrap()),
        }
        .unwrap();
        if let Some(ids) = ids("token_type_ids") {
            input = input.with_token_type_ids(ids).unwrap();
        }
        if let Some(ids) = ids("position_ids") {
            input = input.with_position_ids(ids).unwrap();
        }
        let past = self.file.metadata("past_key_values_length").as_u64().unwrap() as usize;
        (input.with_past_key_values_length(past), embeds)
    }

    /// All that the file has: output, gradients, and what ten steps cost and end with.
    pub fn compute(&self, device: &Device) -> Vec<(String, Vec<f64>)> {
        if !self.file.has("upstream") {
            return vec![("output".into(), values(self.module(device).forward(&self.input(device).0)))];
        }
        [self.gradients(device), self.training(device)].concat()
    }

    /// Output, then the gradient of each parameter and of `inputs_embeds` under the stored upstream gradient.
    fn gradients(&self, device: &Device) -> Vec<(String, Vec<f64>)> {
        let device = device.clone().autodiff();
        let module = self.module(&device);
        let (input, embeds) = self.input(&device);
        let output = module.forward(&input);
        let gradients = (output.clone() * self.vectors("upstream", &device)).sum().backward();
        let found = parameters(&module, Some(&gradients));
        let gradient = |(name, path): (&str, &str)| {
            // A table that nothing was looked up in has none.
            let zeros = || vec![0.0; self.file.values(name).len()];
            (format!("grad.{name}"), found.get(path).cloned().unwrap_or_else(zeros))
        };
        let mut all = vec![("output".to_string(), values(output.inner()))];
        all.extend(PARAMETERS.into_iter().map(gradient));
        if let Some(embeds) = embeds {
            all.push(("grad.inputs_embeds".into(), values(embeds.grad(&gradients).unwrap())));
        }
        all
    }

    /// The loss before each step of AdamW, then every parameter after all of them.
    fn training(&self, device: &Device) -> Vec<(String, Vec<f64>)> {
        let device = device.clone().autodiff();
        let mut module = self.module(&device);
        let (input, _) = self.input(&device);
        let target = self.vectors("target", &device);
        let settings = self.file.metadata("optimizer");
        let setting = |name: &str| settings[name].as_f64().unwrap();
        let mut optimizer = AdamWConfig::new()
            .with_beta_1(settings["betas"][0].as_f64().unwrap())
            .with_beta_2(settings["betas"][1].as_f64().unwrap())
            .with_epsilon(setting("eps"))
            .with_weight_decay(setting("weight_decay"))
            .init();
        let mut losses = Vec::new();
        for _ in 0..setting("steps") as usize {
            let loss = (module.forward(&input) - target.clone()).square().mean();
            losses.extend(values(loss.clone().inner()));
            let gradients = GradientsParams::from_grads(loss.backward(), &module);
            module = optimizer.step(setting("lr"), module, gradients);
        }
        let mut found = parameters(&module, None);
        let after =
            PARAMETERS.iter().map(|(name, path)| (format!("after.{name}"), found.remove(*path).unwrap()));
        std::iter::once(("losses".to_string(), losses)).chain(after).collect()
    }

    /// The largest amount by which a stored tensor is missed, and that amount as a share of what is allowed.
    pub fn miss(&self, name: &str, found: &[f64], tolerance: Tolerance) -> (f64, f64) {
        let expected = self.file.values(name);
        assert_eq!(found.len(), expected.len(), "{name} has as many values");
        let misses = found.iter().zip(&expected).map(|(a, b)| {
            let miss = (a - b).abs();
            let miss = if miss.is_nan() { f64::INFINITY } else { miss };
            (miss, miss / (tolerance.absolute + tolerance.relative * b.abs()))
        });
        misses.fold((0.0, 0.0), |worst, miss| (f64::max(worst.0, miss.0), f64::max(worst.1, miss.1)))
    }
}
