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
//! Parameters of up to [`max_entries`](GradCheck::with_max_entries) values are checked entry by entry. Larger ones
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
//! the loss alone does to a difference quotient: next to nothing in f64, the larger part in f32. In f32 it can be larger
//! than the gradients themselves, and a wrong one then passes: a loss of 1000 and h = 2e-4 allow 2.4. The report has the
//! absolute part of each parameter's tolerance, in the column `abs allowed`. Where that is too much, make the loss smaller
//! (a mean for a sum, fewer terms) or check in f64.
//! f16 and bf16 are too coarse for differences of any step; cast the module up.
//!
//! # Dropout
//!
//! The loss must be repeatable, but on an autodiff device dropout is active. Build the module with a probability of 0, or
//! set the field `prob` of its [`Dropout`](burn::nn::Dropout)s to 0, or seed the device inside the loss. `valid()` takes
//! the module off autodiff, and `freeze()` leaves nothing to check.
//!
//! # Losses that prove something
//!
//! A plain sum can hide every error: the sum over LayerNorm's output does not depend on its input at all, so
//! a wrong backward agrees with a difference of 0. [`Probe::weighted_sum`] weighs every value by a different
//! random number.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod check;
mod compare;
mod error;
mod probe;
mod report;
mod walk;

pub use check::GradCheck;
pub use compare::Tolerance;
pub use error::GradCheckError;
pub use probe::Probe;
pub use report::{Coverage, ExcludedRowReport, GradCheckReport, ParameterReport, Place, Worst};

/// The README's example, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
