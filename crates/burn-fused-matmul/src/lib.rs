#![doc = include_str!("../README.md")]
//!
//! # Numerics
//!
//! Each kernel adds in an order of its own. AMX and AVX512-BF16 treat subnormal operands, products and sums as zero, as their
//! instructions do; the f32 kernels keep them. NaN and infinity are propagated. CPUs of Intel that have AVX512-BF16 but
//! not AMX are faster with f32 on rounded operands, and take it.
//!
//! # Memory
//!
//! Every thread that calls a matmul keeps the buffer in which A is packed, of at most 8 MiB, and every thread that multiplies one of
//! 800 KiB for its part of B. int8 weights need more if K is above 20,000, about 36 bytes for each value along K. Results in bf16 of
//! more than 6,144 values along K, with AMX and AVX512-BF16 12,288, are added up in a matrix in f32.

mod int8;
mod kernel;
mod matrix;
mod sharing;
#[cfg(feature = "burn-std")]
mod storage;
mod threads;
mod tiles;

pub use half::bf16;
pub use int8::{Int8Kernel, Int8Matrix, PackedInt8Matrix, product_int8};
pub use kernel::Kernel;
pub use matrix::{Matrix, RightMatrix, Values};
#[cfg(feature = "burn-std")]
pub use storage::Packed;
pub use threads::on_threads;
pub use tiles::PackedMatrix;

/// Where the result of a matmul goes: M · N values, row-major.
#[derive(Clone, Copy)]
enum Output<'a> {
    /// C = A · B, or C += A · B if `add`.
    F32 { c: *mut f32, add: bool },
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
/// If the columns of `a` are not as many as the rows of `b`, or `b` is packed for another kernel.
pub fn product<'a>(a: Matrix, b: impl Into<RightMatrix<'a>>, kernel: Kernel) -> Vec<f32> {
    let b = b.into();
    let count = check(&a, &b, kernel);
    let mut c = Vec::with_capacity(count);
    // SAFETY: a kernel exists only where its instructions do; there is room for M · N values, which are initialised.
    unsafe {
        tiles::multiply(a, b, Output::F32 { c: c.as_mut_ptr(), add: false }, kernel.0);
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
/// If the columns of `a` are not as many as the rows of `b`, `bias` has not N values, or `b` is packed for another kernel.
pub fn product_bf16<'a>(
    a: Matrix,
    b: impl Into<RightMatrix<'a>>,
    bias: Option<&[f32]>,
    kernel: Kernel,
) -> Vec<bf16> {
    let b = b.into();
    let count = check(&a, &b, kernel);
    if let Some(bias) = bias {
        assert_eq!(bias.len(), b.shape()[1], "the bias must have as many values as B has columns");
    }
    let mut c = Vec::with_capacity(count);
    // SAFETY: as for `product`, and `bias` has N values.
    unsafe {
        tiles::multiply(a, b, Output::Bf16 { c: c.as_mut_ptr(), bias }, kernel.0);
        c.set_len(count);
    }
    c
}

/// Adds the product A · B to C, row-major.
///
/// ```
/// use burn_fused_matmul::{Kernel, Matrix, add_product};
///
/// let a = Matrix::rows(&[1.0, 2.0][..], [1, 2]);
/// let mut c = [10.0];
/// add_product(&mut c, a, a.transpose(), Kernel::F32);
/// assert_eq!(c, [15.0]);
/// ```
///
/// # Shapes
///
/// - `a`: [M, K], `b`: [K, N]
/// - `c`: [M, N]
///
/// # Panics
///
/// If the columns of `a` are not as many as the rows of `b`, or `c` has not M · N values.
pub fn add_product(c: &mut [f32], a: Matrix, b: Matrix, kernel: Kernel) {
    let b = b.into();
    let count = check(&a, &b, kernel);
    assert_eq!(c.len(), count, "C must have the rows of A times the columns of B");
    // SAFETY: as for `product`; C has M · N values.
    unsafe { tiles::multiply(a, b, Output::F32 { c: c.as_mut_ptr(), add: true }, kernel.0) };
}

/// M · N.
fn check(a: &Matrix, b: &RightMatrix, kernel: Kernel) -> usize {
    if let RightMatrix::Packed(packed) = b {
        assert_eq!(packed.kernel(), kernel, "B must be packed for the kernel");
    }
    let ([m, columns], [rows, n]) = (a.shape(), b.shape());
    assert_eq!(columns, rows, "the columns of A must be as many as the rows of B");
    // Operands with strides of 0 may be larger than memory.
    m.checked_mul(n).expect("a product that fits into memory")
}
