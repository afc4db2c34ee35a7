//! Positions of each layer, by query or key and distance.

use super::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::family::{PositionEmbeddingType, RelativeScores};
use crate::layers::{TokenEmbedding, TokenEmbeddingConfig};
use burn::module::Module;
use burn::prelude::*;
use burn_fused::{Precision, autocast, linear};

/// What the distance between two tokens adds to their attention logit in a
/// [`BertEncoder`](super::BertEncoder): with a vector `e` for every distance,
/// `RelativeKey` (Shaw et al. 2018) adds `qₗ·e(l − r)` for query l and key r, and `RelativeKeyQuery` (Huang et al.
/// 2020, method 4) `qₗ·e(l − r) + kᵣ·e(l − r)`: divided by √d as the logit itself, but not in ALBERT. Source:
/// `BertSelfAttention` of transformers 4.49 (5.0 removed it), whose `distance_embedding` this is, and `AlbertAttention`
/// there.
#[derive(Module, Debug)]
pub struct RelativePositions {
    /// e, [2M − 1, d]: row i is that of the distance i − (M − 1).
    pub distance_embedding: TokenEmbedding,
    with_keys: bool,
    #[module(skip)]
    scores: RelativeScores,
}

impl RelativePositions {
    /// `None` if positions are not relative in one of the two ways.
    pub(super) fn new(config: &BertModelConfig, device: &Device) -> Result<Option<Self>> {
        let embeddings = &config.embeddings;
        let with_keys = match embeddings.position_embedding_type {
            PositionEmbeddingType::RelativeKey => false,
            PositionEmbeddingType::RelativeKeyQuery => true,
            _ => return Ok(None),
        };
        // A config with relative positions of a family without was refused.
        let Some(scores) = embeddings.family.architecture().encoder.relative_scores else { return Ok(None) };
        // From −(M − 1) to M − 1.
        let distances = 2 * embeddings.max_position_embeddings - 1;
        let table = TokenEmbeddingConfig::new(distances, embeddings.hidden_size / config.num_attention_heads)
            .with_initializer(embeddings.initializer.clone());
        Ok(Some(Self { distance_embedding: table.try_init(device)?, with_keys, scores }))
    }

    /// Whether keys take part: whether the scheme is `RelativeKeyQuery`.
    pub fn with_keys(&self) -> bool {
        self.with_keys
    }

    /// The length of the longest sequence, M.
    pub fn max_position_embeddings(&self) -> usize {
        self.distance_embedding.num_embeddings().div_ceil(2)
    }

    /// Refuses a sequence of `seq` places that has distances without a vector.
    pub(super) fn check(&self, seq: usize) -> Result<()> {
        let rows = self.max_position_embeddings();
        if seq <= rows {
            return Ok(());
        }
        let reason = format!("{seq} tokens with relative positions");
        Err(Error::SequenceTooLong { needed: seq - 1, reason, rows })
    }

    /// What is added to the scaled logits of `query` and `key`, [B, S, H]: [B, A, S, S] for A `heads`.
    pub(super) fn bias(&self, query: &Tensor<3>, key: &Tensor<3>, heads: usize) -> Tensor<4> {
        let [batch, length, hidden_size] = query.dims();
        let head_dim = hidden_size / heads;
        let split = |all: &Tensor<3>| {
            let all = all.clone().reshape([batch, length, heads, head_dim]).swap_dims(1, 2);
            match self.scores {
                // Of the vectors and not of the scores, which are more by L / d.
                RelativeScores::Scaled => all.mul_scalar(1.0 / (head_dim as f64).sqrt()),
                RelativeScores::Unscaled => all,
            }
        };
        let [first, last] =
            [self.max_position_embeddings() - length, self.max_position_embeddings() + length - 2];
        let rising = Tensor::arange(first as i64..last as i64 + 1, &query.device()); // −(L − 1)..=L − 1
        // As a linear layer, whose rows have the same bits in any batch; Burn's matmul adds up by the number of rows.
        let scores = |of: &Tensor<3>, rows: Tensor<1, Int>| -> Tensor<4> {
            let vectors: Tensor<2> = self.distance_embedding.forward_unchecked(rows);
            autocast(Precision::F32, || linear(split(of), vectors.transpose(), None))
        };
        let falling = rising.clone().neg().add_scalar((first + last) as i64);
        let of_queries = by_key(scores(query, falling)); // falling distance: rising r
        if !self.with_keys {
            return of_queries;
        }
        of_queries + by_key(scores(key, rising)).transpose() // rising distance: rising l
    }
}

/// From matmuls with every distance, [G, A, L, 2L − 1], to those of each pair, [G, A, L, L]:
/// `out[i][j] = products[i][j − i + L − 1]`.
pub(super) fn by_key(products: Tensor<4>) -> Tensor<4> {
    let [groups, heads, length, distances] = products.dims();
    if length == 1 {
        return products;
    }
    // Row by row the wanted values start one place earlier, so rows that are one shorter bring them into columns.
    products
        .reshape([groups, heads, length * distances])
        .narrow(2, length - 1, length * (distances - 1))
        .reshape([groups, heads, length, distances - 1])
        .narrow(3, 0, length)
}
