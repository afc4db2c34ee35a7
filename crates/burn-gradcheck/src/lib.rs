#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod check;
mod compare;
mod error;
mod report;
mod walk;

pub use check::{GradCheck, Probe};
pub use error::GradCheckError;
pub use report::{Coverage, ExcludedRowReport, GradCheckReport, ParameterReport, Place, Tolerance, Worst};
