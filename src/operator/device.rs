//! What a device can do.

/// Makes `into_data` and records copy values from a CubeCL device when they are called, in the whole process.
///
/// Burn 0.22.1 copies them when the data are first accessed, and may have written other values in the tensor's place by
/// then (docs/upstream-lazy-reads.md). Reading at once is its way in an asynchronous runtime, and all that this setting
/// decides.
pub(crate) fn read_at_once() {
    #[cfg(feature = "_cubecl")]
    burn_std::set_runtime_kind(burn_std::RuntimeKind::Async);
}
