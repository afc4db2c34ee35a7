//! Matmuls in f32, with the vectors that the CPU has.

use super::{Instructions, Panels, chain, fetch};
use half::bf16;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use pulp::{Arch, Simd};

/// Rows of C that are in registers, of 4 vectors where there are 32 registers: 10 loads for 24 multiply-adds. More loads are slower
/// on CPUs of Intel while the core's other thread loads too.
pub(super) const ROWS: usize = 6;

/// The CPU's vectors.
pub(super) fn arch(instructions: Instructions) -> Arch {
    match instructions {
        #[cfg(target_arch = "x86_64")]
        Instructions::F32Avx2 => Arch::V3(V3::try_new().expect("a CPU with AVX-512")),
        _ => Arch::new(),
    }
}

/// The instructions that these vectors are of.
pub(crate) fn name(instructions: Instructions) -> &'static str {
    match arch(instructions) {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(_) => "AVX-512",
        #[cfg(target_arch = "x86_64")]
        Arch::V3(_) => "AVX2 + FMA",
        #[cfg(target_arch = "aarch64")]
        Arch::Neon(_) => "NEON",
        _ => "scalar",
    }
}

/// Steps along K between a value of packed columns that is fetched and one that is multiplied.
const AHEAD: usize = 16;

/// Multiplies up to [`ROWS`] rows, an even number, and one panel or two. Safe where [`Instructions::multiply`] is.
pub(super) unsafe fn multiply(instructions: Instructions, panels: &Panels) {
    // SAFETY: the caller's promise; the vectors exist only where their instructions do.
    unsafe {
        match arch(instructions) {
            #[cfg(target_arch = "x86_64")]
            Arch::V4(simd) => with_avx512(simd, panels),
            #[cfg(target_arch = "x86_64")]
            Arch::V3(simd) => with_avx2(simd, panels),
            #[cfg(target_arch = "aarch64")]
            Arch::Neon(simd) => multiply_rows::<_, 4>(simd, panels),
            _ => multiply_rows::<_, 2>(pulp::Scalar, panels),
        }
    }
}

// Functions of their own, which have names in a profile; pulp's have not.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn with_avx512(simd: V4, panels: &Panels) {
    // SAFETY: the caller's promise.
    unsafe {
        match panels.width {
            super::PANEL => multiply_rows::<_, 2>(simd, panels),
            _ => multiply_rows::<_, 4>(simd, panels),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn with_avx2(simd: V3, panels: &Panels) {
    // SAFETY: the caller's promise.
    unsafe { multiply_rows::<_, 2>(simd, panels) }
}

/// [`multiply_columns`] of so many rows. Safe where [`multiply`] is.
#[inline(always)]
unsafe fn multiply_rows<S: Simd, const VECTORS: usize>(simd: S, panels: &Panels) {
    // SAFETY: the caller's promise.
    unsafe {
        match panels.height {
            2 => multiply_columns::<_, 2, VECTORS>(simd, panels),
            4 => multiply_columns::<_, 4, VECTORS>(simd, panels),
            _ => multiply_columns::<_, ROWS, VECTORS>(simd, panels),
        }
    }
}

/// Multiplies so many vectors of columns at a time: as many as registers hold of C, beside those of B and a value of A. Safe where
/// [`multiply`] is.
#[inline(always)]
unsafe fn multiply_columns<S: Simd, const ROWS: usize, const VECTORS: usize>(simd: S, panels: &Panels) {
    let Panels { a, b, words, c, row, width, add, .. } = *panels;
    let length = chain(words);
    for column in (0..width).step_by(VECTORS * S::F32_LANES) {
        let columns: [usize; VECTORS] = std::array::from_fn(|vector| column + vector * S::F32_LANES);
        let c = |i: usize| columns.map(|column| c.wrapping_add(i * row + column));
        let b = columns.map(|column| b[column / 16].cast::<f32>().wrapping_add(column % 16));
        // A sum without terms is zero, and written as well.
        let mut first = 0;
        loop {
            let end = words.min(first + length);
            let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
            for k in first..end {
                // SAFETY: each half of a panel has 16 columns of `words` values, which vectors do not cross.
                let values = b.map(|b| unsafe { b.add(16 * k).cast::<S::f32s>().read_unaligned() });
                // From the second cache, which the CPU does not foresee well in four streams.
                b.iter().for_each(|b| fetch::<1>(b.wrapping_add(16 * (k + AHEAD)).cast()));
                for (a, sums) in a.iter().zip(&mut sums) {
                    // SAFETY: each row of A has `words` values.
                    let a = simd.splat_f32s(unsafe { a.cast::<f32>().add(k).read() });
                    for (sum, b) in sums.iter_mut().zip(values) {
                        *sum = simd.mul_add_e_f32s(a, b, *sum);
                    }
                }
            }
            let adds = add || first > 0;
            for (i, sums) in sums.into_iter().enumerate() {
                for (c, mut sum) in c(i).into_iter().zip(sums) {
                    let c = c.cast::<S::f32s>();
                    if adds {
                        // SAFETY: row i of C has `width` values, of which these are some.
                        sum = simd.add_f32s(unsafe { c.read_unaligned() }, sum);
                    }
                    // SAFETY: as above.
                    unsafe { c.write_unaligned(sum) };
                }
            }
            first = end;
            if first == words {
                break;
            }
        }
    }
}

/// Writes sums, plus a bias for each, rounded to nearest, ties to even.
///
/// # Safety
///
/// `to` must be valid for writes of as many values as there are sums.
pub(super) unsafe fn narrow(sums: &[f32], bias: &[f32], to: *mut bf16) {
    for (j, (sum, bias)) in sums.iter().zip(bias).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { to.add(j).write(bf16::from_f32(sum + bias)) };
    }
}

/// Rounded to bf16, to nearest, ties to even: as the crate `half` does it, for vectors.
#[inline(always)]
pub(super) fn round(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // A NaN stays one, also if its upper half alone would be infinity.
    let bits = if value.is_nan() { bits | 1 << 22 } else { rounded };
    f32::from_bits(bits & 0xffff_0000)
}
