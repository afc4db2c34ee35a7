//! Multi-head self-attention.

use super::config::BertEncoderConfig;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn::tensor::activation::softmax;

/// Multi-head scaled dot-product attention of a sequence to itself:
/// `Dropout(softmax(Q·Kᵀ / √d)) · V` for each of A heads of d = H / A columns.
///
/// Source: `BertSelfAttention` of transformers 5.23.
#[derive(Module, Debug)]
pub struct BertSelfAttention {
    /// [H, H].
    pub query: Linear,
    /// [H, H].
    pub key: Linear,
    /// [H, H].
    pub value: Linear,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Number of heads, A.
    pub num_attention_heads: usize,
}

impl BertSelfAttention {
    pub(super) fn new(config: &BertEncoderConfig, device: &Device) -> Self {
        let linear = || config.linear(config.hidden_size, config.hidden_size, device);
        Self {
            query: linear(),
            key: linear(),
            value: linear(),
            dropout: DropoutConfig::new(config.attention_probs_dropout_prob).init(),
            num_attention_heads: config.num_attention_heads,
        }
    }

    /// The attended vectors and the attention weights, before dropout.
    ///
    /// A sequence of nothing but padding attends to all of its tokens alike.
    ///
    /// # Shapes
    ///
    /// - `hidden`: [B, S, H]
    /// - `padding`: [B, S], true where attention must not look
    /// - output: [B, S, H] and [B, A, S, S]
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> (Tensor<3>, Tensor<4>) {
        let [batch, seq, hidden_size] = hidden.dims();
        let heads = self.num_attention_heads;
        let head_dim = hidden_size / heads;
        let split = |linear: &Linear| {
            linear.forward(hidden.clone()).reshape([batch, seq, heads, head_dim]).swap_dims(1, 2)
        };
        let [query, key, value] = [&self.query, &self.key, &self.value].map(split); // [B, A, S, d]
        let scores = query.matmul(key.transpose()).div_scalar((head_dim as f64).sqrt()); // [B, A, S, S]
        let scores = match padding {
            Some(padding) => {
                let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
                scores.mask_fill(padding.clone().reshape([batch, 1, 1, seq]), lowest)
            }
            None => scores,
        };
        let weights = softmax(scores, 3);
        let context = self.dropout.forward(weights.clone()).matmul(value); // [B, A, S, d]
        (context.swap_dims(1, 2).reshape([batch, seq, hidden_size]), weights)
    }
}
