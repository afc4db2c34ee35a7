//! Matrix products on the CPU, in f32 and in bf16 with f32 sums: what mixed precision multiplies with.
//!
//! ```
//! use burn_fused_matmul::{Kernel, Matrix, product};
//!
//! let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let a = Matrix::rows(&a[..], [2, 3]);
//! let c = product(a, a.transpose(), Kernel::bf16());
//! assert_eq!(c, [14.0, 32.0, 32.0, 77.0]);
//! ```
//!
//! # Kernels
//!
//! [`Kernel::f32`] and [`Kernel::bf16`] are the fastest that the CPU has, chosen when the program runs:
//!
//! | kernel | operands | needs |
//! |---|---|---|
//! | AVX-512 | f32 | AVX-512F, and the feature `x86-v4` (default) |
//! | AVX2 + FMA | f32 | AVX2 and FMA |
//! | NEON, scalar | f32 | nothing: the compiler's vectors |
//! | AMX | bf16 | Linux, AMX-BF16 and AVX512-BF16 (Intel Sapphire Rapids and later) |
//! | AVX512-BF16 | bf16 | AVX512-BF16 on a CPU of AMD (Zen 4 and later) |
//! | f32 on rounded operands | rounded to bf16, widened | nothing |
//!
//! Without AMX, CPUs of Intel with AVX512-BF16 take f32 on rounded operands, which is faster there.
//!
//! Operands may be f32 or bf16, each for itself. Operands in f32 are rounded while they are packed, so that a product
//! needs no copy in 16 bits. Sums and results are f32.
//!
//! # Numerics
//!
//! A result does not depend on the number of threads, nor on the rows and columns beside it. Sums along K are cut into chunks of at
//! most 384 words, whose sums are added in order. AMX and AVX512-BF16 add in another order than the f32 kernels, and
//! treat subnormal operands, products and sums as zero, as their instructions do; the f32 kernels keep them. NaN and
//! infinity are propagated.
//!
//! # Memory
//!
//! Every thread that calls a product keeps the buffer in which operands are packed, of at most about 16 MB.

#[cfg(target_arch = "x86_64")]
mod amx;
mod frame;
mod kernel;
mod matrix;
mod pack;
mod schedule;
mod vectors;

pub use half::bf16;
pub use kernel::Kernel;
pub use matrix::{Matrix, Values};

/// Where a product goes: M · N values, row-major.
#[derive(Clone, Copy)]
enum Output<'a> {
    /// C = A · B.
    F32(*mut f32),
    /// C = A · B + bias, rounded once.
    Bf16 { c: *mut bf16, bias: Option<&'a [f32]> },
}

/// The product A · B, row-major. [The crate](crate) has an example.
///
/// # Shapes
///
/// - `a`: [M, K], `b`: [K, N]
/// - output: [M, N]
///
/// # Panics
///
/// If the columns of `a` are not as many as the rows of `b`.
pub fn product(a: Matrix, b: Matrix, kernel: Kernel) -> Vec<f32> {
    let count = check(&a, &b);
    let mut c = Vec::with_capacity(count);
    // SAFETY: there is room for M · N values, which `run` initialises.
    unsafe {
        kernel.run(a, b, Output::F32(c.as_mut_ptr()));
        c.set_len(count);
    }
    c
}

/// The product A · B, plus a bias for each column, rounded to bf16 once, row-major.
///
/// ```
/// use burn_fused_matmul::{Kernel, Matrix, bf16, product_bf16};
///
/// let a = Matrix::rows(&[1.0, 2.0, 3.0, 4.0][..], [2, 2]);
/// let c = product_bf16(a, a, Some(&[0.5, -0.5]), Kernel::bf16());
/// assert_eq!(c, [7.5, 9.5, 15.5, 21.5].map(bf16::from_f32));
/// ```
///
/// # Shapes
///
/// - `a`: [M, K], `b`: [K, N], `bias`: `[N]`
/// - output: [M, N]
///
/// # Panics
///
/// If the columns of `a` are not as many as the rows of `b`, or `bias` has not N values.
pub fn product_bf16(a: Matrix, b: Matrix, bias: Option<&[f32]>, kernel: Kernel) -> Vec<bf16> {
    let count = check(&a, &b);
    if let Some(bias) = bias {
        assert_eq!(bias.len(), b.shape()[1], "the bias must have as many values as B has columns");
    }
    let mut c = Vec::with_capacity(count);
    // SAFETY: there is room for M · N values, which `run` initialises, and `bias` has N.
    unsafe {
        kernel.run(a, b, Output::Bf16 { c: c.as_mut_ptr(), bias });
        c.set_len(count);
    }
    c
}

/// M · N.
fn check(a: &Matrix, b: &Matrix) -> usize {
    let ([m, columns], [rows, n]) = (a.shape(), b.shape());
    assert_eq!(columns, rows, "the columns of A must be as many as the rows of B");
    // Operands with strides of 0 may be larger than memory.
    m.checked_mul(n).expect("a product that fits into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_writes_nothing_beside_c() {
        let kernels = [Kernel::all_f32(), Kernel::all_bf16()].concat();
        for [m, n, k] in [[1, 1, 0], [31, 33, 17], [33, 31, 900], [64, 64, 32], [5, 97, 400]] {
            let (a, b) = (vec![1.0; m * k], vec![1.0; k * n]);
            let (a, b) = (Matrix::rows(&a[..], [m, k]), Matrix::rows(&b[..], [k, n]));
            let middle = 64..64 + m * n;
            for &kernel in &kernels {
                let mut c = vec![7.0_f32; m * n + 128];
                let mut narrow = vec![bf16::from_f32(7.0); m * n + 128];
                // SAFETY: M · N values follow.
                unsafe {
                    kernel.run(a, b, Output::F32(c[middle.clone()].as_mut_ptr()));
                    kernel.run(a, b, Output::Bf16 { c: narrow[middle.clone()].as_mut_ptr(), bias: None });
                }
                assert!(c[middle.clone()].iter().all(|&c| c == k as f32), "{kernel}");
                assert!(narrow[middle.clone()].iter().all(|&c| c == bf16::from_f32(k as f32)), "{kernel}");
                assert!(c.drain(middle.clone()).len() == m * n && c == [7.0; 128], "{kernel}");
                assert!(narrow.drain(middle.clone()).len() == m * n, "{kernel}");
                assert!(narrow == [bf16::from_f32(7.0); 128], "{kernel}");
            }
        }
    }
}
