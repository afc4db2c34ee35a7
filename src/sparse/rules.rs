//! What an optimiser does to a row: SGD, SparseAdam, lazy AdamW.

use super::optimizer::SparseOptimizer;
use super::step::Step;
use crate::error::{Error, Result};
use burn::config::Config;
use burn::prelude::*;

/// Plain gradient descent on rows: `w ← w − η·g`.
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

/// Adam on rows, equal to `torch.optim.SparseAdam` on `nn.Embedding(sparse=True)`.
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
    /// ε, added to the root; above 0.
    #[config(default = 1e-8)]
    pub epsilon: f64,
}

impl SparseAdamConfig {
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
    /// [`Error::Config`], naming the field, if a value is outside the range that its documentation gives.
    pub fn try_init(&self) -> Result<SparseOptimizer> {
        let adam = Adam::new(self.beta_1, self.beta_2, self.epsilon, AdamKind::Sparse)?;
        Ok(SparseOptimizer::new(Rule::Adam(adam)))
    }
}

/// AdamW on rows, whose decay touches touched rows only.
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
/// By way of example: η = 0.1, λ = 0.5, one row w = 1 that gets the gradient 1 in step 1 and is not touched in
/// step 2. Step 1 is the same in both: m/(1 − β₁) = 1 and √(v/(1 − β₂)) = 1, so w = 0.95·1 − 0.1·1 = 0.85. In step 2
/// the lazy row stays at 0.85. The dense one has m = 0.09, v = 0.000999 and becomes
/// 0.95·0.85 − 0.1·(0.09/0.19)/√(0.000999/0.001999) = 0.8075 − 0.0670 = 0.7405.
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
    /// ε, added to the root; above 0.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// λ, at least 0. PyTorch's default; Burn's `AdamWConfig` has 1e-4.
    #[config(default = 1e-2)]
    pub weight_decay: f64,
}

impl LazyAdamWConfig {
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
    /// [`Error::Config`], naming the field, if a value is outside the range that its documentation gives.
    pub fn try_init(&self) -> Result<SparseOptimizer> {
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            let problem = format!("is {}, but must be finite and not negative", self.weight_decay);
            return Err(Error::Config { field: "weight_decay", problem });
        }
        let kind = AdamKind::LazyW { weight_decay: self.weight_decay };
        let adam = Adam::new(self.beta_1, self.beta_2, self.epsilon, kind)?;
        Ok(SparseOptimizer::new(Rule::Adam(adam)))
    }
}

/// What an optimiser does to rows.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// Plain descent, without state.
    Sgd,
    /// Descent along running means.
    Adam(Adam),
}

#[derive(Debug, Clone)]
pub(super) struct Adam {
    beta_1: f64,
    beta_2: f64,
    epsilon: f64,
    kind: AdamKind,
}

#[derive(Debug, Clone)]
enum AdamKind {
    /// ε beside √v, no decay.
    Sparse,
    /// ε beside √v̂, and decay.
    LazyW { weight_decay: f64 },
}

/// Adam's running means of g and g²: of some rows, [U, H], or of a whole table, [V, H].
#[derive(Debug, Clone)]
pub(super) struct Moments {
    pub(super) mean: Tensor<2>,
    pub(super) square: Tensor<2>,
}

impl Rule {
    /// Its name, by which a saved state is recognised.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Sgd => "RowSgd",
            Self::Adam(Adam { kind: AdamKind::Sparse, .. }) => "SparseAdam",
            Self::Adam(Adam { kind: AdamKind::LazyW { .. }, .. }) => "LazyAdamW",
        }
    }
}

impl Adam {
    fn new(beta_1: f64, beta_2: f64, epsilon: f64, kind: AdamKind) -> Result<Self> {
        for (field, beta) in [("beta_1", beta_1), ("beta_2", beta_2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::Config { field, problem: format!("is {beta}, but must lie in [0, 1)") });
            }
        }
        if !(epsilon.is_finite() && epsilon > 0.0) {
            let problem = format!("is {epsilon}, but must be finite and above 0");
            return Err(Error::Config { field: "epsilon", problem });
        }
        Ok(Self { beta_1, beta_2, epsilon, kind })
    }

    /// What a step multiplies with what.
    fn coefficients(&self, Step { learning_rate, time }: Step) -> Coefficients {
        let [correction_1, correction_2] =
            [self.beta_1, self.beta_2].map(|beta| 1.0 - beta.powf(time as f64));
        match self.kind {
            AdamKind::Sparse => Coefficients {
                keep: 1.0,
                root: 1.0,
                size: learning_rate * correction_2.sqrt() / correction_1,
            },
            AdamKind::LazyW { weight_decay } => Coefficients {
                keep: 1.0 - learning_rate * weight_decay,
                root: 1.0 / correction_2.sqrt(),
                size: learning_rate / correction_1,
            },
        }
    }

    /// The running means of some rows with a gradient taken in.
    pub(super) fn follow(&self, old: Moments, gradient: Tensor<2>) -> Moments {
        let toward =
            |old: Tensor<2>, new: Tensor<2>, beta: f64| (new - old.clone()).mul_scalar(1.0 - beta) + old;
        Moments {
            mean: toward(old.mean, gradient.clone(), self.beta_1),
            square: toward(old.square, gradient.square(), self.beta_2),
        }
    }

    /// Some rows after a step along their running means, which took its gradient in.
    pub(super) fn descend(&self, rows: Tensor<2>, step: Step, moments: Moments) -> Tensor<2> {
        let Coefficients { keep, root, size } = self.coefficients(step);
        let root = moments.square.sqrt().mul_scalar(root).add_scalar(self.epsilon);
        rows.mul_scalar(keep) - moments.mean.div(root).mul_scalar(size)
    }

    /// [`follow`](Self::follow) and [`descend`](Self::descend) for rows in the host's memory.
    #[cfg(feature = "flex")]
    pub(super) fn row_step(&self, step: Step) -> RowStep {
        let Coefficients { keep, root, size } = self.coefficients(step);
        RowStep {
            toward_1: (1.0 - self.beta_1) as f32,
            toward_2: (1.0 - self.beta_2) as f32,
            epsilon: self.epsilon as f32,
            keep: keep as f32,
            root: root as f32,
            size: size as f32,
        }
    }
}

/// Both kinds of Adam are `w ← keep·w − size·m/(root·√v + ε)`.
struct Coefficients {
    keep: f64,
    root: f64,
    size: f64,
}

/// One step of Adam on rows in the host's memory.
#[cfg(feature = "flex")]
pub(super) struct RowStep {
    toward_1: f32,
    toward_2: f32,
    epsilon: f32,
    keep: f32,
    root: f32,
    size: f32,
}

#[cfg(feature = "flex")]
impl RowStep {
    /// w, m and v of a row with gradient g, each [H].
    pub(super) fn run(&self, w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
        for (((w, m), v), &g) in w.iter_mut().zip(m).zip(v).zip(g) {
            *m = (g - *m) * self.toward_1 + *m;
            *v = (g * g - *v) * self.toward_2 + *v;
            *w = *w * self.keep - *m / (v.sqrt() * self.root + self.epsilon) * self.size;
        }
    }
}
