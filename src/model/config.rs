//! The configuration of `BertModel`.

use crate::embeddings::{BertEmbeddingsConfig, EmbeddingInitializer, check_dropout};
use crate::encoder::{Activation, BertEncoderConfig};
use crate::error::{Error, Result};
use burn::config::Config;
use burn::nn::Linear;
use burn::prelude::*;

/// What a head scores.
#[derive(Clone, Copy, Debug)]
pub(super) enum Classified {
    Sequences,
    Tokens,
    Answers,
}

/// Configuration of a [`BertModel`](super::BertModel); the defaults are BERT-base's.
///
/// The heads' configs contain one: [`BertForMaskedLmConfig::bert`](super::BertForMaskedLmConfig::bert).
#[derive(Config, Debug, PartialEq)]
pub struct BertModelConfig {
    /// The input layer. Its hidden size, LayerNorm ε, dropout and initialiser serve the whole model.
    pub embeddings: BertEmbeddingsConfig,
    /// Transformer layers.
    #[config(default = 12)]
    pub num_hidden_layers: usize,
    /// Attention heads of a layer; must divide the hidden size.
    #[config(default = 12)]
    pub num_attention_heads: usize,
    /// Length of the vectors inside a layer's feed-forward network.
    #[config(default = 3072)]
    pub intermediate_size: usize,
    /// The activation of a layer's feed-forward network, and of a masked-language-model head but RoBERTa's, ELECTRA's
    /// and MPNet's.
    #[config(default = "Activation::Gelu")]
    pub hidden_act: Activation,
    /// Probability that dropout zeroes an attention weight in training, in [0, 1).
    #[config(default = 0.1)]
    pub attention_probs_dropout_prob: f64,
}

impl BertModelConfig {
    /// `bert-base-uncased`: 109,482,240 parameters, the pooler's included.
    pub fn bert_base_uncased() -> Self {
        Self::new(BertEmbeddingsConfig::bert_base_uncased())
    }

    /// `bert-base-chinese`: 102,267,648 parameters, the pooler's included.
    pub fn bert_base_chinese() -> Self {
        Self::new(BertEmbeddingsConfig::bert_base_chinese())
    }

    /// `bert-large-uncased`: 335,141,888 parameters, the pooler's included.
    pub fn bert_large_uncased() -> Self {
        Self::new(BertEmbeddingsConfig::bert_large_uncased())
            .with_num_hidden_layers(24)
            .with_num_attention_heads(16)
            .with_intermediate_size(4096)
    }

    /// `roberta-base`: 124,645,632 parameters, the pooler's included.
    pub fn roberta_base() -> Self {
        Self::new(BertEmbeddingsConfig::roberta_base())
    }

    /// `distilbert-base-uncased`: 66,362,880 parameters.
    pub fn distilbert_base_uncased() -> Self {
        Self::new(BertEmbeddingsConfig::distilbert_base_uncased()).with_num_hidden_layers(6)
    }

    /// `google/electra-small-discriminator`: 13,483,008 parameters.
    pub fn electra_small() -> Self {
        Self::new(BertEmbeddingsConfig::electra_small())
            .with_num_attention_heads(4)
            .with_intermediate_size(1024)
    }

    /// `google/electra-base-discriminator`: 108,891,648 parameters.
    pub fn electra_base() -> Self {
        Self::new(BertEmbeddingsConfig::electra_base())
    }

    /// `microsoft/mpnet-base`: 109,486,464 parameters, the pooler's included.
    pub fn mpnet_base() -> Self {
        Self::new(BertEmbeddingsConfig::mpnet_base())
    }

    /// `albert/albert-base-v2`: 11,683,584 parameters, the pooler's included.
    pub fn albert_base_v2() -> Self {
        Self::new(BertEmbeddingsConfig::albert_base_v2())
            .with_hidden_act(Activation::GeluTanh)
            .with_attention_probs_dropout_prob(0.0)
    }

    /// Checks that a model can be built from this config.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config), naming the field, if the config of the embeddings or of the encoder
    /// is invalid.
    pub fn validate(&self) -> Result<()> {
        self.embeddings.validate()?;
        self.encoder().validate()
    }

    /// The config of the transformer layers.
    pub fn encoder(&self) -> BertEncoderConfig {
        let BertEmbeddingsConfig { family, hidden_size, layer_norm_eps, hidden_dropout_prob, .. } =
            self.embeddings;
        BertEncoderConfig {
            family,
            hidden_size,
            embedding_size: self.embeddings.embedding_size,
            hidden_act: self.hidden_act,
            num_hidden_layers: self.num_hidden_layers,
            num_attention_heads: self.num_attention_heads,
            intermediate_size: self.intermediate_size,
            hidden_dropout_prob,
            attention_probs_dropout_prob: self.attention_probs_dropout_prob,
            layer_norm_eps,
            initializer_range: self.initializer_range(),
            position_embedding_type: self.embeddings.position_embedding_type,
            max_position_embeddings: self.embeddings.max_position_embeddings,
        }
    }

    /// The dropout of a head whose config gives none.
    pub(super) fn classifier_dropout(&self, of: Classified) -> f64 {
        let keys = self.embeddings.family.spec().keys.as_ref();
        let default = keys.and_then(|keys| keys.classifier_dropout[of as usize].default);
        default.unwrap_or(self.embeddings.hidden_dropout_prob)
    }

    /// Checks the dropout of a head: a probability, and the default if a config of the family can state no other.
    pub(super) fn check_classifier_dropout(&self, of: Classified, stated: Option<f64>) -> Result<()> {
        let field = match of {
            Classified::Sequences | Classified::Tokens => "classifier_dropout",
            Classified::Answers => "qa_dropout",
        };
        let default = self.classifier_dropout(of);
        check_dropout(field, stated.unwrap_or(default))?;
        let spec = self.embeddings.family.spec();
        let has_own =
            spec.keys.as_ref().is_none_or(|keys| keys.classifier_dropout[of as usize].field.is_some());
        match stated {
            Some(prob) if !has_own && prob != default => Err(Error::Config {
                field,
                problem: format!(
                    "is {prob}, but this head of the family {} always has {default}{}; use None",
                    spec.model_type,
                    if default == 0.0 { "" } else { ", the dropout of the layers" }
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Standard deviation of the weights before training.
    pub(super) fn initializer_range(&self) -> f64 {
        let (EmbeddingInitializer::Normal { std } | EmbeddingInitializer::TruncatedNormal { std, .. }) =
            self.embeddings.initializer;
        std
    }

    /// A linear layer from H to `outputs` whose bias starts at zero.
    pub(super) fn linear(&self, outputs: usize, device: &Device) -> Linear {
        self.encoder().linear(self.embeddings.hidden_size, outputs, device)
    }
}
