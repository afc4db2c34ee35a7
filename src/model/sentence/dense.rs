//! `SentenceDense`: a layer after the pooling.

use crate::encoder::Activation;
use crate::error::{Error, Result};
use crate::layers::{ParameterCheck, TokenEmbedding, linear_activation};
use crate::model::sentence_transformers::torch_class;
use burn::config::Config;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;

/// Configuration of a [`SentenceDense`], a layer of a
/// [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding).
#[derive(Config, Debug, PartialEq)]
pub struct SentenceDenseConfig {
    /// Length of the vectors that it gives.
    pub out_features: usize,
    /// Whether there is a bias.
    #[config(default = true)]
    pub bias: bool,
    /// What is computed of the sums.
    #[config(default = "Activation::Tanh")]
    pub activation: Activation,
}

impl SentenceDenseConfig {
    pub(super) fn validate(&self) -> Result<()> {
        let invalid = |problem: String| Err(Error::config("dense", problem));
        if self.out_features == 0 {
            return invalid("has 0 out_features, but must have at least 1".into());
        }
        torch_class(self.activation).map(drop).or_else(invalid)
    }

    /// A layer that reads vectors of length `width`.
    pub(super) fn build(&self, width: usize, device: &Device) -> SentenceDense {
        // Burn's own initialiser, which is PyTorch's.
        let linear = LinearConfig::new(width, self.out_features).with_bias(self.bias).init(device);
        SentenceDense { linear, activation: self.activation }
    }
}

/// `f(x·W + b)` of the vectors of sentences, part of a [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding).
///
/// Source: `Dense` of sentence-transformers 6.2, without a residual.
#[derive(Module, Debug)]
pub struct SentenceDense {
    /// W, and b if there is one.
    pub linear: Linear,
    #[module(skip)]
    activation: Activation,
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

    /// [B, in] → [B, out], or what is wrong with W and b beside the word embeddings.
    pub(super) fn try_forward(&self, x: Tensor<2>, words: &TokenEmbedding) -> Result<Tensor<2>> {
        let shape = [x.dims()[1], self.config().out_features];
        ParameterCheck::beside(words).linear("dense.linear", &self.linear, shape)?;
        Ok(linear_activation(&self.linear, x, self.activation))
    }
}
