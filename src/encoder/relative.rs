//! Relative positions: of a layer by query and key, and of all layers by distance alone.

use super::config::BertEncoderConfig;
use crate::embeddings::{EmbeddingInitializer, PositionEmbeddingType, TokenEmbedding, TokenEmbeddingConfig};
use crate::error::{Error, Result};
use burn::module::Module;
use burn::prelude::*;

/// What the distance between two tokens adds to their attention score: with a vector `e` for every distance,
/// `RelativeKey` (Shaw et al. 2018) adds `qₗ·e(l − r)` to the score of query l and key r, and `RelativeKeyQuery`
/// (Huang et al. 2020, method 4) `qₗ·e(l − r) + kᵣ·e(l − r)`.
///
/// Built by [`BertEncoder`](super::BertEncoder) with a relative position scheme. Source: `BertSelfAttention` of
/// transformers 4.49 (5.0 removed it), whose `distance_embedding` this is.
#[derive(Module, Debug)]
pub struct RelativePositions {
    /// e, [2M − 1, d]: row i is that of the distance i − (M − 1).
    pub distance_embedding: TokenEmbedding,
    /// Whether keys take part.
    pub with_keys: bool,
}

impl RelativePositions {
    /// `None` if the embeddings add the positions.
    pub(super) fn new(config: &BertEncoderConfig, device: &Device) -> Result<Option<Self>> {
        let with_keys = match config.position_embedding_type {
            PositionEmbeddingType::Absolute | PositionEmbeddingType::AfterPadding => return Ok(None),
            PositionEmbeddingType::RelativeKey => false,
            PositionEmbeddingType::RelativeKeyQuery => true,
        };
        let distances = 2 * config.max_position_embeddings - 1;
        let table = TokenEmbeddingConfig::new(distances, config.hidden_size / config.num_attention_heads)
            .with_initializer(EmbeddingInitializer::Normal { std: config.initializer_range });
        Ok(Some(Self { distance_embedding: table.try_init(device)?, with_keys }))
    }

    /// The length of the longest sequence, M.
    pub fn max_position_embeddings(&self) -> usize {
        self.distance_embedding.num_embeddings().div_ceil(2)
    }

    /// Whether there is a vector for every distance in a sequence of `seq` places.
    pub(super) fn check(&self, seq: usize) -> Result<()> {
        let rows = self.max_position_embeddings();
        if seq <= rows {
            return Ok(());
        }
        let reason = format!("{seq} tokens with relative positions");
        Err(Error::SequenceTooLong { needed: seq - 1, reason, rows })
    }

    /// What is added to the scaled scores.
    ///
    /// # Shapes
    ///
    /// - `query`, `key`: [B, S, H]
    /// - output: [B, A, S, S] for A `heads`
    pub(super) fn bias(&self, query: &Tensor<3>, key: &Tensor<3>, heads: usize) -> Tensor<4> {
        let [batch, length, hidden_size] = query.dims();
        let head_dim = hidden_size / heads;
        let scale = 1.0 / (head_dim as f64).sqrt();
        let split = |all: &Tensor<3>| {
            all.clone().mul_scalar(scale).reshape([batch, length, heads, head_dim]).swap_dims(1, 2)
        };
        let [first, last] =
            [self.max_position_embeddings() - length, self.max_position_embeddings() + length - 2];
        let rising = Tensor::arange(first as i64..last as i64 + 1, &query.device()); // −(L − 1)..=L − 1
        let vectors = |rows: Tensor<1, Int>| -> Tensor<4> {
            let vectors: Tensor<2> = self.distance_embedding.forward_unchecked(rows);
            vectors.reshape([1, 1, 2 * length - 1, head_dim]).transpose()
        };
        // Looked up anew, not flipped: Burn 0.22.1 tells a worker that a flipped float tensor holds ints.
        let falling = rising.clone().neg().add_scalar((first + last) as i64);
        let of_queries = by_key(split(query).matmul(vectors(falling))); // falling distance: rising r
        if !self.with_keys {
            return of_queries;
        }
        of_queries + by_key(split(key).matmul(vectors(rising))).transpose() // rising distance: rising l
    }
}

/// From products with every distance to those of each pair: `out[i][j] = products[i][j − i + L − 1]`.
///
/// Row by row the wanted values start one place earlier, so rows that are one shorter bring them into columns.
///
/// # Shapes
///
/// - `products`: [G, A, L, 2L − 1]
/// - output: [G, A, L, L]
pub(super) fn by_key(products: Tensor<4>) -> Tensor<4> {
    let [groups, heads, length, distances] = products.dims();
    if length == 1 {
        return products;
    }
    products
        .reshape([groups, heads, length * distances])
        .narrow(2, length - 1, length * (distances - 1))
        .reshape([groups, heads, length, distances - 1])
        .narrow(3, 0, length)
}
