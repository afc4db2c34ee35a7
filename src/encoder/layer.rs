use super::config::BertModelConfig;
use super::disentangled::SharedPositions;
use super::packing::Packing;
use super::self_attention::BertSelfAttention;
use crate::error::{Error, Result};
use crate::family::{Biases, FamilyDropout, NormPlace};
use crate::layers::{LayerNorm, active_prob, feed_forward, linear, product};
use burn::module::{Param, ParamId};
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn_fused::{Activation, add_drop_out, add_layer_norm, drop_out, recomputed};

/// One transformer layer:
///
/// ```text
/// x' = LayerNorm(x + Dropout(Attention(x)·O + o))
/// y  = LayerNorm(x' + Dropout(f(x'·U + u)·D + d))
/// ```
///
/// with f the activation, and `f(x'·U) ∘ (x'·G)` in the place of `f(x'·U + u)` in NomicBERT and GTE; or in ModernBERT, whose
/// first layer has no LayerNorm before the attention, and in EuroBERT, whose norms are RMSNorms and which drops nothing here,
///
/// ```text
/// x' = x + Dropout(Attention(LayerNorm(x))·O)
/// z  = LayerNorm(x')
/// y  = x' + Dropout(f(z·U) ∘ (z·G))·D
/// ```
///
/// A layer of [`BertEncoder`](super::BertEncoder). Source: `BertLayer` of transformers 5.23; the
/// layers of the other [families](crate::Family) compute the same.
#[derive(Module, Debug)]
pub struct BertLayer {
    /// Attention.
    pub attention: BertSelfAttention,
    /// O, [H, H].
    pub attention_output: Linear,
    /// Normalises the sum of attention and its input, in ModernBERT and EuroBERT the input alone; `None` in ModernBERT's first
    /// layer.
    pub attention_layer_norm: Option<LayerNorm>,
    /// U, [H, I].
    pub intermediate: Linear,
    /// G, [H, I], of a feed-forward network that has a gate.
    pub gate: Option<Linear>,
    /// D, [I, H].
    pub output: Linear,
    /// Normalises the sum of the feed-forward network and its input, in ModernBERT and EuroBERT the input alone.
    pub output_layer_norm: LayerNorm,
    /// Dropout of both outputs; of the first alone in ALBERT, of the second alone in DistilBERT. In GTE also that of
    /// `f(z·U) ∘ (z·G)`, in ModernBERT of that alone, where the attention's output has the dropout of its weights.
    pub(crate) dropout: Dropout,
    #[module(skip)]
    norm: NormPlace,
    #[module(skip)]
    output_dropout: [bool; 2],
    #[module(skip)]
    drops_inner: bool,
    #[module(skip)]
    hidden_act: Activation,
}

impl BertLayer {
    pub(super) fn new(config: &BertModelConfig, index: usize, device: &Device) -> Self {
        let (embeddings, encoder) = (&config.embeddings, config.encoder());
        let (hidden, intermediate) = (embeddings.hidden_size, config.intermediate_size);
        let norm = || embeddings.layer_norm(hidden, device);
        let Biases { of_layers, of_inner, .. } = encoder.biases;
        let inwards = || config.scaled_linear([hidden, intermediate], 1.0, of_inner, device);
        let outwards = |inputs: usize| config.output_linear([inputs, hidden], of_layers, device);
        let is_normalised = encoder.norm == NormPlace::Pre && encoder.embeddings_have_norm && index == 0;
        Self {
            attention: BertSelfAttention::new(config, index, device),
            attention_output: outwards(hidden),
            attention_layer_norm: (!is_normalised).then(norm),
            intermediate: inwards(),
            gate: encoder.is_gated.then(inwards),
            output: outwards(intermediate),
            output_layer_norm: norm(),
            dropout: DropoutConfig::new(config.layer_dropout()).init(),
            norm: encoder.norm,
            output_dropout: encoder.output_dropout,
            drops_inner: encoder.inner_dropout != FamilyDropout::Never,
            hidden_act: config.hidden_act,
        }
    }

    /// The activation f of the feed-forward network.
    pub fn hidden_act(&self) -> Activation {
        self.hidden_act
    }

    /// The linear layers with the paths of their fields.
    pub(crate) fn linears(&self) -> Vec<(&'static str, &Linear)> {
        let of_attention = [
            ("attention.query", &self.attention.query),
            ("attention.key", &self.attention.key),
            ("attention.value", &self.attention.value),
            ("attention_output", &self.attention_output),
            ("intermediate", &self.intermediate),
        ];
        let gate = self.gate.as_ref().map(|gate| ("gate", gate));
        of_attention.into_iter().chain(gate).chain([("output", &self.output)]).collect()
    }

    /// The layer's output. Panics if the rows are not those of `packing`.
    ///
    /// With gradient checkpointing (`Device::gradient_checkpointing`) autodiff keeps the layer's input alone and computes the
    /// layer again in the backward pass, with the same dropout.
    ///
    /// # Shapes
    ///
    /// - `rows`: [N, H], packed
    /// - `positions`: those of [`BertSelfAttention::forward`]
    /// - output: [N, H]
    pub fn forward(
        &self,
        rows: Tensor<2>,
        packing: &Packing,
        positions: Option<&SharedPositions>,
    ) -> Tensor<2> {
        match positions {
            // What the layer shares with others is recomputed with it as one module, so that it has its gradient.
            Some(SharedPositions::Bias(bias)) => {
                let both = (self.clone(), Param::initialized(ParamId::new(), bias.clone()));
                recomputed(&both, rows, packing, |(layer, bias), rows, packing| {
                    layer.compute(rows, packing, Some(&SharedPositions::Bias(bias.val())))
                })
            }
            Some(SharedPositions::Vectors(vectors)) => {
                let both = (self.clone(), Param::initialized(ParamId::new(), vectors.clone()));
                recomputed(&both, rows, packing, |(layer, vectors), rows, packing| {
                    layer.compute(rows, packing, Some(&SharedPositions::Vectors(vectors.val())))
                })
            }
            None => {
                recomputed(self, rows, packing, |layer, rows, packing| layer.compute(rows, packing, None))
            }
        }
    }

    fn compute(&self, rows: Tensor<2>, packing: &Packing, positions: Option<&SharedPositions>) -> Tensor<2> {
        match (self.norm, &self.attention_layer_norm) {
            (NormPlace::Post, Some(attention_norm)) => {
                let [of_attention, of_output] = self.output_dropout;
                let context = self.attention.forward(rows.clone(), packing, positions);
                let rows = self.add_norm(&self.attention_output, context, rows, attention_norm, of_attention);
                let inner = self.inner(rows.clone());
                self.add_norm(&self.output, inner, rows, &self.output_layer_norm, of_output)
            }
            _ => {
                let normed = self.attention_input(rows.clone());
                let context =
                    linear(&self.attention_output, self.attention.forward(normed, packing, positions));
                let dropout = active_prob(&self.attention.dropout, &self.attention_output.weight);
                let rows = add_drop_out(context, rows, if self.output_dropout[0] { dropout } else { 0.0 });
                let inner = self.inner(self.output_layer_norm.forward(rows.clone()));
                add_drop_out(linear(&self.output, inner), rows, 0.0)
            }
        }
    }

    /// The rows that attention reads: the layer's input, normalised first in a family with [`NormPlace::Pre`].
    pub(super) fn attention_input(&self, rows: Tensor<2>) -> Tensor<2> {
        match &self.attention_layer_norm {
            Some(norm) if self.norm == NormPlace::Pre => norm.forward(rows),
            _ => rows,
        }
    }

    /// The feed-forward network up to the input of D.
    fn inner(&self, rows: Tensor<2>) -> Tensor<2> {
        let inner = feed_forward(&self.intermediate, self.gate.as_ref(), rows, self.hidden_act);
        let dropout = if self.drops_inner { active_prob(&self.dropout, &self.output.weight) } else { 0.0 };
        drop_out(inner, dropout)
    }

    /// The operators with dropout.
    pub(super) fn draws(&self) -> usize {
        match self.norm {
            // The attention weights, both outputs, and what D reads.
            NormPlace::Post => 3 + usize::from(self.drops_inner),
            NormPlace::Pre => 3,
        }
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

    /// Refuses a layer without a norm or vectors of distances that it reads, and a sequence longer than its relative positions.
    pub(super) fn check(&self, index: usize, seq: usize, has_distances: bool) -> Result<()> {
        if self.norm == NormPlace::Post && self.attention_layer_norm.is_none() {
            let problem =
                format!("of layers[{index}] is None, but the family normalises what attention adds");
            return Err(Error::config("attention_layer_norm", problem));
        }
        if self.attention.disentangled.is_some() && !has_distances {
            return Err(Error::config("distances", format!("is None, but layers[{index}] reads them")));
        }
        self.attention.relative_positions.as_ref().map_or(Ok(()), |positions| positions.check(seq))
    }
}
