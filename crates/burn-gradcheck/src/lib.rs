//! Gradient checks for any [Burn](https://burn.dev) module, by central differences.
//!
//! [`GradCheck`] takes a module and a scalar loss, asks Burn's backward pass for the gradient of every float
//! parameter, and compares it with
//!
//! ```text
//! ∂L/∂θᵢ ≈ (L(θ + h·eᵢ) − L(θ − h·eᵢ)) / 2h
//! ```
//!
//! which needs nothing but forward passes.
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::prelude::*;
//! use burn::tensor::Distribution;
//! use burn_gradcheck::GradCheck;
//!
//! let device = Device::default().autodiff();
//! let linear = LinearConfig::new(3, 2).init(&device);
//! let x = Tensor::<2>::random([4, 3], Distribution::Default, &device);
//!
//! let report = GradCheck::new().run(&linear, |linear, probe| {
//!     probe.weighted_sum(linear.forward(probe.constant(x.clone())))
//! })?;
//! println!("{report}");
//! report.assert_passes();
//! # Ok::<(), burn_gradcheck::GradCheckError>(())
//! ```
//!
//! # What is compared
//!
//! Parameters of up to [`max_entries`](GradCheck::max_entries) values are checked entry by entry. Larger ones
//! are checked along seeded random directions d ∈ {−1, 1}ⁿ, where ⟨∇L, d⟩ must equal the derivative of
//! L(θ + t·d): one wrong entry among millions moves that number by its whole error. A direction that
//! disagrees is halved until one entry is left, and the report names it.
//!
//! A parameter that is frozen is listed and not checked. A parameter that the backward pass gives no gradient
//! is compared with 0. A parameter that several fields share, by its id, is varied in all of them at once and
//! listed at the first.
//!
//! # Numerics
//!
//! The module is cast to the check's dtype: f64 where the device has it, otherwise f32. A comparison passes if
//!
//! ```text
//! |analytic − numeric| ≤ absolute + relative·max(|analytic|, |numeric|) + 4·ε·|L| / h
//! ```
//!
//! where along a random direction the larger number is at least ‖∇L‖, the typical size of ⟨∇L, d⟩: a direction
//! that happens to be at right angles to the gradient has no size of its own.
//!
//! | dtype | absolute | relative | step | reason |
//! |---|---|---|---|---|
//! | f64 | 1e-7 | 1e-5 | 3e-5 | the quotient is off by h²·L‴/6 ≈ 1e-10 and ε·L/h ≈ 1e-11 |
//! | f32 | 1e-3 | 1e-2 | 1e-2 | h²·L‴/6 ≈ 1e-5 and ε·L/h ≈ 1e-5, and the forward pass rounds in every operation |
//!
//! h is the step times the root mean square of the parameter's values (times 1 where that is 0), because a
//! table drawn from N(0, 0.02²) bends on another scale than one around 1. The last term is what rounding of
//! the loss alone does to a difference quotient: next to nothing in f64, the larger part in f32.
//! f16 and bf16 are too coarse for differences of any step; cast the module up.
//!
//! # Losses that prove something
//!
//! A plain sum can hide every error: the sum over LayerNorm's output does not depend on its input at all, so
//! a wrong backward agrees with a difference of 0. [`Probe::weighted_sum`] weighs every value by a different
//! random number.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod cast;
mod compare;
mod error;
mod objective;
mod probe;
mod report;
mod walk;

use burn::module::{Module, Param};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
pub use cast::cast_module;
use compare::{Comparison, compare_row, scale};
pub use error::GradCheckError;
use objective::Objective;
pub use probe::Probe;
pub use report::{Coverage, ExcludedRowReport, GradCheckReport, ParameterReport, Place, Worst};
use std::fmt;
use walk::Slot;

/// How far an analytic gradient may be from the difference quotient; see the [module](self)'s table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Allowed whatever the gradient's size.
    pub absolute: f64,
    /// Allowed as a share of the larger of the two numbers.
    pub relative: f64,
}

impl Tolerance {
    /// The table's entry for a dtype, where differences can be taken in it.
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F64 => Some(Self { absolute: 1e-7, relative: 1e-5 }),
            DType::F32 => Some(Self { absolute: 1e-3, relative: 1e-2 }),
            _ => None,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tolerance {:e} + {:e}·|gradient|", self.absolute, self.relative)
    }
}

/// A check of analytic gradients against central differences; see the [module](self).
#[derive(Debug, Clone)]
pub struct GradCheck {
    dtype: Option<FloatDType>,
    tolerance: Option<Tolerance>,
    step: Option<f64>,
    max_entries: usize,
    directions: usize,
    seed: u64,
    excluded: Vec<Excluded>,
}

#[derive(Debug, Clone)]
struct Excluded {
    path: String,
    row: usize,
    expected: f64,
}

impl Default for GradCheck {
    fn default() -> Self {
        Self::new()
    }
}

impl GradCheck {
    /// A check with the defaults: f64 where there is one, the table's tolerance and step, every entry of
    /// parameters of up to 1024 values, 8 directions for larger ones.
    pub fn new() -> Self {
        Self {
            dtype: None,
            tolerance: None,
            step: None,
            max_entries: 1024,
            directions: 8,
            seed: 0,
            excluded: Vec::new(),
        }
    }

    /// Works in `dtype`, F64 or F32, instead of the widest that the device has.
    pub fn dtype(self, dtype: FloatDType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// Replaces the table's tolerance.
    pub fn tolerance(self, absolute: f64, relative: f64) -> Self {
        Self { tolerance: Some(Tolerance { absolute, relative }), ..self }
    }

    /// Replaces the table's step, in units of a parameter's root mean square.
    pub fn step(self, step: f64) -> Self {
        Self { step: Some(step), ..self }
    }

    /// Checks parameters of up to so many values entry by entry.
    pub fn max_entries(self, max_entries: usize) -> Self {
        Self { max_entries, ..self }
    }

    /// Checks larger parameters along so many random directions, at least 1.
    pub fn directions(self, directions: usize) -> Self {
        Self { directions: directions.max(1), ..self }
    }

    /// Draws directions and the weights of [`Probe::weighted_sum`] from another seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Holds one row of a parameter against an expected gradient instead of a difference quotient.
    ///
    /// For rows where the two differ by design, such as the padding row of a lookup table: the loss depends
    /// on it, and its gradient is 0 all the same. `row` counts along the outermost axis; every entry must be
    /// exactly `expected`.
    pub fn exclude_row(mut self, path: impl Into<String>, row: usize, expected: f64) -> Self {
        self.excluded.push(Excluded { path: path.into(), row, expected });
        self
    }

    /// Checks the gradients of all float parameters of `module`.
    ///
    /// `loss` is called with the module, cast and with a parameter changed, many times over: it must be a
    /// function of the module alone. To check several tensors without a module around them, pass a tuple of
    /// `Param`s as the module.
    ///
    /// # Errors
    ///
    /// A [`GradCheckError`] if the loss cannot be checked: it is random, not finite, not one number, of another
    /// dtype, or nothing in the module is trained; or if a setting makes no sense. A gradient that is wrong is
    /// no error but a report that does not [pass](GradCheckReport::passes).
    pub fn run<M: Module>(
        &self,
        module: &M,
        loss: impl Fn(&M, &Probe) -> Tensor<1>,
    ) -> Result<GradCheckReport, GradCheckError> {
        self.run_named(module, loss, |path| path)
    }

    /// [`run`](Self::run), with each parameter under the name that `name` gives its path.
    fn run_named<M: Module>(
        &self,
        module: &M,
        loss: impl Fn(&M, &Probe) -> Tensor<1>,
        name: fn(&str) -> &str,
    ) -> Result<GradCheckReport, GradCheckError> {
        let first = walk::slots(module, name).into_iter().next().ok_or(GradCheckError::NothingTrained)?;
        if !first.device.is_autodiff() {
            return Err(GradCheckError::NoAutodiff { path: first.path().to_owned() });
        }
        let dtype = self.dtype_on(&first.device)?;
        let (tolerance, step) = self.tolerance_and_step(dtype)?;
        let module = cast_module(module.clone(), dtype.into());
        let slots = walk::slots(&module, name);
        self.check_excluded(&slots)?;
        if !slots.iter().any(|slot| slot.trained) {
            return Err(GradCheckError::NothingTrained);
        }

        let probe = Probe { device: first.device, dtype, seed: self.seed };
        let objective = Objective { loss, probe };
        let (value, gradients) = objective.value_and_gradients(&module)?;
        let epsilon = objective.epsilon();
        // Thousands of graphs that no backward ever walks would all be freed in the next one that does.
        let untracked = module.clone().no_grad();

        let mut report = GradCheckReport {
            dtype,
            tolerance,
            loss: value,
            parameters: Vec::with_capacity(slots.len()),
            excluded_rows: Vec::new(),
        };
        for slot in &slots {
            let gradient = walk::gradient(&module, slot.id, &gradients);
            let has_gradient = gradient.is_some();
            let analytic = gradient.unwrap_or_else(|| vec![0.0; slot.values.len()]);
            let excluded = self.excluded.iter().filter(|row| slot.paths.contains(&row.path));
            report.excluded_rows.extend(excluded.map(|row| compare_row(slot, row, &analytic)));
            let h = step * scale(&slot.values);
            let comparison = Comparison {
                slot,
                analytic,
                h,
                skipped: self.skipped(slot),
                loss_at: |values: Vec<f64>| {
                    objective.value(&walk::replace(untracked.clone(), slot.id, values))
                },
                tolerance: Tolerance {
                    absolute: tolerance.absolute + 4.0 * epsilon * value.abs() / h,
                    ..tolerance
                },
                floor: tolerance.absolute / tolerance.relative,
            };
            report.parameters.push(comparison.report(self, has_gradient)?);
        }
        Ok(report)
    }

    /// Checks the gradient of an input beside those of the module's parameters; the report calls it `input`.
    ///
    /// The input is copied to the module's device, wherever it lies.
    ///
    /// ```
    /// use burn::nn::LayerNormConfig;
    /// use burn::prelude::*;
    /// use burn::tensor::Distribution;
    /// use burn_gradcheck::GradCheck;
    ///
    /// let device = Device::default().autodiff();
    /// let norm = LayerNormConfig::new(6).init(&device);
    /// let x = Tensor::<2>::random([3, 6], Distribution::Default, &device);
    /// let report = GradCheck::new()
    ///     .run_with_input(&norm, x, |norm, x, probe| probe.weighted_sum(norm.forward(x)))?;
    /// assert!(report.parameter("input").is_some_and(|input| input.passed));
    /// # Ok::<(), burn_gradcheck::GradCheckError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run).
    pub fn run_with_input<M: Module, const D: usize>(
        &self,
        module: &M,
        input: Tensor<D>,
        loss: impl Fn(&M, Tensor<D>, &Probe) -> Tensor<1>,
    ) -> Result<GradCheckReport, GradCheckError> {
        let input = match walk::slots(module, |path| path).first() {
            Some(Slot { device, .. }) => {
                Tensor::from_data(input.into_data(), (device, self.dtype_on(device)?))
            }
            None => input.detach(),
        };
        let pair = (module.clone(), Param::from_tensor(input));
        self.run_named(
            &pair,
            |(module, input), probe| loss(module, input.val(), probe),
            |path| match path.strip_prefix('0') {
                Some(inner) => inner.strip_prefix('.').unwrap_or(inner),
                None => "input",
            },
        )
    }

    fn dtype_on(&self, device: &Device) -> Result<DType, GradCheckError> {
        let dtype = match self.dtype {
            Some(dtype) => dtype.into(),
            None if device.supports_dtype(DType::F64) => DType::F64,
            None => DType::F32,
        };
        match Tolerance::of(dtype).is_some() && device.supports_dtype(dtype) {
            true => Ok(dtype),
            false => Err(GradCheckError::Dtype { dtype }),
        }
    }

    fn tolerance_and_step(&self, dtype: DType) -> Result<(Tolerance, f64), GradCheckError> {
        let tolerance = self.tolerance.or(Tolerance::of(dtype)).ok_or(GradCheckError::Dtype { dtype })?;
        let step = self.step.unwrap_or(if dtype == DType::F64 { 3e-5 } else { 1e-2 });
        for (name, value) in [("the step", step), ("the relative tolerance", tolerance.relative)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(GradCheckError::Setting { name, value, allowed: "above 0" });
            }
        }
        let (name, value) = ("the absolute tolerance", tolerance.absolute);
        match value.is_finite() && value >= 0.0 {
            true => Ok((tolerance, step)),
            false => Err(GradCheckError::Setting { name, value, allowed: "not negative" }),
        }
    }

    fn check_excluded(&self, slots: &[Slot]) -> Result<(), GradCheckError> {
        for Excluded { path, row, .. } in &self.excluded {
            let mut trained = slots.iter().filter(|slot| slot.trained);
            let Some(slot) = trained.clone().find(|slot| slot.paths.contains(path)) else {
                let known: Vec<&str> = trained.by_ref().map(Slot::path).collect();
                return Err(GradCheckError::UnknownPath { path: path.clone(), known: known.join(", ") });
            };
            let rows = slot.shape[0];
            if *row >= rows {
                return Err(GradCheckError::NoSuchRow { path: path.clone(), row: *row, rows });
            }
        }
        Ok(())
    }

    /// The entries of a parameter that are compared with nothing but an expected value.
    fn skipped(&self, slot: &Slot) -> Vec<bool> {
        let mut skipped = vec![false; slot.values.len()];
        for row in self.excluded.iter().filter(|row| slot.paths.contains(&row.path)) {
            skipped[row.row * slot.row_len()..][..slot.row_len()].fill(true);
        }
        skipped
    }
}
