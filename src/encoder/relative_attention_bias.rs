use super::config::BertModelConfig;
use crate::layers::{TokenEmbedding, TokenEmbeddingConfig};
use burn::prelude::*;

const BUCKETS: usize = 32;

/// The distance from which on all share a bucket.
const FAR: f64 = 128.0;

/// What the distance between two tokens adds to their scaled attention logit in every layer of MPNet's
/// [`BertEncoder`](super::BertEncoder): a number for each head and bucket of distances, `table[bucket(r − l)]` for query
/// l and key r.
///
/// Half of the 32 buckets are for keys after the query, half for those up to it. Eight of each half hold one distance
/// (0 to 7), the others grow logarithmically up to 128, from which on all share the last. Source:
/// `MPNetEncoder.compute_position_bias` of transformers 5.23, whose `relative_attention_bias` this is.
#[derive(Module, Debug)]
pub struct RelativeAttentionBias {
    /// [32, A].
    pub table: TokenEmbedding,
}

impl RelativeAttentionBias {
    /// `None` in a family without.
    pub(super) fn new(config: &BertModelConfig, device: &Device) -> Option<Self> {
        let table = TokenEmbeddingConfig::new(BUCKETS, config.num_attention_heads)
            .with_initializer(config.embeddings.initializer.clone());
        config.encoder().has_relative_attention_bias.then(|| Self { table: table.build(device) })
    }

    /// [1, A, L, L] for the distances between L positions, on the device of the table.
    pub(super) fn bias(&self, length: usize) -> Tensor<4> {
        let last = length as i64 - 1;
        let buckets: Vec<i64> = (-last..=last).map(|distance| bucket(distance) as i64).collect();
        let device = self.table.weight.lazy_device();
        let buckets = Tensor::<1, Int>::from_data(buckets.as_slice(), &device);
        let by_distance: Tensor<2> = self.table.forward_unchecked(buckets); // [2L − 1, A], of r − l
        let [distances, heads] = by_distance.dims();
        if length == 1 {
            return by_distance.reshape([1, heads, 1, 1]);
        }
        // Row l of the result begins one distance before row l − 1: in rows that are one shorter these are columns.
        let rows =
            by_distance.transpose().reshape([1, heads, 1, distances]).expand([1, heads, length, distances]);
        rows.reshape([1, heads, length * distances])
            .narrow(2, length - 1, length * (distances - 1))
            .reshape([1, heads, length, distances - 1])
            .narrow(3, 0, length)
    }
}

/// The bucket of the distance r − l.
fn bucket(distance: i64) -> usize {
    const HALF: usize = BUCKETS / 2;
    const EXACT: usize = HALF / 2;
    let first = if distance > 0 { HALF } else { 0 };
    let far = distance.unsigned_abs() as usize;
    if far < EXACT {
        return first + far;
    }
    // In f32 as transformers, whose rounding decides at the boundaries.
    let exact = EXACT as f32;
    let share = (far as f32 / exact).ln() / (FAR / f64::from(exact)).ln() as f32;
    // Cut off and not rounded, as by torch's `.to(torch.long)`.
    let logarithmic = EXACT + (share * (HALF - EXACT) as f32) as usize;
    first + logarithmic.min(HALF - 1)
}
