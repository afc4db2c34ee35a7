//! What an optimiser does to a row: SGD, SparseAdam, lazy AdamW.

use crate::error::{Error, Result};
use burn::prelude::*;

/// When and how far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) learning_rate: f64,
    /// How often the table was stepped, this time included.
    pub(super) time: u64,
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
pub(super) enum AdamKind {
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
    pub(super) fn new(beta_1: f64, beta_2: f64, epsilon: f64, kind: AdamKind) -> Result<Self> {
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
