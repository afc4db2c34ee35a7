//! Adam's arithmetic, for whole parameters and for rows of a table: on tensors, and on slices in the host's memory.

use crate::error::{Error, Result};
use crate::operator::dtype::computed_in;
#[cfg(feature = "flex")]
use crate::operator::flex::scalar::{Scalar, Wide};
use burn::prelude::*;

/// Adam's constants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Adam {
    beta_1: f64,
    beta_2: f64,
    epsilon: f64,
    kind: AdamKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AdamKind {
    /// SparseAdam: ε beside √v, no decay.
    Sparse,
    /// AdamW: ε beside √v̂, and decay.
    W {
        /// λ.
        weight_decay: f64,
    },
}

/// Adam's running means of g and g².
#[derive(Debug, Clone)]
pub(crate) struct Moments<const D: usize> {
    pub(crate) mean: Tensor<D>,
    pub(crate) square: Tensor<D>,
}

/// When and how far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) learning_rate: f64,
    /// How many steps there were, this one included.
    pub(crate) time: u64,
}

/// # Errors
///
/// [`Error::Data`] for a learning rate that is negative or not finite.
pub(crate) fn check_learning_rate(rate: f64) -> Result<()> {
    if rate.is_finite() && rate >= 0.0 {
        return Ok(());
    }
    Err(Error::data("the learning rate", format!("is {rate}, but must be finite and not negative")))
}

impl Adam {
    /// # Errors
    ///
    /// [`Error::Config`] for a β outside [0, 1), an ε below the smallest normal f32, which would be 0 in a step, and a
    /// decay below 0.
    pub(crate) fn new(beta_1: f64, beta_2: f64, epsilon: f64, kind: AdamKind) -> Result<Self> {
        if let AdamKind::W { weight_decay } = kind
            && !(weight_decay.is_finite() && weight_decay >= 0.0)
        {
            let problem = format!("is {weight_decay}, but must be finite and not negative");
            return Err(Error::Config { field: "weight_decay", problem });
        }
        for (field, beta) in [("beta_1", beta_1), ("beta_2", beta_2)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::Config { field, problem: format!("is {beta}, but must lie in [0, 1)") });
            }
        }
        let least = f32::MIN_POSITIVE;
        if !(epsilon.is_finite() && epsilon >= f64::from(least)) {
            let problem =
                format!("is {epsilon:e}, but must be finite and at least {least:e}, the smallest normal f32");
            return Err(Error::Config { field: "epsilon", problem });
        }
        Ok(Self { beta_1, beta_2, epsilon, kind })
    }

    pub(crate) fn kind(&self) -> &AdamKind {
        &self.kind
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
            AdamKind::W { weight_decay } => Coefficients {
                keep: 1.0 - learning_rate * weight_decay,
                root: 1.0 / correction_2.sqrt(),
                size: learning_rate / correction_1,
            },
        }
    }

    /// Values and moments after a step, on tensors: 16-bit values are updated in f32, in which their moments are.
    pub(crate) fn step<const D: usize>(
        &self,
        step: Step,
        values: Tensor<D>,
        moments: Moments<D>,
        gradient: Tensor<D>,
    ) -> (Tensor<D>, Moments<D>) {
        let (narrow, wide) = (values.dtype(), computed_in(values.dtype()));
        let gradient = gradient.cast(wide);
        let toward =
            |old: Tensor<D>, new: Tensor<D>, beta: f64| (new - old.clone()).mul_scalar(1.0 - beta) + old;
        let mean = toward(moments.mean, gradient.clone(), self.beta_1);
        let square = toward(moments.square, gradient.square(), self.beta_2);
        let Coefficients { keep, root, size } = self.coefficients(step);
        let root = square.clone().sqrt().mul_scalar(root).add_scalar(self.epsilon);
        let values = values.cast(wide).mul_scalar(keep) - mean.clone().div(root).mul_scalar(size);
        (values.cast(narrow), Moments { mean, square })
    }

    /// [`step`](Self::step) in the host's memory, with gradients times `factor`.
    #[cfg(feature = "flex")]
    pub(crate) fn host_step<W: Wide>(&self, step: Step, factor: f64) -> HostStep<W> {
        let Coefficients { keep, root, size } = self.coefficients(step);
        HostStep {
            factor: W::from_f64(factor),
            toward_1: W::from_f64(1.0 - self.beta_1),
            toward_2: W::from_f64(1.0 - self.beta_2),
            epsilon: W::from_f64(self.epsilon),
            keep: W::from_f64(keep),
            root: W::from_f64(root),
            size: W::from_f64(size),
        }
    }
}

/// Both kinds of Adam are `w ← keep·w − size·m/(root·√v + ε)`.
struct Coefficients {
    keep: f64,
    root: f64,
    size: f64,
}

/// One step in the host's memory.
#[cfg(feature = "flex")]
#[derive(Clone, Copy)]
pub(crate) struct HostStep<W> {
    factor: W,
    toward_1: W,
    toward_2: W,
    epsilon: W,
    keep: W,
    root: W,
    size: W,
}

#[cfg(feature = "flex")]
impl<W: Wide> HostStep<W> {
    /// Some values w, their moments m and v, and their gradients g.
    #[inline(always)]
    pub(crate) fn run<T: Scalar<Wide = W>>(&self, w: &mut [T], m: &mut [W], v: &mut [W], g: &[T]) {
        for (((w, m), v), g) in w.iter_mut().zip(m).zip(v).zip(g) {
            *w = self.next(*w, m, v, *g);
        }
    }

    /// [`run`](Self::run), but the new values take the gradients' place.
    #[inline(always)]
    pub(crate) fn run_into_gradients<T: Scalar<Wide = W>>(
        &self,
        w: &[T],
        m: &mut [W],
        v: &mut [W],
        g: &mut [T],
    ) {
        for (((w, m), v), g) in w.iter().zip(m).zip(v).zip(g) {
            *g = self.next(*w, m, v, *g);
        }
    }

    /// A value after the step.
    #[inline(always)]
    fn next<T: Scalar<Wide = W>>(&self, w: T, m: &mut W, v: &mut W, g: T) -> T {
        let g = g.widen() * self.factor;
        *m = (g - *m) * self.toward_1 + *m;
        *v = (g * g - *v) * self.toward_2 + *v;
        T::narrow(w.widen() * self.keep - *m / (v.sqrt() * self.root + self.epsilon) * self.size)
    }
}
