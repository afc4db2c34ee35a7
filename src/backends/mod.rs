//! The operator on each backend, one backend a file.

mod autodiff;
#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod inputs;
#[cfg(feature = "ndarray")]
mod ndarray;
pub(crate) mod reference;
#[cfg(all(test, feature = "flex"))]
mod tests;
