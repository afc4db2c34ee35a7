//! One golden file: what Hugging Face's embedding layer computed, and the same computed here.

#![allow(dead_code)] // every test file takes what it needs

mod adamw;

use crate::tolerance::{Tolerance, values};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, PositionEmbeddingType, cast_module,
};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Everything that `tests/fixtures/README.md` describes of one file.
pub struct Golden {
    pub path: PathBuf,
    pub dtype: FloatDType,
    pub config: BertEmbeddingsConfig,
    bytes: Vec<u8>,
    past_key_values_length: usize,
    optimizer: Value,
}

/// The layer's parameters by their Hugging Face names, in the order of [`parameters`].
pub const NAMES: [&str; 5] = [
    "word_embeddings.weight",
    "position_embeddings.weight",
    "token_type_embeddings.weight",
    "LayerNorm.weight",
    "LayerNorm.bias",
];

impl Golden {
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        let json = |key: &str| serde_json::from_str::<Value>(&metadata[key]).unwrap();
        let dtype = match header.info(NAMES[0]).unwrap().dtype {
            Dtype::F64 => FloatDType::F64,
            Dtype::F32 => FloatDType::F32,
            Dtype::F16 => FloatDType::F16,
            Dtype::BF16 => FloatDType::BF16,
            other => panic!("{other} is not a dtype of weights"),
        };
        let config = json("config");
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
        Self {
            path: path.to_path_buf(),
            dtype,
            config,
            past_key_values_length: json("past_key_values_length").as_u64().unwrap() as usize,
            optimizer: json("optimizer"),
            bytes,
        }
    }

    /// The layer with the file's weights, in the file's dtype.
    pub fn module(&self, device: &Device) -> BertEmbeddings {
        let mut module = cast_module(self.config.init(device), self.dtype).unwrap();
        module.load(&self.path).unwrap();
        module
    }

    /// The batch, and its vectors if it is one of `inputs_embeds`.
    pub fn input(&self, device: &Device) -> (BertEmbeddingsInput, Option<Tensor<3>>) {
        let ids = |name: &str| Some(Tensor::<2, Int>::from_data(self.data(name)?, device));
        let embeds = self.data("inputs_embeds").map(|data| {
            let tensor = Tensor::<3>::from_data(data, (device, self.dtype.into()));
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
        (input.with_past_key_values_length(self.past_key_values_length), embeds)
    }

    /// Output, then the gradient of each parameter and of `inputs_embeds` under the stored upstream gradient.
    pub fn gradients(&self, device: &Device) -> Vec<(String, Vec<f64>)> {
        let device = device.clone().autodiff();
        let module = self.module(&device);
        let (input, embeds) = self.input(&device);
        let output = module.forward(&input);
        let upstream = Tensor::<3>::from_data(self.data("upstream").unwrap(), (&device, self.dtype.into()));
        let gradients = (output.clone() * upstream).sum().backward();
        let zeros = |name: &str| vec![0.0; self.values(name).len()];
        let table = |name: &str, table: &burn_bert::TokenEmbedding| {
            table.weight.grad(&gradients).map_or_else(|| zeros(name), values)
        };
        let mut found = vec![("output".to_string(), values(output.inner()))];
        let beta = module.layer_norm.beta.as_ref().unwrap();
        let positions = module.position_embeddings.as_ref().unwrap();
        let grads = [
            table(NAMES[0], &module.word_embeddings),
            table(NAMES[1], positions),
            table(NAMES[2], module.token_type_embeddings.as_ref().unwrap()),
            values(module.layer_norm.gamma.grad(&gradients).unwrap()),
            values(beta.grad(&gradients).unwrap()),
        ];
        found.extend(NAMES.iter().zip(grads).map(|(name, grad)| (format!("grad.{name}"), grad)));
        if let Some(embeds) = embeds {
            found.push(("grad.inputs_embeds".into(), values(embeds.grad(&gradients).unwrap())));
        }
        found
    }

    /// The loss before each step of Burn's AdamW, then every parameter after all of them.
    ///
    /// It equals PyTorch's with PyTorch's ε (1e-8, where Burn's default is 1e-5) and weight decay (1e-2, where
    /// Burn's is 1e-4), as far as its f32 settings allow.
    pub fn training(&self, device: &Device) -> Vec<(String, Vec<f64>)> {
        let mut optimizer = AdamWConfig::new()
            .with_beta_1(self.betas()[0] as f32)
            .with_beta_2(self.betas()[1] as f32)
            .with_epsilon(self.setting("eps") as f32)
            .with_weight_decay(self.setting("weight_decay") as f32)
            .init();
        self.train(device, |module, gradients| optimizer.step(self.setting("lr"), module, gradients))
    }

    /// As [`training`](Self::training), with an AdamW that is f64 throughout.
    pub fn training_in_f64(&self, device: &Device) -> Vec<(String, Vec<f64>)> {
        let mut optimizer = adamw::AdamW {
            lr: self.setting("lr"),
            betas: self.betas(),
            eps: self.setting("eps"),
            weight_decay: self.setting("weight_decay"),
            step: 0,
            moments: Default::default(),
        };
        self.train(device, |module, gradients| optimizer.step(module, gradients))
    }

    fn train(
        &self,
        device: &Device,
        mut step: impl FnMut(BertEmbeddings, GradientsParams) -> BertEmbeddings,
    ) -> Vec<(String, Vec<f64>)> {
        let device = device.clone().autodiff();
        let mut module = self.module(&device);
        let (input, _) = self.input(&device);
        let target = Tensor::<3>::from_data(self.data("target").unwrap(), (&device, self.dtype.into()));
        let mut losses = Vec::new();
        for _ in 0..self.setting("steps") as usize {
            let loss = (module.forward(&input) - target.clone()).square().mean();
            losses.extend(values(loss.clone().inner()));
            let gradients = GradientsParams::from_grads(loss.backward(), &module);
            module = step(module, gradients);
        }
        let mut found = vec![("losses".to_string(), losses)];
        let after = NAMES.iter().zip(parameters(&module));
        found.extend(after.map(|(name, values)| (format!("after.{name}"), values)));
        found
    }

    fn setting(&self, name: &str) -> f64 {
        self.optimizer[name].as_f64().unwrap()
    }

    fn betas(&self) -> [f64; 2] {
        [0, 1].map(|index| self.optimizer["betas"][index].as_f64().unwrap())
    }

    /// The largest amount by which a stored tensor is missed, and that amount as a share of what is allowed.
    pub fn miss(&self, name: &str, found: &[f64], tolerance: Tolerance) -> (f64, f64) {
        let expected = self.values(name);
        assert_eq!(found.len(), expected.len(), "{name} has as many values");
        let misses = found.iter().zip(&expected).map(|(a, b)| {
            let miss = (a - b).abs();
            let miss = if miss.is_nan() { f64::INFINITY } else { miss };
            (miss, miss / (tolerance.absolute + tolerance.relative * b.abs()))
        });
        misses.fold((0.0, 0.0), |worst, miss| (f64::max(worst.0, miss.0), f64::max(worst.1, miss.1)))
    }

    pub fn values(&self, name: &str) -> Vec<f64> {
        self.data(name).unwrap_or_else(|| panic!("no {name}")).iter::<f64>().collect()
    }

    pub fn has_gradients(&self) -> bool {
        self.data("upstream").is_some()
    }

    pub fn has_training(&self) -> bool {
        !self.optimizer.is_null()
    }

    fn data(&self, name: &str) -> Option<TensorData> {
        use burn::tensor::{bf16, f16};
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).ok()?;
        macro_rules! decode {
            ($type:ty) => {{
                let chunks = view.data().as_chunks().0.iter();
                TensorData::new(chunks.map(|&b| <$type>::from_le_bytes(b)).collect(), view.shape().to_vec())
            }};
        }
        Some(match view.dtype() {
            Dtype::F64 => decode!(f64),
            Dtype::F32 => decode!(f32),
            Dtype::F16 => decode!(f16),
            Dtype::BF16 => decode!(bf16),
            Dtype::I64 => decode!(i64),
            other => panic!("{name} is of {other}"),
        })
    }
}

/// All parameters, in the order of [`NAMES`].
pub fn parameters(module: &BertEmbeddings) -> [Vec<f64>; 5] {
    [
        values(module.word_embeddings.weight.val()),
        values(module.position_embeddings.as_ref().unwrap().weight.val()),
        values(module.token_type_embeddings.as_ref().unwrap().weight.val()),
        values(module.layer_norm.gamma.val()),
        values(module.layer_norm.beta.as_ref().unwrap().val()),
    ]
}
