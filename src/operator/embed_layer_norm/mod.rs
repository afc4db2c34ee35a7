//! Gather three rows, add them, normalise, drop: one operator with its own backward.

mod autodiff;
pub(crate) mod check;
#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
pub(crate) mod input;
#[cfg(feature = "ndarray")]
mod ndarray;
pub(crate) mod ops;
pub(crate) mod reference;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(all(test, feature = "flex"))]
mod tests;
