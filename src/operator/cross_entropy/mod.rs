//! Mean cross-entropy over the rows of a matrix of scores: one operator with its own backward.

mod autodiff;
#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
pub(crate) mod input;
pub(crate) mod ops;
mod reference;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(all(test, feature = "flex"))]
mod tests;
