//! The row optimisers' configs.

use super::optimizer::{Rule, SparseOptimizer};
use crate::error::Result;
use crate::optim::{Adam, AdamKind};
use burn::config::Config;

/// Plain gradient descent on rows: `w ← w − η·g`. [The module's example](super) works with it too.
///
/// Equal to dense SGD without momentum and decay, to rounding: rows without a gradient do not move there either.
#[derive(Config, Debug, PartialEq)]
pub struct RowSgdConfig {}

impl RowSgdConfig {
    /// The optimiser.
    pub fn init(&self) -> SparseOptimizer {
        SparseOptimizer::new(Rule::Sgd)
    }
}

/// Adam on rows, equal to `torch.optim.SparseAdam` on `nn.Embedding(sparse=True)`; used in [the module's
/// example](super).
///
/// For each touched row, with t counted per table (not per row, as in PyTorch):
///
/// ```text
/// m ← m + (1 − β₁)(g − m)
/// v ← v + (1 − β₂)(g² − v)
/// w ← w − η·√(1 − β₂ᵗ)/(1 − β₁ᵗ) · m/(√v + ε)
/// ```
///
/// A row that is not touched keeps w, m and v: its momentum neither moves it nor decays. Dense Adam does both.
/// A row that is touched with a gradient of 0 is moved by its momentum.
///
/// Source: `torch/optim/_functional.py` and `sparse_adam.py` of PyTorch 2.15.
#[derive(Config, Debug, PartialEq)]
pub struct SparseAdamConfig {
    /// Decay of the mean of gradients, in [0, 1).
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay of the mean of squared gradients, in [0, 1).
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// ε, added to the root; at least `f32::MIN_POSITIVE`.
    #[config(default = 1e-8)]
    pub epsilon: f64,
}

/// AdamW on rows, which decays only touched rows. [The module's example](super) works with it too.
///
/// For each touched row, with t counted per table:
///
/// ```text
/// m ← m + (1 − β₁)(g − m)
/// v ← v + (1 − β₂)(g² − v)
/// w ← (1 − η·λ)·w − η · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)
/// ```
///
/// Equal to dense AdamW as long as every row is touched in every step, but for the padding row, which is never
/// touched and so never decays.
///
/// # Difference from dense AdamW
///
/// A row that is not touched stays as it is. In dense AdamW such a row shrinks by (1 − η·λ) each step, and
/// the momentum of its last gradient goes on moving it while m and v decay. Frequent rows see little of it; a
/// row that comes once in a thousand steps is decayed once, where dense AdamW decays it a thousand times.
///
/// Example: η = 0.1, λ = 0.5, one row w = 1 that gets the gradient 1 in step 1 and is not touched in step 2. Step 1 is
/// the same in both: m/(1 − β₁) = 1 and √(v/(1 − β₂)) = 1, so w = 0.95·1 − 0.1·1 = 0.85. In step 2 the lazy row stays
/// at 0.85. The dense one has m = 0.09, v = 0.000999 and becomes 0.95·0.85 − 0.1·(0.09/0.19)/√(0.000999/0.001999) =
/// 0.8075 − 0.0670 = 0.7405.
///
/// Source of the update: `torch.optim.AdamW` of PyTorch 2.15.
#[derive(Config, Debug, PartialEq)]
pub struct LazyAdamWConfig {
    /// Decay of the mean of gradients, in [0, 1).
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay of the mean of squared gradients, in [0, 1).
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// ε, added to the root; at least `f32::MIN_POSITIVE`.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// λ, at least 0. PyTorch's default; Burn's `AdamWConfig` has 1e-4.
    #[config(default = 1e-2)]
    pub weight_decay: f64,
}

macro_rules! init {
    ($config:ident, $kind:expr) => {
        impl $config {
            /// The optimiser.
            ///
            /// # Panics
            ///
            /// Where [`try_init`](Self::try_init) returns an error, with the same message.
            pub fn init(&self) -> SparseOptimizer {
                self.try_init().unwrap_or_else(|error| panic!("{error}"))
            }

            /// The optimiser.
            ///
            /// # Errors
            ///
            /// [`Error::Config`](crate::Error::Config), naming the field, if a value is outside the range that its
            /// documentation gives.
            pub fn try_init(&self) -> Result<SparseOptimizer> {
                let kind: fn(&Self) -> AdamKind = $kind;
                let adam = Adam::new(self.beta_1, self.beta_2, self.epsilon, kind(self))?;
                Ok(SparseOptimizer::new(Rule::Adam(adam)))
            }
        }
    };
}
init!(SparseAdamConfig, |_| AdamKind::Sparse);
init!(LazyAdamWConfig, |config| AdamKind::W { weight_decay: config.weight_decay });
