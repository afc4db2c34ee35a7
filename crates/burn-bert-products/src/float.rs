//! Products in f32, by the crate `gemm`.

use crate::Output;
use crate::matrix::{Matrix, Values};
use gemm::Parallelism;
use half::bf16;
use std::borrow::Cow;
use std::mem::MaybeUninit;

/// The instructions of `gemm`'s f32 kernel. Source: `init_gemm_fn` of `gemm-common` 0.19.0.
pub(crate) fn name() -> &'static str {
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

/// Below so many multiplications one thread is faster than several.
const PARALLEL_FROM: usize = 192 * 192 * 192;

/// Multiplies, operands rounded to bf16 if `rounded`.
///
/// # Safety
///
/// That of [`Kernel::run`](crate::Kernel::run).
pub(crate) unsafe fn multiply(a: Matrix, b: Matrix, output: Output, rounded: bool) {
    let [m, n] = [a.shape()[0], b.shape()[1]];
    match output {
        // SAFETY: the caller's promise.
        Output::F32 { c, add } => unsafe { multiply_f32(a, b, c, add, rounded) },
        Output::Bf16 { c, bias } => {
            let mut sums = vec![0.0; m * n];
            // SAFETY: there are M · N sums, and as many places in C.
            let c = unsafe {
                multiply_f32(a, b, sums.as_mut_ptr(), true, rounded);
                std::slice::from_raw_parts_mut(c.cast::<MaybeUninit<bf16>>(), m * n)
            };
            for (c, sums) in c.chunks_exact_mut(n).zip(sums.chunks_exact(n)) {
                for (j, (c, sum)) in c.iter_mut().zip(sums).enumerate() {
                    c.write(bf16::from_f32(sum + bias.map_or(0.0, |bias| bias[j])));
                }
            }
        }
    }
}

/// C = A · B, or C += A · B if `add`.
///
/// # Safety
///
/// That of [`multiply`].
unsafe fn multiply_f32(a: Matrix, b: Matrix, c: *mut f32, add: bool, rounded: bool) {
    let [m, k] = a.shape();
    let [_, n] = b.shape();
    let ([a_row, a_column], [b_row, b_column]) = (strides(&a), strides(&b));
    let (a, b) = (values(&a, rounded), values(&b, rounded));
    let serial = m.saturating_mul(n).saturating_mul(k) < PARALLEL_FROM;
    let threads = if serial { Parallelism::None } else { Parallelism::Rayon(0) };
    // SAFETY: a `Matrix` has all of its entries among its values, of which `values` keeps the places, and C is the caller's
    // promise. `gemm` reads C only if told to, and fills it with zeros if K is 0.
    unsafe {
        let (a, b) = (a.as_ptr(), b.as_ptr());
        gemm::gemm(
            m, n, k, c, 1, n as isize, add, a, a_column, a_row, b, b_column, b_row, 1.0, 1.0, false, false,
            false, threads,
        );
    }
}

/// A slice of f32 or bf16 has no more than `isize::MAX` bytes, so that strides fit.
fn strides(matrix: &Matrix) -> [isize; 2] {
    matrix.strides().map(|stride| stride as isize)
}

/// All values in f32.
fn values<'a>(matrix: &Matrix<'a>, rounded: bool) -> Cow<'a, [f32]> {
    match matrix.values() {
        Values::F32(values) if !rounded => values.into(),
        Values::F32(values) => values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect(),
        Values::Bf16(values) => values.iter().map(|value| value.to_f32()).collect(),
    }
}
