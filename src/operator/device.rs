//! What a device can do.

use burn::backend::DispatchTensorKind;

/// Whether the operators know the device, see [`run`](super::run::run).
pub(crate) fn is_listed(kind: &DispatchTensorKind) -> bool {
    match kind {
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => true,
        #[cfg(feature = "_cubecl")]
        DispatchTensorKind::Cube(_) => true,
        #[cfg(feature = "remote")]
        DispatchTensorKind::Remote(_) => true,
        DispatchTensorKind::Autodiff(inner) => is_listed(inner),
        #[allow(unreachable_patterns)] // reachable with devices that another crate compiles in
        _ => false,
    }
}

/// Makes `into_data` and records copy values from a CubeCL device when they are called, in the whole process.
///
/// Burn 0.22.1 copies them when the data are first accessed, and may have written other values in the tensor's place by
/// then (docs/upstream-lazy-reads.md). Reading at once is its way in an asynchronous runtime, and all that this setting
/// decides.
pub(crate) fn read_at_once() {
    #[cfg(feature = "_cubecl")]
    burn_std::set_runtime_kind(burn_std::RuntimeKind::Async);
}
