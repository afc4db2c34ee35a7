//! Multi-head self-attention.

use super::config::{BertModelConfig, Rotary, with_bias};
use super::disentangled::{DisentangledAttention, SharedPositions};
use super::packing::Packing;
use super::relative_positions::RelativePositions;
use crate::error::Result;
use crate::layers::{active_prob, linear, linear_narrow};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn_fused::{attention, attention_weights, rotary};

/// Multi-head self-attention: `Dropout(softmax(Q·Kᵀ / √d + R)) · V` for each of A heads of d = H / A columns, where R
/// comes from [`RelativePositions`] and [`RelativeAttentionBias`](super::RelativeAttentionBias), or is zero;
/// [`DisentangledAttention`] has the logits of DeBERTa. With rotary
/// positions Q and K are [turned](crate::functional::rotary); most layers of ModernBERT have a window. Computed by the operator
/// [`attention`](crate::functional::attention), with R as its bias. Source: `BertSelfAttention`, `MPNetSelfAttention` and
/// `ModernBertAttention` of transformers 5.23; 4.49 for relative positions.
#[derive(Module, Debug)]
pub struct BertSelfAttention {
    /// [H, H].
    pub query: Linear,
    /// [H, H].
    pub key: Linear,
    /// [H, H].
    pub value: Linear,
    /// Relative positions; `None` if the embeddings add the positions.
    pub relative_positions: Option<RelativePositions>,
    /// What DeBERTa's vectors of distances add.
    pub disentangled: Option<DisentangledAttention>,
    /// Dropout of the attention weights.
    pub(crate) dropout: Dropout,
    num_attention_heads: usize,
    #[module(skip)]
    rotary: Option<Rotary>,
}

impl BertSelfAttention {
    pub(super) fn new(config: &BertModelConfig, layer: usize, device: &Device) -> Result<Self> {
        let has_bias = config.encoder().biases.of_layers;
        let linear = || with_bias(config.linear(config.embeddings.hidden_size, device), has_bias);
        Ok(Self {
            query: linear(),
            key: linear(),
            value: linear(),
            relative_positions: RelativePositions::new(config, device)?,
            disentangled: DisentangledAttention::new(config, device),
            dropout: DropoutConfig::new(config.attention_probs_dropout_prob).init(),
            num_attention_heads: config.num_attention_heads,
            rotary: config.rotary_of(layer),
        })
    }

    /// Number of heads, A.
    pub fn num_attention_heads(&self) -> usize {
        self.num_attention_heads
    }

    /// The attention of every token over the tokens of its sequence. Panics if the rows are not those of `packing`, or the family
    /// shares `positions` and they are missing.
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
        positions: Option<SharedPositions>,
    ) -> Tensor<2> {
        let all = [&self.query, &self.key, &self.value];
        let (heads, dropout) = (self.num_attention_heads, active_prob(&self.dropout, &self.query.weight));
        if self.relative_positions.is_none() && self.disentangled.is_none() && positions.is_none() {
            // Attention alone reads them, and rounded: under autocast they can be 16 bits.
            let all = all.map(|layer| linear_narrow(layer, rows.clone()));
            return match self.rotary {
                None => attention(all, &packing.sequences, heads, None, dropout),
                Some(positions) => self.rotary_attention(all, packing, positions, dropout),
            };
        }
        let [query, key, value] = all.map(|layer| linear(layer, rows.clone()));
        let all = [self.scaled(query), key, value];
        if packing.is_contiguous() {
            let aligned = |rows: &Tensor<2>| packing.unpack_aligned(rows.clone()); // [B, L, H]
            let bias = self.bias(|| [&all[0], &all[1]].map(aligned), packing, positions, true);
            return attention(all, &packing.sequences, heads, bias, dropout);
        }
        // Distances are those of places, so padding between tokens counts.
        let all = all.map(|rows| packing.unpack(rows)); // [B, S, H]
        let bias = self.bias(|| [all[0].clone(), all[1].clone()], packing, positions, true);
        let bias = bias.map(|bias| packing.mask_keys(bias));
        let all = all.map(|all| all.flatten::<2>(0, 1));
        let context = attention(all, &packing.places(), heads, bias, dropout); // [B · S, H]
        let [batch, seq] = packing.dims();
        packing.pack(context.reshape([batch as i32, seq as i32, -1]))
    }

    /// Attention of `all`, the packed queries, keys and values, of which the first two are turned.
    fn rotary_attention(
        &self,
        [query, key, value]: [Tensor<2>; 3],
        packing: &Packing,
        Rotary { theta, window }: Rotary,
        dropout: f64,
    ) -> Tensor<2> {
        let heads = self.num_attention_heads;
        let [query, key] = self.turned([query, key], packing, theta);
        let all = [query, key, value];
        let [batch, seq] = packing.dims();
        let Some(window) = window.filter(|&window| window + 1 < seq) else {
            return attention(all, &packing.sequences, heads, None, dropout);
        };
        if packing.is_contiguous() {
            return attention(all, &packing.sequences.with_window(window), heads, None, dropout);
        }
        // The window is of places, so padding between tokens counts.
        let no_bias = Tensor::zeros([batch, heads, seq, seq], (&all[0].device(), all[0].dtype()));
        let all = all.map(|rows| packing.unpack(rows).flatten::<2>(0, 1));
        let bias = packing.mask_keys(no_bias);
        let context = attention(all, &packing.places().with_window(window), heads, Some(bias), dropout);
        packing.pack(context.reshape([batch as i32, seq as i32, -1]))
    }

    /// Queries, multiplied with the part of the logits' scale that the operator does not have.
    fn scaled(&self, query: Tensor<2>) -> Tensor<2> {
        match &self.disentangled {
            Some(disentangled) => query.mul_scalar(disentangled.query_scale()),
            None => query,
        }
    }

    /// Packed queries and keys, turned by the angles of their places.
    fn turned<const N: usize>(&self, rows: [Tensor<2>; N], packing: &Packing, theta: f64) -> [Tensor<2>; N] {
        let columns = self.query.weight.lazy_shape()[1] / self.num_attention_heads;
        rows.map(|rows| {
            let angles = packing.angles(theta, columns, &rows);
            rotary(rows, angles, self.num_attention_heads)
        })
    }

    /// The attention weights before dropout, [B, A, S, S]: row l is the attention of position l over all positions, and rows
    /// and columns of padding are 0. A shared bias is [1, A, S, S]. Panics as [`forward`](Self::forward).
    pub fn weights(
        &self,
        rows: Tensor<2>,
        packing: &Packing,
        positions: Option<SharedPositions>,
    ) -> Tensor<4> {
        let heads = self.num_attention_heads;
        let [query, key] = [&self.query, &self.key].map(|layer| linear(layer, rows.clone()));
        let both = [self.scaled(query), key];
        let both = match self.rotary {
            Some(Rotary { theta, .. }) => self.turned(both, packing, theta),
            None => both,
        };
        let [query, key] = both.map(|rows| packing.unpack(rows));
        let [batch, seq, _] = query.dims();
        let bias = self.bias(|| [query.clone(), key.clone()], packing, positions, false);
        // The operator for weights takes a bias always.
        let bias =
            bias.unwrap_or_else(|| Tensor::zeros([batch, heads, seq, seq], (&query.device(), query.dtype())));
        let both = [query, key].map(|all| all.flatten::<2>(0, 1));
        let places = packing.places();
        let window = self.rotary.and_then(|rotary| rotary.window);
        let places = window.map_or(places.clone(), |window| places.with_window(window));
        packing.mask_queries(attention_weights(both, &places, heads, packing.mask_keys(bias)))
    }

    /// R, of this layer's positions and those that all layers share: [B, A, L, L] for queries and keys [B, L, H].
    fn bias(
        &self,
        query_and_key: impl FnOnce() -> [Tensor<3>; 2],
        packing: &Packing,
        shared: Option<SharedPositions>,
        drops_out: bool,
    ) -> Option<Tensor<4>> {
        let heads = self.num_attention_heads;
        if let Some(disentangled) = &self.disentangled {
            let Some(SharedPositions::Vectors(shared)) = shared else {
                panic!("a layer of DeBERTa reads the distances of its encoder, which are missing")
            };
            let ([query, key], projections) = (query_and_key(), [&self.query, &self.key]);
            return Some(disentangled.bias([&query, &key], projections, shared, heads, drops_out));
        }
        let own = self.relative_positions.as_ref().map(|positions| {
            let [query, key] = query_and_key();
            positions.bias(&query, &key, heads)
        });
        let [batch, _] = packing.dims();
        let shared = shared.and_then(|shared| match shared {
            SharedPositions::Bias(bias) => Some(bias.clone().expand([batch as i64, -1, -1, -1])),
            SharedPositions::Vectors(_) => None,
        });
        own.into_iter().chain(shared).reduce(|own, shared| own + shared)
    }
}
