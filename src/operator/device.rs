//! What a device can do.

use burn::backend::DispatchTensorKind;

/// Whether the operators make dropout's mask themselves: on every listed device, but not in a browser.
pub(crate) fn draws_masks(kind: &DispatchTensorKind) -> bool {
    match kind {
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => true,
        // A kernel reads the seed on the device, but the reference, which takes the inputs that have no kernel,
        // cannot in a browser.
        #[cfg(all(not(target_family = "wasm"), feature = "_cubecl"))]
        DispatchTensorKind::Cube(_) => true,
        // The worker reads the seed.
        #[cfg(feature = "remote")]
        DispatchTensorKind::Remote(_) => true,
        DispatchTensorKind::Autodiff(inner) => draws_masks(inner),
        #[allow(unreachable_patterns)]
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
