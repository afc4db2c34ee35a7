//! The configuration of the encoder.

use crate::embeddings::{Family, PositionEmbeddingType, check_dropout, check_epsilon};
use crate::error::{Error, Result};
use crate::operator::Activation;
use burn::config::Config;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;

/// Configuration of a [`BertEncoder`](super::BertEncoder); the defaults are BERT-base's.
#[derive(Config, Debug, PartialEq)]
pub struct BertEncoderConfig {
    /// The family, which may have one layer for all (ALBERT) or relative positions that all layers share (MPNet).
    #[config(default = "Family::Bert")]
    pub family: Family,
    /// Length of the vectors, H.
    #[config(default = 768)]
    pub hidden_size: usize,
    /// Length of the input's vectors, E, if they are projected to H first.
    pub embedding_size: Option<usize>,
    /// Number of layers.
    #[config(default = 12)]
    pub num_hidden_layers: usize,
    /// Attention heads of a layer; must divide the hidden size.
    #[config(default = 12)]
    pub num_attention_heads: usize,
    /// Length of the vectors inside a layer's feed-forward network.
    #[config(default = 3072)]
    pub intermediate_size: usize,
    /// The activation of a layer's feed-forward network.
    #[config(default = "Activation::Gelu")]
    pub hidden_act: Activation,
    /// Probability that dropout zeroes an element of a layer's two outputs in training, in [0, 1).
    #[config(default = 0.1)]
    pub hidden_dropout_prob: f64,
    /// Probability that dropout zeroes an attention weight in training, in [0, 1).
    #[config(default = 0.1)]
    pub attention_probs_dropout_prob: f64,
    /// LayerNorm's ε.
    #[config(default = 1e-12)]
    pub layer_norm_eps: f64,
    /// Standard deviation of the weights before training.
    #[config(default = 0.02)]
    pub initializer_range: f64,
    /// The position scheme. `RelativeKey` and `RelativeKeyQuery` concern the encoder; the others are implemented by the
    /// embeddings.
    #[config(default = "PositionEmbeddingType::Absolute")]
    pub position_embedding_type: PositionEmbeddingType,
    /// Length of the longest sequence, M, with relative positions: a layer has a vector for each of the
    /// distances −(M − 1)..=M − 1.
    #[config(default = 512)]
    pub max_position_embeddings: usize,
}

impl BertEncoderConfig {
    /// Checks that an encoder can be built from this config.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], naming the field, if a size is 0 or too large for a matrix, the heads do not divide the hidden size, a dropout
    /// probability is not in [0, 1), positions are relative and the family has no such positions, `initializer_range` is not finite or negative, or `layer_norm_eps` is not finite
    /// and above 0. `max_position_embeddings` matters with relative positions only.
    pub fn validate(&self) -> Result<()> {
        let invalid = |field, problem: String| Err(Error::Config { field, problem });
        for (field, size) in [
            ("hidden_size", self.hidden_size),
            ("embedding_size", self.embedding_size.unwrap_or(1)),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ] {
            let is_used = field != "max_position_embeddings" || !self.position_embedding_type.has_table();
            if size == 0 && is_used {
                return invalid(field, "is 0, but must be at least 1".into());
            }
            let values = size.checked_mul(self.hidden_size);
            if field == "intermediate_size" && values.is_none_or(|values| values > isize::MAX as usize) {
                return invalid(field, format!("is {size}, too many for a matrix in memory"));
            }
        }
        let is_relative = !self.position_embedding_type.has_table();
        let spec = self.family.spec();
        if is_relative && spec.keys.as_ref().is_some_and(|keys| keys.layer.distances.is_none()) {
            let problem = format!(
                "is {:?}, which the family {} does not have",
                self.position_embedding_type, spec.model_type
            );
            return invalid("position_embedding_type", problem);
        }
        if is_relative && self.max_position_embeddings.checked_mul(2).is_none() {
            let problem =
                format!("is {}, which has more distances than can be counted", self.max_position_embeddings);
            return invalid("max_position_embeddings", problem);
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            return invalid(
                "num_attention_heads",
                format!("is {}, but must divide hidden_size {}", self.num_attention_heads, self.hidden_size),
            );
        }
        for (field, prob) in [
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
        ] {
            check_dropout(field, prob)?;
        }
        if !(self.initializer_range.is_finite() && self.initializer_range >= 0.0) {
            return invalid(
                "initializer_range",
                format!("is {}, but must be finite and not negative", self.initializer_range),
            );
        }
        check_epsilon(self.layer_norm_eps, DType::F64)
    }

    /// A linear layer whose weights come from N(0, `initializer_range`²) and whose bias starts at zero.
    pub(crate) fn linear(&self, inputs: usize, outputs: usize, device: &Device) -> Linear {
        let initializer = Initializer::Normal { mean: 0.0, std: self.initializer_range };
        let mut linear = LinearConfig::new(inputs, outputs).with_initializer(initializer).init(device);
        // Burn draws a bias from the weight's initialiser.
        linear.bias = Some(Initializer::Zeros.init([outputs], device));
        linear
    }
}
