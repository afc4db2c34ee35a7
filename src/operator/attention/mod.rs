//! Scaled dot-product attention of packed sequences to themselves: one operator with its own backward.

mod autodiff;
#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
pub(crate) mod input;
pub(crate) mod ops;
mod rectangle;
mod reference;
#[cfg(feature = "remote")]
pub(crate) mod remote;
