//! Columns of W as words of four values that follow each other along K.

use crate::tiles::PANEL;
#[cfg(target_arch = "x86_64")]
use crate::tiles::fetch;
#[cfg(target_arch = "x86_64")]
use pulp::Arch;

/// Up to 32 columns of a block, from column `line` of `n` on, as words of four values, and the sums of each.
#[inline(always)]
pub(super) fn interleave_block(
    values: &[i8],
    line: usize,
    [n, width]: [usize; 2],
    to: &mut [u32],
) -> [i32; PANEL] {
    #[cfg(target_arch = "x86_64")]
    if let (PANEL, true, Arch::V3(_) | Arch::V4(_)) = (width, values.len().is_multiple_of(4 * n), Arch::new())
    {
        // SAFETY: both have AVX2.
        return unsafe { interleave_panel(values, line, n, to) };
    }
    let mut sums = [0; PANEL];
    for (four, to) in values.chunks(4 * n).zip(to.as_chunks_mut::<PANEL>().0) {
        to.fill(0);
        for (row, shift) in four.chunks(n).zip((0..).step_by(8)) {
            for ((&value, to), sum) in row[line..][..width].iter().zip(&mut *to).zip(&mut sums) {
                *to |= u32::from(value.cast_unsigned()) << shift;
                *sum += i32::from(value);
            }
        }
    }
    sums
}

/// [`interleave_block`] of whole panels and words.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn interleave_panel(values: &[i8], line: usize, n: usize, to: &mut [u32]) -> [i32; PANEL] {
    use std::arch::x86_64::*;
    let mut sums = [_mm256_setzero_si256(); 4];
    // The sums of the pairs in so many words fit into 16 bits.
    for (values, to) in values.chunks(4 * 64 * n).zip(to.chunks_mut(PANEL * 64)) {
        let mut pairs = [_mm256_setzero_si256(); 4];
        for (four, to) in values.chunks_exact(4 * n).zip(to.as_chunks_mut::<PANEL>().0) {
            // Rows are on pages of their own, which the CPU does not foresee.
            let ahead = four.as_ptr().wrapping_add(line + AHEAD * n);
            (0..4).for_each(|row| fetch::<1>(ahead.wrapping_add(row * n)));
            let row = |row: usize| {
                let row: &[i8; PANEL] = four[row * n + line..].first_chunk().expect("a row of a panel");
                // SAFETY: it has 32 values.
                unsafe { _mm256_loadu_si256(row.as_ptr().cast()) }
            };
            let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
            let (ab, cd) = (_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d));
            let (ab_high, cd_high) = (_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d));
            // Four columns of the first half and four of the second each.
            let (first, second) = (_mm256_unpacklo_epi16(ab, cd), _mm256_unpackhi_epi16(ab, cd));
            let (third, fourth) =
                (_mm256_unpacklo_epi16(ab_high, cd_high), _mm256_unpackhi_epi16(ab_high, cd_high));
            // No loop: the compiler would keep its state in memory.
            let mut put = |eight: usize, words| {
                // SAFETY: there is room for four times eight words.
                unsafe { _mm256_storeu_si256(to.as_mut_ptr().add(8 * eight).cast(), words) };
                let two = _mm256_maddubs_epi16(_mm256_set1_epi8(1), words);
                pairs[eight] = _mm256_add_epi16(pairs[eight], two);
            };
            put(0, _mm256_permute2x128_si256::<0x20>(first, second));
            put(1, _mm256_permute2x128_si256::<0x20>(third, fourth));
            put(2, _mm256_permute2x128_si256::<0x31>(first, second));
            put(3, _mm256_permute2x128_si256::<0x31>(third, fourth));
        }
        for (sums, pairs) in sums.iter_mut().zip(pairs) {
            *sums = _mm256_add_epi32(*sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
    // SAFETY: both are 128 bytes without invalid values.
    unsafe { std::mem::transmute::<[__m256i; 4], [i32; PANEL]>(sums) }
}

/// Rows of W between one that is fetched and one that is packed.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 96;
