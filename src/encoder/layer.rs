//! One transformer layer.

use super::config::{BertModelConfig, layer_shapes};
use super::packing::Packing;
use super::self_attention::BertSelfAttention;
use crate::error::Result;
use crate::layers::{LayerNorm, ParameterCheck, active_prob, linear_activation_narrow, product};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn_fused::{Activation, add_layer_norm, recomputed};
use std::fmt::Display;

/// One post-norm transformer layer:
///
/// ```text
/// x' = LayerNorm(x + Dropout(Attention(x)·O + o))
/// y  = LayerNorm(x' + Dropout(f(x'·U + u)·D + d))
/// ```
///
/// with f the activation. A layer of [`BertEncoder`](super::BertEncoder). Source: `BertLayer` of transformers 5.23; the
/// layers of the other [families](crate::Family) compute the same.
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
    /// Dropout of both outputs; of the first alone in ALBERT, of the second alone in DistilBERT.
    pub(crate) dropout: Dropout,
    #[module(skip)]
    output_dropout: [bool; 2],
    #[module(skip)]
    hidden_act: Activation,
}

impl BertLayer {
    pub(super) fn new(config: &BertModelConfig, device: &Device) -> Result<Self> {
        let embeddings = &config.embeddings;
        let (hidden, intermediate) = (embeddings.hidden_size, config.intermediate_size);
        let norm = || LayerNorm::new(hidden, embeddings.layer_norm_eps, device);
        Ok(Self {
            attention: BertSelfAttention::new(config, device)?,
            attention_output: config.linear(hidden, device),
            attention_layer_norm: norm(),
            intermediate: config.linear(intermediate, device),
            output: config.linear_of([intermediate, hidden], device),
            output_layer_norm: norm(),
            dropout: DropoutConfig::new(embeddings.hidden_dropout_prob).init(),
            output_dropout: embeddings.family.architecture().encoder.output_dropout,
            hidden_act: config.hidden_act,
        })
    }

    /// f.
    pub fn hidden_act(&self) -> Activation {
        self.hidden_act
    }

    /// The linear layers, as [`layer_shapes`] has their shapes, with the paths of their fields.
    pub(crate) fn linears(&self) -> [(&'static str, &Linear); 6] {
        [
            ("attention.query", &self.attention.query),
            ("attention.key", &self.attention.key),
            ("attention.value", &self.attention.value),
            ("attention_output", &self.attention_output),
            ("intermediate", &self.intermediate),
            ("output", &self.output),
        ]
    }

    /// The norms, with the names of their fields.
    pub(crate) fn norms(&self) -> [(&'static str, &LayerNorm); 2] {
        [("attention_layer_norm", &self.attention_layer_norm), ("output_layer_norm", &self.output_layer_norm)]
    }

    /// The layer's output. Panics if the rows are not those of `packing`.
    ///
    /// With gradient checkpointing (`Device::gradient_checkpointing`) autodiff keeps the layer's input alone and computes the
    /// layer again in the backward pass, with the same dropout, unless there is a `bias`.
    ///
    /// # Shapes
    ///
    /// - `rows`: [N, H], packed
    /// - `bias`: that of [`BertSelfAttention::forward`]
    /// - output: [N, H]
    pub fn forward(&self, rows: Tensor<2>, packing: &Packing, bias: Option<&Tensor<4>>) -> Tensor<2> {
        if bias.is_some() {
            // Its gradient would be lost: only `rows` is tracked through the recomputation.
            return self.compute(rows, packing, bias);
        }
        recomputed(self, rows, packing, |layer, rows, packing| layer.compute(rows, packing, None))
    }

    fn compute(&self, rows: Tensor<2>, packing: &Packing, bias: Option<&Tensor<4>>) -> Tensor<2> {
        let [of_attention, of_output] = self.output_dropout;
        let context = self.attention.forward(rows.clone(), packing, bias);
        let rows =
            self.add_norm(&self.attention_output, context, rows, &self.attention_layer_norm, of_attention);
        let inner = linear_activation_narrow(&self.intermediate, rows.clone(), self.hidden_act);
        self.add_norm(&self.output, inner, rows, &self.output_layer_norm, of_output)
    }

    /// `LayerNorm(residual + Dropout(x·W + b))`.
    // The bias goes to the fused operator, which adds it in the same pass.
    fn add_norm(
        &self,
        linear: &Linear,
        x: Tensor<2>,
        residual: Tensor<2>,
        norm: &LayerNorm,
        drops_out: bool,
    ) -> Tensor<2> {
        let bias = linear.bias.as_ref().map(|bias| bias.val());
        let dropout = if drops_out { active_prob(&self.dropout, &linear.weight) } else { 0.0 };
        add_layer_norm(product(linear, x), bias, residual, norm.norm(), dropout)
    }

    /// Whether the parameters fit vectors of length `hidden`. `name` is the layer's in messages.
    pub(super) fn check(&self, name: impl Display, check: &ParameterCheck, hidden: usize) -> Result<()> {
        // The layer keeps no config: U states the intermediate size.
        let [_, inner] = self.intermediate.weight.lazy_shape().dims();
        for ((part, linear), shape) in self.linears().into_iter().zip(layer_shapes(hidden, inner)) {
            check.linear(format_args!("{name}.{part}"), linear, shape)?;
        }
        for (part, norm) in self.norms() {
            check.norm(format_args!("{name}.{part}"), norm, hidden)?;
        }
        let Some(positions) = &self.attention.relative_positions else { return Ok(()) };
        let table = &positions.distance_embedding.weight;
        let shape = [table.lazy_shape()[0], hidden / self.attention.num_attention_heads()];
        let part = "attention.relative_positions.distance_embedding.weight";
        check.param(format_args!("{name}.{part}"), table, shape)
    }
}
