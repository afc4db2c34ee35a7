//! Add a bias, take the exact GELU: one operator with its own backward.

mod autodiff;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
pub(crate) mod input;
pub(crate) mod ops;
mod reference;
#[cfg(feature = "remote")]
pub(crate) mod remote;
