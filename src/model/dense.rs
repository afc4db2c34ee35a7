//! A layer that gives the vector of a sentence another width.

use crate::embeddings::{TokenEmbedding, check_linear};
use crate::encoder::{Activation, linear, linear_activation};
use crate::error::{Error, Result};
use burn::config::Config;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::activation::sigmoid;
use serde::{Deserialize, Serialize};

/// What [`SentenceDense`] computes of its sums: those of PyTorch's modules that this crate has. [`SentenceDenseConfig`] has an
/// example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenseActivation {
    /// x.
    Identity,
    /// tanh x.
    Tanh,
    /// max(0, x).
    Relu,
    /// The exact GELU, x·Φ(x).
    Gelu,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
}

/// Configuration of a [`SentenceDense`].
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::BertEmbeddingsConfig;
/// use burn_bert::model::{
///     BertForSentenceEmbeddingConfig, BertModelConfig, DenseActivation, SentenceDenseConfig,
/// };
///
/// let bert = BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(8).with_hidden_size(8))
///     .with_num_hidden_layers(1)
///     .with_num_attention_heads(2)
///     .with_intermediate_size(16);
/// let dense = SentenceDenseConfig::new(4).with_activation(DenseActivation::Identity);
/// let model = BertForSentenceEmbeddingConfig::new(bert).with_dense(vec![dense]).init(&Device::default());
/// assert_eq!(model.width(), 4);
/// ```
#[derive(Config, Debug, PartialEq)]
pub struct SentenceDenseConfig {
    /// Length of the vectors that it gives.
    pub out_features: usize,
    /// Whether there is a bias.
    #[config(default = true)]
    pub bias: bool,
    /// What is computed of the sums.
    #[config(default = "DenseActivation::Tanh")]
    pub activation: DenseActivation,
}

impl SentenceDenseConfig {
    pub(super) fn validate(&self) -> Result<()> {
        match self.out_features {
            0 => Err(Error::Config {
                field: "dense",
                problem: "has 0 out_features, but must have at least 1".into(),
            }),
            _ => Ok(()),
        }
    }

    /// A layer for vectors of length `in_features`, initialised as PyTorch's.
    pub(super) fn init(&self, in_features: usize, device: &Device) -> SentenceDense {
        SentenceDense {
            linear: LinearConfig::new(in_features, self.out_features).with_bias(self.bias).init(device),
            activation: self.activation,
        }
    }
}

/// `f(x·W + b)` of the vectors of sentences, part of a
/// [`BertForSentenceEmbedding`](super::BertForSentenceEmbedding).
///
/// Source: `Dense` of sentence-transformers 6.2, without a residual.
#[derive(Module, Debug)]
pub struct SentenceDense {
    /// W, and b if there is one.
    pub linear: Linear,
    #[module(skip)]
    activation: DenseActivation,
}

impl SentenceDense {
    /// The config that builds a layer of this shape.
    pub fn config(&self) -> SentenceDenseConfig {
        SentenceDenseConfig {
            out_features: self.linear.weight.lazy_shape()[1],
            bias: self.linear.bias.is_some(),
            activation: self.activation,
        }
    }

    /// [B, in] → [B, out], or what is wrong with W and b beside the word table.
    pub(super) fn try_forward(&self, x: Tensor<2>, words: &TokenEmbedding) -> Result<Tensor<2>> {
        check_linear("dense.linear", &self.linear, [x.dims()[1], self.config().out_features], words)?;
        Ok(match self.activation {
            DenseActivation::Identity => linear(&self.linear, x),
            DenseActivation::Tanh => linear(&self.linear, x).tanh(),
            DenseActivation::Relu => linear_activation(&self.linear, x, Activation::Relu),
            DenseActivation::Gelu => linear_activation(&self.linear, x, Activation::Gelu),
            DenseActivation::Sigmoid => sigmoid(linear(&self.linear, x)),
        })
    }
}
