//! One transformer layer.

use super::attention::BertSelfAttention;
use super::config::BertEncoderConfig;
use super::packing::Packing;
use crate::embeddings::{LayerNorm, active_prob};
use crate::error::Result;
use crate::operator::functional::{add_layer_norm, bias_gelu};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;

/// One post-norm transformer layer:
///
/// ```text
/// x' = LayerNorm(x + Dropout(Attention(x)·O + o))
/// y  = LayerNorm(x' + Dropout(GELU(x'·U + u)·D + d))
/// ```
///
/// A layer of [`BertEncoder`](super::BertEncoder). Source: `BertLayer` of transformers 5.23, with the exact GELU.
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
        let norm = || LayerNorm::new(hidden, config.layer_norm_eps, device);
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
        let rows = self.add_norm(&self.attention_output, context, rows, &self.attention_layer_norm);
        let inner = linear_gelu(&self.intermediate, rows.clone());
        self.add_norm(&self.output, inner, rows, &self.output_layer_norm)
    }

    /// `LayerNorm(residual + Dropout(x·W + b))`.
    fn add_norm(&self, linear: &Linear, x: Tensor<2>, residual: Tensor<2>, norm: &LayerNorm) -> Tensor<2> {
        let bias = linear.bias.as_ref().map(|bias| bias.val());
        let dropout = active_prob(&self.dropout, &linear.weight);
        add_layer_norm(product(linear, x), bias, residual, norm.norm(), dropout)
    }
}

/// `GELU(x·W + b)`, exact in value and gradient.
pub(crate) fn linear_gelu(linear: &Linear, x: Tensor<2>) -> Tensor<2> {
    let product = product(linear, x);
    let bias = match &linear.bias {
        Some(bias) => bias.val(),
        None => Tensor::zeros([product.dims()[1]], (&product.device(), product.dtype())),
    };
    bias_gelu(product, bias)
}

/// `x·W`: what the layer's `forward` computes, adapters and quantised weights included, before its bias.
fn product(linear: &Linear, x: Tensor<2>) -> Tensor<2> {
    burn::tensor::module::linear(x, linear.weight.val(), None)
}
