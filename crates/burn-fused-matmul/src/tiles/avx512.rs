//! AVX512-BF16: `vdpbf16ps` on vectors of 16 columns.

use super::{Panels, chain};
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
