//! One transformer layer.

use super::attention::BertSelfAttention;
use super::config::BertEncoderConfig;
use super::packing::Packing;
use crate::error::Result;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, LayerNorm, LayerNormConfig, Linear};
use burn::prelude::*;
use std::f64::consts::FRAC_1_SQRT_2;

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
    pub(super) fn new(config: &BertEncoderConfig, device: &Device) -> Result<Self> {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let norm = || LayerNormConfig::new(hidden).with_epsilon(config.layer_norm_eps).init(device);
        Ok(Self {
            attention: BertSelfAttention::new(config, device)?,
            attention_output: config.linear(hidden, hidden, device),
            attention_layer_norm: norm(),
            intermediate: config.linear(hidden, intermediate, device),
            output: config.linear(intermediate, hidden, device),
            output_layer_norm: norm(),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
        })
    }

    /// The layer's output.
    ///
    /// # Shapes
    ///
    /// - `rows`: [N, H], packed
    /// - output: [N, H]
    ///
    /// # Panics
    ///
    /// Panics if the rows are not those of `packing`.
    pub fn forward(&self, rows: Tensor<2>, packing: &Packing) -> Tensor<2> {
        let context = self.attention.forward(rows.clone(), packing);
        self.feed_forward(rows, context)
    }

    /// As [`forward`](Self::forward), with the attention weights before dropout: [N, H] and [B, A, S, S].
    pub fn forward_with_weights(&self, rows: Tensor<2>, packing: &Packing) -> (Tensor<2>, Tensor<4>) {
        let (context, weights) = self.attention.forward_with_weights(rows.clone(), packing);
        (self.feed_forward(rows, context), weights)
    }

    /// All that follows attention.
    fn feed_forward(&self, rows: Tensor<2>, context: Tensor<2>) -> Tensor<2> {
        let attended = self.dropout.forward(self.attention_output.forward(context));
        let rows = self.attention_layer_norm.forward(rows + attended);
        let inner = exact_gelu(self.intermediate.forward(rows.clone()));
        let outer = self.dropout.forward(self.output.forward(inner));
        self.output_layer_norm.forward(rows + outer)
    }
}

/// `x·(1 + erf(x / √2)) / 2`.
///
/// # Numerics
///
/// Burn's `gelu` is the same forward, but on most backends its gradient is that of the tanh approximation.
pub(crate) fn exact_gelu(x: Tensor<2>) -> Tensor<2> {
    let below = x.clone().mul_scalar(FRAC_1_SQRT_2).erf().add_scalar(1.0); // 2·Φ(x)
    x.mul(below).mul_scalar(0.5)
}
