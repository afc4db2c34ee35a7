use super::config::BertModelConfig;
use super::packing::Packing;
use crate::error::{Error, Result};
use crate::family::{PositionEmbeddingType, RelativeScores};
use crate::layers::{TokenEmbedding, TokenEmbeddingConfig};
use burn::prelude::*;

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
    pub(super) fn new(config: &BertModelConfig, device: &Device) -> Option<Self> {
        let embeddings = &config.embeddings;
        let with_keys = match embeddings.position_embedding_type {
            PositionEmbeddingType::RelativeKey => false,
            PositionEmbeddingType::RelativeKeyQuery => true,
            _ => return None,
        };
        // A config with relative positions of a family without was refused.
        let scores = config.encoder().relative_scores?;
        // From −(M − 1) to M − 1.
        let distances = 2 * embeddings.max_position_embeddings - 1;
        let table = TokenEmbeddingConfig::new(distances, embeddings.hidden_size / config.num_attention_heads)
            .with_initializer(embeddings.initializer.clone());
        Some(Self { distance_embedding: table.build(device), with_keys, scores })
    }

    /// Whether keys take part: whether the scheme is `RelativeKeyQuery`.
    pub fn with_keys(&self) -> bool {
        self.with_keys
    }

    /// The length of the longest sequence, M.
    pub fn max_position_embeddings(&self) -> usize {
        self.distance_embedding.num_embeddings().div_ceil(2)
    }

    /// Refuses a sequence of `seq` positions that has distances without a vector.
    pub(super) fn check(&self, seq: usize) -> Result<()> {
        let rows = self.max_position_embeddings();
        if seq <= rows {
            return Ok(());
        }
        let reason = format!("{seq} tokens with relative positions");
        Err(Error::SequenceTooLong { needed: seq - 1, reason, rows })
    }

    /// The vectors of distances by which A `heads` multiply queries and keys of L positions of a batch, [2L − 1, H].
    pub(super) fn vectors(&self, packing: &Packing, length: usize, heads: usize) -> [Option<Tensor<2>>; 2] {
        let rows = self.max_position_embeddings();
        let device = self.distance_embedding.weight.lazy_device();
        // By rising position of the key, so by falling distance from key to query.
        let falling = packing.indices((rows - length..rows + length - 1).rev().collect(), &device);
        let vectors: Tensor<2> = self.distance_embedding.forward_unchecked(falling);
        let [_, head_dim] = vectors.dims();
        let vectors = match self.scores {
            RelativeScores::Scaled => vectors,
            // Attention scales all logits.
            RelativeScores::Unscaled => vectors.mul_scalar((head_dim as f64).sqrt()),
        };
        let vectors = vectors.repeat_dim(1, heads);
        [Some(vectors.clone()), self.with_keys.then_some(vectors)]
    }
}
