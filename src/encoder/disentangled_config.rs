//! Which vectors of distances DeBERTa has.

use crate::error::{Error, Result};
use crate::layers::{MAX_ROWS, check_sizes};
use burn::config::Config;

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
            if buckets < 2 || max < buckets / 2 + 2 {
                let problem = format!(
                    "is {buckets}, but must be at least 2, and half of it below max_relative_positions − 1 = {}",
                    max - 1
                );
                return Err(Error::config("position_buckets", problem));
            }
        }
        if !(self.c2p || self.p2c) {
            return Err(Error::config(
                "pos_att_type",
                "is neither c2p nor p2c, so that no token has a place",
            ));
        }
        Ok(())
    }

    /// K.
    pub(super) fn span(&self) -> usize {
        self.position_buckets.unwrap_or(self.max_relative_positions)
    }

    /// 1, and one for each product with a vector of the distance: how many a logit is the sum of.
    pub(super) fn num_products(&self) -> usize {
        1 + usize::from(self.c2p) + usize::from(self.p2c)
    }

    /// The row of the table for a query so many places after its key.
    pub(super) fn row(&self, distance: i64) -> usize {
        let span = self.span() as i64;
        (self.bucket(distance) + span).clamp(0, 2 * span - 1) as usize
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
