use super::packing::Packing;
use crate::embeddings::BertEmbeddingsConfig;
use crate::error::Result;
use crate::layers::{
    LayerNorm, MAX_ROWS, TokenEmbedding, TokenEmbeddingConfig, active_prob, check_sizes, ensure, linear,
};
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn_fused::{drop_out, lookup};
use std::ops::Range;

/// Disentangled attention (He et al. 2021); the defaults are DeBERTa-v3's.
///
/// A table has one vector for each of 2K ranges of distances between two tokens, with K = `position_buckets`, or
/// `max_relative_positions` without buckets. [`DisentangledAttention`](crate::encoder::DisentangledAttention) has the formula.
///
/// ```
/// use burn_bert::model::{BertModelConfig, DisentangledConfig};
///
/// let positions = DisentangledConfig::new().with_share_att_key(false).with_p2c(false);
/// let config = BertModelConfig::deberta_v3_base().with_disentangled(Some(positions));
/// assert!(config.validate().is_ok());
/// ```
#[derive(Config, Debug, Copy, PartialEq)]
#[non_exhaustive]
pub struct DisentangledConfig {
    /// Distances up to half as many tokens have a vector each, longer ones share vectors by their logarithm; `None` if all up
    /// to `max_relative_positions` have one.
    #[config(default = "Some(256)")]
    pub position_buckets: Option<usize>,
    /// The distance from which on all share a vector, but for a few beyond it in the last bucket.
    #[config(default = 512)]
    pub max_relative_positions: usize,
    /// Whether the attention's own projections to queries and keys are those of the vectors too.
    #[config(default = true)]
    pub share_att_key: bool,
    /// Whether the vectors are normalised, `norm_rel_ebd` of `"layer_norm"`.
    #[config(default = true)]
    pub norm_rel_ebd: bool,
    /// Whether queries are multiplied with keys of distances (content to position), `pos_att_type`.
    #[config(default = true)]
    pub c2p: bool,
    /// Whether keys are multiplied with queries of distances (position to content), `pos_att_type`.
    #[config(default = true)]
    pub p2c: bool,
}

impl DisentangledConfig {
    pub(super) fn validate(&self) -> Result<()> {
        let max = self.max_relative_positions;
        check_sizes([("max_relative_positions", max, MAX_ROWS / 2)])?;
        if let Some(buckets) = self.position_buckets {
            check_sizes([("position_buckets", buckets, MAX_ROWS / 2)])?;
            // The logarithms would be 0, or of 0.
            ensure(buckets >= 2 && max >= buckets / 2 + 2, "position_buckets", || {
                let max = max - 1;
                format!(
                    "is {buckets}, but must be at least 2, and half of it below max_relative_positions − 1 = {max}"
                )
            })?;
        }
        ensure(self.c2p || self.p2c, "pos_att_type", || {
            "is neither c2p nor p2c, so that no token has a place".into()
        })
    }

    /// K, the number of ranges of distances to each side.
    pub(super) fn span(&self) -> usize {
        self.position_buckets.unwrap_or(self.max_relative_positions)
    }

    /// 1, and one for each product with a vector of the distance: how many a logit is the sum of.
    pub(super) fn num_products(&self) -> usize {
        1 + usize::from(self.c2p) + usize::from(self.p2c)
    }

    /// The row of the table for a query so many positions after its key.
    fn row(&self, distance: i64) -> usize {
        let span = self.span() as i64;
        (self.bucket(distance) + span).clamp(0, 2 * span - 1) as usize
    }

    /// The rows for `length` positions.
    fn rows(&self, length: usize) -> Range<usize> {
        let last = length as i64 - 1;
        self.row(-last)..self.row(last) + 1
    }

    /// Source: `make_log_bucket_position` of transformers 5.23.
    fn bucket(&self, distance: i64) -> i64 {
        let Some(buckets) = self.position_buckets else { return distance };
        let middle = (buckets / 2) as i64;
        if distance.abs() <= middle {
            return distance;
        }
        // In f32 as transformers, whose rounding decides at the boundaries.
        let far = distance.abs() as f32 / middle as f32;
        let farthest = ((self.max_relative_positions - 1) as f64 / middle as f64) as f32;
        let steps = (far.ln() / farthest.ln() * (middle - 1) as f32).ceil() as i64;
        distance.signum() * (middle + steps)
    }
}

/// What the layers of a [`BertEncoder`](super::BertEncoder) share to compute their positions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SharedPositions {
    /// Added to the attention logits (MPNet): [1, A, S, S], or [1, A, L, L] with L the tokens of the longest sequence if no
    /// padding is between tokens.
    Bias(Tensor<4>),
    /// Those of [`DistanceEmbedding::vectors`] for S positions, or for L, as above: projected by each layer (DeBERTa).
    Vectors(Tensor<2>),
}

/// A vector for each range of distances between two tokens, which every layer of DeBERTa reads: `LayerNorm(E)`, or E.
/// Source: `DebertaV2Encoder.get_rel_embedding` of transformers 5.23.
/// [`DisentangledConfig`](crate::model::DisentangledConfig) has an example.
#[derive(Module, Debug)]
pub struct DistanceEmbedding {
    /// E, [2K, H].
    pub table: TokenEmbedding,
    /// Normalises E; `None` without `norm_rel_ebd`.
    pub layer_norm: Option<LayerNorm>,
    #[module(skip)]
    pub(crate) config: DisentangledConfig,
}

impl DistanceEmbedding {
    pub(super) fn new(
        config: DisentangledConfig,
        embeddings: &BertEmbeddingsConfig,
        device: &Device,
    ) -> Self {
        let hidden = embeddings.hidden_size;
        let table = TokenEmbeddingConfig::new(2 * config.span(), hidden)
            .with_initializer(embeddings.initializer.clone())
            .build(device);
        let layer_norm = config.norm_rel_ebd.then(|| embeddings.layer_norm(hidden, device));
        Self { table, layer_norm, config }
    }

    /// `LayerNorm(E)`, or E, of the R ranges that distances between `length` tokens are in, by rising position of the key, [R, H]. Panics
    /// if `length` is 0.
    pub fn vectors(&self, length: usize) -> Tensor<2> {
        assert!(length > 0, "no tokens have no distances");
        // The others would be normalised and projected for nothing: short texts have few distances.
        let Range { start, end } = self.config.rows(length);
        // By rising position of the key, so by falling distance from key to query.
        let vectors = self.table.weight.val().dequantize().narrow(0, start, end - start).flip([0]);
        if let Some(norm) = &self.layer_norm { norm.forward(vectors) } else { vectors }
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
    /// Dropout of the vectors of distances.
    pub(super) dropout: Dropout,
    #[module(skip)]
    config: DisentangledConfig,
}

impl DisentangledAttention {
    /// The attention of a layer with this dropout, whose projections `linear` makes.
    pub(super) fn new(config: DisentangledConfig, linear: impl Fn() -> Linear, dropout: f64) -> Self {
        let own = |is_read: bool| (is_read && !config.share_att_key).then(&linear);
        Self {
            pos_key_proj: own(config.c2p),
            pos_query_proj: own(config.p2c),
            dropout: DropoutConfig::new(dropout).init(),
            config,
        }
    }

    /// What logits of heads of `columns` are multiplied by, 1 / √(d·n).
    pub(super) fn scale(&self, columns: usize) -> f64 {
        ((columns * self.config.num_products()) as f64).sqrt().recip()
    }

    /// What queries and keys of L positions of a batch are multiplied with, [2L − 1, H], of the vectors that all layers share. The
    /// projections are those of the layer to queries and keys.
    pub(super) fn vectors(
        &self,
        packing: &Packing,
        length: usize,
        [to_query, to_key]: [&Linear; 2],
        shared: &Tensor<2>,
        drops_out: bool,
    ) -> [Option<Tensor<2>>; 2] {
        let (found, expected) = (shared.dims()[0], self.config.rows(length).len());
        assert_eq!(found, expected, "vectors of distances must be those of {length} positions");
        let dropout = if drops_out { active_prob(&self.dropout, &to_key.weight) } else { 0.0 };
        // A node of this layer's own in autodiff's graph, so that its parts of the gradient are added up first, as where it is computed again.
        let vectors = drop_out(shared.clone().unsqueeze::<3>().squeeze_dim(0), dropout);
        let last = length as i64 - 1;
        let row = |distance| self.config.row(last) - self.config.row(distance);
        let rows: Vec<_> = (-last..=last).rev().map(row).collect();
        // Of a short text each distance has a range of its own.
        let is_shared = !rows.iter().copied().eq(0..vectors.dims()[0]);
        let rows = is_shared.then(|| packing.indices(rows, &vectors.device()));
        let projected = |own: &Option<Linear>, of_layer| {
            let projected = linear(own.as_ref().unwrap_or(of_layer), vectors.clone());
            match &rows {
                Some(rows) => lookup(projected, rows.clone().unsqueeze(), None).squeeze_dim(0),
                None => projected,
            }
        };
        let of_query = self.config.c2p.then(|| projected(&self.pos_key_proj, to_key));
        let of_key = self.config.p2c.then(|| projected(&self.pos_query_proj, to_query));
        [of_query, of_key]
    }
}

#[cfg(test)]
mod tests {
    use super::DisentangledConfig;

    #[test]
    fn distances_fall_into_the_buckets_of_deberta() {
        // `make_log_bucket_position(torch.arange(700), 256, 512)` of transformers 5.23: some, and two sums that see each
        // boundary.
        let config = DisentangledConfig::new();
        let bucket = |distance: i64| config.bucket(distance);
        assert_eq!([1, 128, 129, 200, 511, 512, 699].map(bucket), [1, 128, 129, 169, 255, 256, 284]);
        assert_eq!((0..700).map(bucket).sum::<i64>(), 138_189);
        assert_eq!((0..700).map(|distance| distance * bucket(distance)).sum::<i64>(), 58_356_532);
        assert!((0..700).all(|distance| bucket(-distance) == -bucket(distance)));
        assert_eq!(
            [-900, -512, -1, 0, 1, 512, 900].map(|distance| config.row(distance)),
            [0, 0, 255, 256, 257, 511, 511]
        );
        let each = config.with_position_buckets(None).with_max_relative_positions(3);
        assert_eq!([-4, -3, 0, 2, 3].map(|distance| each.row(distance)), [0, 0, 3, 5, 5]);
    }
}
