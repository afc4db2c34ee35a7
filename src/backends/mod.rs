//! The operator on each backend, one backend a file.

mod autodiff;
#[cfg(any(
    feature = "wgpu",
    feature = "webgpu",
    feature = "vulkan",
    feature = "metal",
    feature = "cuda",
    feature = "rocm",
    feature = "cpu"
))]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod inputs;
#[cfg(feature = "ndarray")]
mod ndarray;
pub(crate) mod reference;
#[cfg(all(test, feature = "flex"))]
mod tests;
