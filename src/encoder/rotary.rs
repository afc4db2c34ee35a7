use super::once_per_batch::OncePerBatch;
use crate::error::Result;
use crate::layers::{check_sizes, ensure};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::computed_in;
use std::collections::{BTreeMap, BTreeSet};

/// Rotary positions (Su et al. 2021), and a window of attention in most layers; the defaults are ModernBERT's.
///
/// The angle of position m and pair i of a head's d columns is `m · θ^(−2i/d)`, divided by the factor of linear scaling.
///
/// ```
/// use burn_bert::model::{BertModelConfig, RotaryConfig};
///
/// let local = RotaryConfig::new().with_local_attention(64).with_global_attn_every_n_layers(4);
/// let config = BertModelConfig::modernbert_base().with_rotary(Some(local));
/// assert!(config.validate().is_ok());
/// ```
#[derive(Config, Debug, Copy, PartialEq)]
#[non_exhaustive]
pub struct RotaryConfig {
    /// θ of the layers in which a token attends to all.
    #[config(default = 160_000.0)]
    pub global_rope_theta: f64,
    /// θ of the other layers.
    #[config(default = 10_000.0)]
    pub local_rope_theta: f64,
    /// The window of the other layers: a token attends to those at most half as far before and after it.
    #[config(default = 128)]
    pub local_attention: usize,
    /// The first of every so many layers attends to all tokens.
    #[config(default = 3)]
    pub global_attn_every_n_layers: usize,
    /// The factor of linear scaling, by which all angles are divided.
    #[config(default = 1.0)]
    pub scaling_factor: f64,
}

impl RotaryConfig {
    /// Rotary positions with one θ in every layer, each of which attends to all tokens (NomicBERT, GTE, Jina embeddings v3, EuroBERT).
    pub fn uniform(theta: f64) -> Self {
        Self::new().with_global_rope_theta(theta).with_global_attn_every_n_layers(1)
    }

    pub(super) fn validate(&self) -> Result<()> {
        for (field, theta) in
            [("global_rope_theta", self.global_rope_theta), ("local_rope_theta", self.local_rope_theta)]
        {
            let is_valid = theta.is_finite() && theta > 0.0;
            ensure(is_valid, field, || format!("is {theta}, but must be finite and above 0"))?;
        }
        let factor = self.scaling_factor;
        ensure(factor.is_finite() && factor > 0.0, "scaling_factor", || {
            format!("is {factor}, but must be finite and above 0")
        })?;
        check_sizes([
            ("local_attention", self.local_attention, usize::MAX),
            ("global_attn_every_n_layers", self.global_attn_every_n_layers, usize::MAX),
        ])
    }

    pub(super) fn for_layer(&self, layer: usize) -> Rotary {
        let (theta, window) = match layer % self.global_attn_every_n_layers {
            0 => (self.global_rope_theta, None),
            // Half of the window is before the token, half after it.
            _ => (self.local_rope_theta, Some(self.local_attention / 2)),
        };
        Rotary { speeds: [theta, self.scaling_factor], window }
    }
}

/// Rotary positions of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotary {
    /// θ and the factor of linear scaling.
    pub(super) speeds: [f64; 2],
    /// The largest distance at which a token attends to another; `None` if it attends to all.
    pub(super) window: Option<usize>,
}

/// Cosines and sines of the tokens of one batch, for all layers.
#[derive(Clone, Debug, Default)]
pub(super) struct Angles(
    /// Cosines and sines, each [N, d/2], by θ and factor, d and dtype.
    OncePerBatch<([f64; 2], usize, DType), [Tensor<2>; 2]>,
);

impl Angles {
    /// The cosines and sines of `m · θ^(−2i/d) / factor` for each token, at position m of `positions`, and each i below d/2, beside
    /// `rows`.
    pub(super) fn cos_sin(
        &self,
        speeds @ [theta, factor]: [f64; 2],
        columns: usize,
        positions: &[i64],
        rows: &Tensor<2>,
    ) -> [Tensor<2>; 2] {
        self.0.get((speeds, columns, computed_in(rows.dtype())), |&(_, _, dtype)| {
            let half = columns / 2;
            // In f64 on the host: in f32 an angle at position 8,000 is off by half a thousandth, and GPUs' sines of it by more.
            let speed = |i: usize| theta.powf(-2.0 * i as f64 / columns as f64) / factor;
            let speeds: Vec<f64> = (0..half).map(speed).collect();
            let at = |m: i64| speeds.iter().map(move |speed| (m as f64 * speed).sin_cos());
            // Once for each position: sequences of a batch share most of theirs.
            let distinct: BTreeSet<i64> = positions.iter().copied().collect();
            let all: BTreeMap<i64, Vec<(f64, f64)>> =
                distinct.into_iter().map(|m| (m, at(m).collect())).collect();
            // They have no gradient.
            let device = rows.device().without_autodiff();
            let table = |value: fn(&(f64, f64)) -> f64| {
                let values: Vec<f64> = positions.iter().flat_map(|&m| all[&m].iter().map(value)).collect();
                Tensor::from_data(TensorData::new(values, [positions.len(), half]), (&device, dtype))
            };
            [table(|angle| angle.1), table(|angle| angle.0)]
        })
    }
}
