//! Positions of all layers as vectors that queries and keys are multiplied with (DeBERTa).

use super::config::BertModelConfig;
use super::disentangled_config::DisentangledConfig;
use crate::error::Result;
use crate::layers::{LayerNorm, ParameterCheck, TokenEmbedding, TokenEmbeddingConfig, active_prob, linear};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn_fused::{drop_out, lookup};
use std::fmt::Display;

/// What the layers of a [`BertEncoder`](super::BertEncoder) share to compute their positions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SharedPositions<'a> {
    /// Added to the attention logits (MPNet): [1, A, S, S], or [1, A, L, L] with L the tokens of the longest sequence if no
    /// padding is between tokens.
    Bias(&'a Tensor<4>),
    /// Projected by each layer (DeBERTa).
    Vectors(&'a DistanceEmbedding),
}

/// A vector for each range of distances between two tokens, which every layer of DeBERTa reads: `LayerNorm(E)`, or E.
/// Source: `DebertaV2Encoder.get_rel_embedding` of transformers 5.23.
/// [`DisentangledConfig`](crate::model::DisentangledConfig) has an example.
#[derive(Module, Debug)]
pub struct DistanceEmbedding {
    /// E, [2K, H].
    pub table: TokenEmbedding,
    /// With `norm_rel_ebd`.
    pub layer_norm: Option<LayerNorm>,
    #[module(skip)]
    config: DisentangledConfig,
}

impl DistanceEmbedding {
    /// `None` in a family without.
    pub(super) fn new(config: &BertModelConfig, device: &Device) -> Result<Option<Self>> {
        let (embeddings, Some(own)) = (&config.embeddings, config.disentangled) else { return Ok(None) };
        let hidden = embeddings.hidden_size;
        let table = TokenEmbeddingConfig::new(2 * own.span(), hidden)
            .with_initializer(embeddings.initializer.clone())
            .try_init(device)?;
        let layer_norm = own.norm_rel_ebd.then(|| embeddings.layer_norm(hidden, device));
        Ok(Some(Self { table, layer_norm, config: own }))
    }

    pub(super) fn config(&self) -> DisentangledConfig {
        self.config
    }

    /// Whether the parameters fit layers of vectors of length `hidden`.
    pub(super) fn check(&self, check: &ParameterCheck, hidden: usize) -> Result<()> {
        let rows = 2 * self.config.span();
        check.param("distances.table.weight", &self.table.weight, [rows, hidden])?;
        let norm = self.layer_norm.as_ref();
        norm.map_or(Ok(()), |norm| check.norm("distances.layer_norm", norm, hidden))
    }

    /// The vectors of the distances between L places, [R, H], and the row of each distance, from L − 1 down to −(L − 1).
    fn vectors(&self, length: usize) -> (Tensor<2>, Vec<i64>) {
        let last = length as i64 - 1;
        let [first, end] = [self.config.row(-last), self.config.row(last) + 1];
        // The others would be normalised and projected for nothing: short texts have few distances.
        let rows = self.table.weight.val().narrow(0, first, end - first);
        let rows = if let Some(norm) = &self.layer_norm { norm.forward(rows) } else { rows };
        let falling = (-last..=last).rev().map(|distance| (self.config.row(distance) - first) as i64);
        (rows, falling.collect())
    }
}

/// The logits of DeBERTa's disentangled attention beside those of queries and keys, of which
/// [`BertSelfAttention`](super::BertSelfAttention) has one in each layer. For query l, key r, and the vector
/// `e = Dropout(LayerNorm(E))[δ(l − r)]` of their distance,
///
/// ```text
/// logit = (qₗ·kᵣ + qₗ·(e·Wk + bk) + kᵣ·(e·Wq + bq)) / √(d·n)
/// ```
///
/// with n = 3, or 2 without the second or the third product. Wk and Wq are those of the layer's keys and queries, adapters
/// included, unless they are [its own](Self::pos_key_proj). With K `position_buckets` and M `max_relative_positions`,
///
/// ```text
/// δ(x) = K + x                                                                          |x| ≤ K/2
/// δ(x) = K ± (K/2 + ⌈(K/2 − 1) · ln(|x| / (K/2)) / ln((M − 1) / (K/2))⌉)                further, cut off at 0 and 2K − 1
/// ```
///
/// and without buckets K = M and `δ(x) = K + x`, cut off alike. [`DisentangledConfig`](crate::model::DisentangledConfig) has an
/// example. Source: `DisentangledSelfAttention` of transformers 5.23.
#[derive(Module, Debug)]
pub struct DisentangledAttention {
    /// Wk and bk, [H, H]; `None` if the projection to the keys is that of the positions too.
    pub pos_key_proj: Option<Linear>,
    /// Wq and bq, [H, H]; `None` if the projection to the queries is that of the positions too.
    pub pos_query_proj: Option<Linear>,
    /// Of the vectors of distances.
    pub(super) dropout: Dropout,
    #[module(skip)]
    config: DisentangledConfig,
}

impl DisentangledAttention {
    /// `None` in a family without.
    pub(super) fn new(config: &BertModelConfig, device: &Device) -> Option<Self> {
        let own = config.disentangled?;
        let linear = |is_read: bool| {
            (is_read && !own.share_att_key).then(|| config.linear(config.embeddings.hidden_size, device))
        };
        Some(Self {
            pos_key_proj: linear(own.c2p),
            pos_query_proj: linear(own.p2c),
            dropout: DropoutConfig::new(config.embeddings.hidden_dropout_prob).init(),
            config: own,
        })
    }

    /// The projections of its own, with the names of their fields.
    pub(crate) fn linears(&self) -> [(&'static str, Option<&Linear>); 2] {
        [("pos_key_proj", self.pos_key_proj.as_ref()), ("pos_query_proj", self.pos_query_proj.as_ref())]
    }

    pub(super) fn check(&self, name: impl Display, check: &ParameterCheck, hidden: usize) -> Result<()> {
        self.linears().into_iter().try_for_each(|(part, linear)| {
            linear.map_or(Ok(()), |linear| check.linear(format_args!("{name}.{part}"), linear, [hidden; 2]))
        })
    }

    /// 1 / √n.
    // A factor, as Burn's backward of a division by a number rounds it to f32.
    pub(super) fn query_scale(&self) -> f64 {
        (self.config.num_products() as f64).sqrt().recip()
    }

    /// What queries, divided by √n, and keys of L places are multiplied with, [2L − 1, H]. `projections` are those of the layer
    /// to queries and keys.
    pub(super) fn vectors(
        &self,
        length: usize,
        [to_query, to_key]: [&Linear; 2],
        shared: &DistanceEmbedding,
        drops_out: bool,
    ) -> [Option<Tensor<2>>; 2] {
        let dropout = if drops_out { active_prob(&self.dropout, &shared.table.weight) } else { 0.0 };
        let (vectors, falling) = shared.vectors(length);
        let vectors = drop_out(vectors, dropout);
        // By rising place of the key, so by falling distance from key to query.
        let rows = Tensor::<1, Int>::from_data(falling.as_slice(), &vectors.device()).unsqueeze();
        let projected = |own: &Option<Linear>, of_layer| {
            let projected = linear(own.as_ref().unwrap_or(of_layer), vectors.clone());
            lookup(projected, rows.clone(), None).squeeze_dim::<2>(0)
        };
        let of_query = self.config.c2p.then(|| projected(&self.pos_key_proj, to_key));
        let of_key = self.config.p2c.then(|| projected(&self.pos_query_proj, to_query));
        [of_query, of_key.map(|vectors| vectors.mul_scalar(self.query_scale()))]
    }
}
