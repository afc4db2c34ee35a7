//! Which instructions matrix products run on.

/// The instruction set that Flex multiplies matrices with on this CPU: `"AVX-512"`, `"AVX2 + FMA"`, `"NEON"` or
/// `"scalar"`.
///
/// Burn's Flex multiplies with the crate `gemm`, which chooses when it first runs: AVX-512 if the CPU has it and the
/// feature `x86-v4` is on, otherwise AVX2 with FMA. This crate's own kernels use what the CPU has, with and without the
/// feature.
///
/// ```
/// println!("matrix products run on {}", burn_bert::matrix_kernel());
/// ```
///
/// Source: `init_gemm_fn` of `gemm-common` 0.19.0.
pub fn matrix_kernel() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if cfg!(feature = "x86-v4") && is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if is_x86_feature_detected!("fma") {
            return "AVX2 + FMA";
        }
    }
    if cfg!(target_arch = "aarch64") { "NEON" } else { "scalar" }
}
