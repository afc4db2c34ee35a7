//! One transformer layer.

use super::attention::BertSelfAttention;
use super::config::BertEncoderConfig;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, LayerNorm, LayerNormConfig, Linear};
use burn::prelude::*;
use burn::tensor::activation::gelu;

/// One post-norm transformer layer:
///
/// ```text
/// x' = LayerNorm(x + Dropout(Attention(x)·O + o))
/// y  = LayerNorm(x' + Dropout(GELU(x'·U + u)·D + d))
/// ```
///
/// Source: `BertLayer` of transformers 5.23, with the exact GELU.
#[derive(Module, Debug)]
pub struct BertLayer {
    /// Attention.
    pub attention: BertSelfAttention,
    /// O, [H, H].
    pub attention_output: Linear,
    /// Normalises the sum of attention and its input.
    pub attention_layer_norm: LayerNorm,
    /// U, [H, I].
    pub intermediate: Linear,
    /// D, [I, H].
    pub output: Linear,
    /// Normalises the sum of the feed-forward network and its input.
    pub output_layer_norm: LayerNorm,
    /// Dropout of both outputs.
    pub dropout: Dropout,
}

impl BertLayer {
    pub(super) fn new(config: &BertEncoderConfig, device: &Device) -> Self {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let norm = || LayerNormConfig::new(hidden).with_epsilon(config.layer_norm_eps).init(device);
        Self {
            attention: BertSelfAttention::new(config, device),
            attention_output: config.linear(hidden, hidden, device),
            attention_layer_norm: norm(),
            intermediate: config.linear(hidden, intermediate, device),
            output: config.linear(intermediate, hidden, device),
            output_layer_norm: norm(),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
        }
    }

    /// The layer's output [B, S, H] and its attention weights [B, A, S, S].
    ///
    /// # Shapes
    ///
    /// - `hidden`: [B, S, H]
    /// - `padding`: [B, S], true where attention must not look
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> (Tensor<3>, Tensor<4>) {
        let (context, weights) = self.attention.forward(hidden.clone(), padding);
        let attended = self.dropout.forward(self.attention_output.forward(context));
        let hidden = self.attention_layer_norm.forward(hidden + attended);
        let inner = gelu(self.intermediate.forward(hidden.clone()));
        let outer = self.dropout.forward(self.output.forward(inner));
        (self.output_layer_norm.forward(hidden + outer), weights)
    }
}
