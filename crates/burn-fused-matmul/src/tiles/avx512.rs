//! AVX512-BF16: `vdpbf16ps` on vectors of 16 columns.

use super::in_place::Strip;
use super::pairs::interleaved;
use super::{Panels, chain, fetch};
use std::arch::x86_64::*;
use std::mem::transmute;

/// Whether the CPU has the instructions to pack and to multiply with.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512bf16")
}

/// Whether `vdpbf16ps` multiplies more values in a second than f32's instructions do: on CPUs of AMD, which start one in each
/// cycle. Intel's Sapphire Rapids starts one in two, and two of f32's in each (measured: 102 and 201 GFLOP/s on a core).
pub(crate) fn is_fast() -> bool {
    let vendor = __cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
}

/// Rows of C that are in registers, in two vectors each: those of [`Instructions::block`](super::Instructions::block).
const ROWS: usize = 8;

/// Multiplies two panels. Safe where [`Instructions::multiply`](super::Instructions::multiply) is.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn multiply(panels: Panels) {
    let Panels { a, b: [b0, b1, ..], words, c, row, add, .. } = panels;
    let c = |i: usize| c.wrapping_add(i * row);
    // SAFETY: both types are 64 bytes without invalid values.
    let pairs = |words: __m512i| unsafe { transmute::<__m512i, __m512bh>(words) };
    let length = chain(words);
    // A sum without terms is zero, and written as well.
    for first in (0..words.max(1)).step_by(length) {
        let mut left = [_mm512_setzero_ps(); ROWS];
        let mut right = left;
        for word in first..words.min(first + length) {
            let index = 16 * word;
            // SAFETY: each half of a panel has 16 columns of `words` words, and each row of A has as many.
            let b0 = pairs(unsafe { _mm512_load_si512(b0.add(index).cast()) });
            let b1 = pairs(unsafe { _mm512_load_si512(b1.add(index).cast()) });
            for i in 0..ROWS {
                // SAFETY: as above.
                let a = pairs(_mm512_set1_epi32(unsafe { a[i].add(word).read_unaligned() } as i32));
                left[i] = _mm512_dpbf16_ps(left[i], a, b0);
                right[i] = _mm512_dpbf16_ps(right[i], a, b1);
            }
        }
        let adds = add || first > 0;
        for i in 0..ROWS {
            for (c, mut sums) in [(c(i), left[i]), (c(i).wrapping_add(16), right[i])] {
                // SAFETY: row i of C has 32 values, of which these are the halves.
                unsafe {
                    if adds {
                        sums = _mm512_add_ps(_mm512_loadu_ps(c), sums);
                    }
                    _mm512_storeu_ps(c, sums);
                }
            }
        }
    }
}

/// Multiplies some words of a strip in place. Safe where [`Strip::multiply`] is.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn with_rows(strip: &Strip) {
    // SAFETY: the caller's promise.
    unsafe { if strip.rows <= 8 { multiply_strip::<8>(strip) } else { multiply_strip::<16>(strip) } }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn multiply_strip<const ROWS: usize>(strip: &Strip) {
    let Strip { a, b, step, words, sums: to, continues, next, .. } = *strip;
    // SAFETY: both types are 64 bytes without invalid values.
    let pairs = |words: __m512i| unsafe { transmute::<__m512i, __m512bh>(words) };
    let mut sums = [_mm512_setzero_ps(); ROWS];
    if continues {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: there are 16 sums of each row.
            *sum = unsafe { _mm512_loadu_ps(to.add(16 * i)) };
        }
    }
    for word in 0..words {
        // The two rows of a word.
        let rows = [0, step / 2].map(|row| word * step + row);
        if let Some(next) = next {
            rows.iter().for_each(|&row| fetch::<2>(next.wrapping_add(row).cast()));
        }
        // SAFETY: each row has 16 values beside each other, and A 16 words.
        unsafe {
            let b = pairs(interleaved(rows.map(|row| _mm256_loadu_si256(b.add(row).cast()))));
            for (i, sum) in sums.iter_mut().enumerate() {
                let a = pairs(_mm512_set1_epi32(a.add(16 * word + i).read() as i32));
                *sum = _mm512_dpbf16_ps(*sum, a, b);
            }
        }
    }
    for (i, sum) in sums.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to.add(16 * i), sum) };
    }
}
