use super::config::BertModelConfig;
use super::disentangled::{DisentangledAttention, SharedPositions};
use super::packing::Packing;
use super::relative_positions::RelativePositions;
use super::rotary::Rotary;
use crate::layers::{active_prob, linear, linear_narrow};
use burn::module::Param;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn_fused::{Positions, Sequences, attention, attention_weights, rotary, self_attention};

/// Multi-head self-attention: `Dropout(softmax(Q·Kᵀ / √d + R)) · V` for each of A heads of d = H / A columns, where R
/// comes from [`RelativePositions`], [`DisentangledAttention`] or [`RelativeAttentionBias`](super::RelativeAttentionBias), or
/// is zero. Keys and values have K heads, each of which A / K heads of queries read; K is A but in large EuroBERTs. With rotary
/// positions queries and keys are [turned](crate::functional::rotary); most layers of ModernBERT have a window.
/// burn-fused's [`self_attention`] computes it, and with rotary positions or fewer heads of keys [`attention`]. Source:
/// `BertSelfAttention`, `MPNetSelfAttention` and `ModernBertAttention` of transformers 5.23; 4.49 for relative positions.
#[derive(Module, Debug)]
pub struct BertSelfAttention {
    /// [H, H].
    pub query: Linear,
    /// [H, K·d].
    pub key: Linear,
    /// [H, K·d].
    pub value: Linear,
    /// Relative positions; `None` if the embeddings add the positions.
    pub relative_positions: Option<RelativePositions>,
    /// Disentangled attention (DeBERTa); `None` in other families.
    pub disentangled: Option<DisentangledAttention>,
    /// Dropout of the attention weights.
    pub(crate) dropout: Dropout,
    num_attention_heads: usize,
    #[module(skip)]
    num_key_value_heads: usize,
    #[module(skip)]
    rotary: Option<Rotary>,
}

impl BertSelfAttention {
    pub(super) fn new(config: &BertModelConfig, layer: usize, device: &Device) -> Self {
        let (hidden, has_bias) = (config.embeddings.hidden_size, config.encoder().biases.of_layers);
        let linear_to = |outputs| config.scaled_linear([hidden, outputs], 1.0, has_bias, device);
        let linear = || linear_to(hidden);
        Self {
            query: linear(),
            key: linear_to(config.key_width()),
            value: linear_to(config.key_width()),
            relative_positions: RelativePositions::new(config, device),
            disentangled: config
                .disentangled
                .map(|own| DisentangledAttention::new(own, linear, config.embeddings.hidden_dropout_prob)),
            dropout: DropoutConfig::new(config.attention_probs_dropout_prob).init(),
            num_attention_heads: config.num_attention_heads,
            num_key_value_heads: config.num_key_value_heads.unwrap_or(config.num_attention_heads),
            rotary: config.rotary.map(|rotary| rotary.for_layer(layer)),
        }
    }

    /// Number of heads, A.
    pub fn num_attention_heads(&self) -> usize {
        self.num_attention_heads
    }

    /// Number of heads of keys and values, K.
    pub fn num_key_value_heads(&self) -> usize {
        self.num_key_value_heads
    }

    /// Keys or values of K heads, each repeated for the A / K heads of queries that read it: [N, H].
    fn repeated(&self, rows: Tensor<2>) -> Tensor<2> {
        let [groups, of_group] =
            [self.num_key_value_heads, self.num_attention_heads / self.num_key_value_heads];
        if of_group == 1 {
            return rows;
        }
        let [count, width] = rows.dims();
        let rows = rows.reshape([count, groups, 1, width / groups]);
        rows.expand([count, groups, of_group, width / groups]).reshape([count, width * of_group])
    }

    /// The attention of every token over the tokens of its sequence. Panics if the rows are not those of `packing`, or the family
    /// shares `positions` and they are missing, or are vectors of distances of another length.
    ///
    /// # Shapes
    ///
    /// - `rows`: [N, H], packed
    /// - `positions`: what all layers share
    /// - output: [N, H]
    pub fn forward(
        &self,
        rows: Tensor<2>,
        packing: &Packing,
        positions: Option<&SharedPositions>,
    ) -> Tensor<2> {
        let (heads, dropout) = (self.num_attention_heads, active_prob(&self.dropout, &self.query.weight));
        // Attention alone reads queries, keys and values, and rounded: under autocast they can be 16 bits. Two or three products that
        // are rounded apart are too far from their sum.
        let is_narrow = self.relative_positions.is_none();
        let layers = [&self.query, &self.key, &self.value];
        let [batch, seq] = packing.dims;
        let reads_slots = self.relative_positions.is_some()
            || self.disentangled.is_some()
            || positions.is_some()
            // A window that reaches from the first position to the last leaves nothing out.
            || self.window().is_some_and(|window| window + 1 < seq);
        let reads_slots = reads_slots && !packing.is_contiguous;
        let length = if reads_slots { seq } else { packing.longest() };
        let positions = self.positions(packing, length, positions, true);
        if !reads_slots && self.rotary.is_none() && self.num_key_value_heads == heads {
            let layers = layers.map(|layer| (layer.weight.val(), layer.bias.as_ref().map(Param::val)));
            return self_attention(rows, layers, &packing.sequences, heads, positions, dropout, is_narrow);
        }
        let layer = if is_narrow { linear_narrow } else { linear };
        let [query, key, value] = layers.map(|own| layer(own, rows.clone()));
        let [query, key] = self.placed([query, key], packing);
        let all = [query, key, self.repeated(value)];
        if !reads_slots {
            let positions = positions.cast(all[0].dtype());
            return attention(all, &self.windowed(&packing.sequences), heads, positions, dropout);
        }
        // Distances are those of slots, so padding between tokens counts.
        let positions = self.masked(positions, packing, &all[0]);
        let all = all.map(|rows| packing.unpack(rows).flatten::<2>(0, 1));
        let context = attention(all, &self.windowed(&packing.slots()), heads, positions, dropout); // [B · S, H]
        packing.pack(context.reshape([batch as i32, seq as i32, -1]))
    }

    fn window(&self) -> Option<usize> {
        self.rotary.and_then(|rotary| rotary.window)
    }

    fn windowed(&self, sequences: &Sequences) -> Sequences {
        self.window().map_or(sequences.clone(), |window| sequences.with_window(window))
    }

    /// Packed queries and keys, those repeated, with what positions do to them before they are multiplied.
    fn placed(&self, [query, key]: [Tensor<2>; 2], packing: &Packing) -> [Tensor<2>; 2] {
        if let Some(Rotary { speeds, .. }) = self.rotary {
            let columns = self.query.weight.lazy_shape()[1] / self.num_attention_heads;
            let [query, key] = [query, key].map(|rows| {
                let angles = packing.angles.cos_sin(speeds, columns, &packing.positions, &rows);
                let heads = rows.dims()[1] / columns;
                rotary(rows, angles, heads)
            });
            return [query, self.repeated(key)];
        }
        [query, self.repeated(key)]
    }

    /// The attention weights before dropout, [B, A, S, S]: row l is the attention of position l over all positions, and rows
    /// and columns of padding are 0. A shared bias is [1, A, S, S]. Panics as [`forward`](Self::forward).
    pub fn weights(
        &self,
        rows: Tensor<2>,
        packing: &Packing,
        positions: Option<&SharedPositions>,
    ) -> Tensor<4> {
        let [_, seq] = packing.dims;
        let both = self.placed([&self.query, &self.key].map(|layer| linear(layer, rows.clone())), packing);
        let positions = self.positions(packing, seq, positions, false);
        let positions = self.masked(positions, packing, &both[0]);
        let both = both.map(|rows| packing.unpack(rows).flatten::<2>(0, 1));
        let slots = self.windowed(&packing.slots());
        let weights = attention_weights(both, &slots, self.num_attention_heads, positions);
        packing.mask(weights, 2, 0.0)
    }

    /// What this layer's positions and those that all layers share add to the logits of `length` positions.
    fn positions(
        &self,
        packing: &Packing,
        length: usize,
        shared: Option<&SharedPositions>,
        drops_out: bool,
    ) -> Positions {
        let heads = self.num_attention_heads;
        let [by_query, by_key] = match (&self.disentangled, &self.relative_positions, shared) {
            (Some(own), _, Some(SharedPositions::Vectors(shared))) => {
                own.vectors(packing, length, [&self.query, &self.key], shared, drops_out)
            }
            (Some(_), ..) => {
                panic!("a layer of DeBERTa reads the distances of its encoder, which are missing")
            }
            (None, Some(own), _) => own.vectors(packing, length, heads),
            _ => [None, None],
        };
        let bias = match shared {
            // One for all sequences.
            Some(SharedPositions::Bias(bias)) => Some(bias.clone()),
            _ => None,
        };
        let columns = self.query.weight.lazy_shape()[1] / heads;
        let scale = self.disentangled.as_ref().map(|own| own.scale(columns));
        Positions { bias, by_query, by_key, scale }
    }

    /// `positions` of all slots, without attention to padding.
    fn masked(&self, positions: Positions, packing: &Packing, query: &Tensor<2>) -> Positions {
        let [batch, seq] = packing.dims;
        let positions = positions.cast(query.dtype());
        let zeros =
            || Tensor::zeros([batch, self.num_attention_heads, seq, seq], (&query.device(), query.dtype()));
        let bias = match positions.bias {
            // Padding differs from one sequence to the next.
            Some(bias) => bias.expand([batch as i64, -1, -1, -1]),
            None => zeros(),
        };
        // −∞ would make the softmax of a sequence of padding alone 0/0.
        let lowest = bias.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
        Positions { bias: Some(packing.mask(bias, 3, lowest)), ..positions }
    }
}
