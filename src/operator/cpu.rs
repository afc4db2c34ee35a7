//! Which instructions matrix products run on.

use super::precision::Precision;
use burn_bert_products::Kernel;

/// The instructions that Flex multiplies matrices with on this CPU.
///
/// | precision | |
/// |---|---|
/// | f32, f16 | `"AVX-512"`, `"AVX2 + FMA"`, `"NEON"` or `"scalar"` |
/// | bf16 | `"AMX"`, `"AVX512-BF16"` or `"f32 on rounded operands"` |
///
/// In f32 the crate `gemm` multiplies, which chooses when it first runs: AVX-512 if the CPU has it and the feature `x86-v4`
/// is on, otherwise AVX2 with FMA. In bf16 it is the crate `burn-bert-products`. This crate's own kernels use what the CPU
/// has, with and without the feature.
///
/// ```
/// use burn_bert::functional::Precision;
///
/// println!("matrix products run on {}", burn_bert::matrix_kernel(Precision::F32));
/// ```
pub fn matrix_kernel(precision: Precision) -> &'static str {
    match precision {
        Precision::Bf16 => Kernel::bf16().name(),
        Precision::F32 | Precision::F16 => Kernel::F32.name(),
    }
}
