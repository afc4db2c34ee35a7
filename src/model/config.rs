//! The configuration of `BertModel`.

use crate::embeddings::{BertEmbeddingsConfig, EmbeddingInitializer};
use crate::encoder::BertEncoderConfig;
use crate::error::Result;
use burn::config::Config;
use burn::nn::Linear;
use burn::prelude::*;

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
        let BertEmbeddingsConfig { hidden_size, layer_norm_eps, hidden_dropout_prob, .. } = self.embeddings;
        BertEncoderConfig {
            hidden_size,
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
