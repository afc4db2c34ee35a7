//! Packing with AVX2, and of pairs of bf16 values with AVX512-BF16.

use super::{Part, Row, Words, pack, words};
use crate::matrix::Values;
use half::bf16;
use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::Range;

/// [`portable`](super::portable) with AVX2.
///
/// # Safety
///
/// That of [`pack`].
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn avx2<const ROUNDED: bool>(part: Part) {
    struct Avx2<const ROUNDED: bool>;

    impl<const ROUNDED: bool> Words for Avx2<ROUNDED> {
        const VALUES: usize = 1;

        #[inline(always)]
        unsafe fn along(values: Values, first: usize, count: usize) -> Row {
            words::<ROUNDED>(values, first, count)
        }

        #[inline(always)]
        unsafe fn across(values: Values, first: usize, _second: Option<usize>, lines: usize) -> Row {
            words::<ROUNDED>(values, first, lines)
        }

        #[inline(always)]
        unsafe fn transpose(rows: &[Row; 16], to: *mut u32, width: usize) {
            // SAFETY: the caller's promise.
            unsafe { transpose(rows, to, width) }
        }
    }

    // SAFETY: the caller's promise.
    unsafe { pack::<Avx2<ROUNDED>>(part) }
}

/// [`pack`] of words of two bf16 values, with AVX512-BF16.
///
/// # Safety
///
/// That of [`pack`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn avx512_bf16(part: Part) {
    struct Pairs;

    impl Words for Pairs {
        const VALUES: usize = 2;

        #[inline(always)]
        unsafe fn along(values: Values, first: usize, count: usize) -> Row {
            // SAFETY: the caller's promise; 16 words are 64 bytes.
            unsafe { transmute(along(values, first, count)) }
        }

        #[inline(always)]
        unsafe fn across(values: Values, first: usize, second: Option<usize>, lines: usize) -> Row {
            // SAFETY: as above.
            unsafe { transmute(across(values, first, second, lines)) }
        }

        #[inline(always)]
        unsafe fn transpose(rows: &[Row; 16], to: *mut u32, width: usize) {
            // SAFETY: the caller's promise.
            unsafe { transpose(rows, to, width) }
        }
    }

    // SAFETY: the caller's promise.
    unsafe { pack::<Pairs>(part) }
}

/// Writes row i as column i, to rows that begin `width` words after each other.
///
/// # Safety
///
/// They are valid for writes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transpose(rows: &[Row; 16], to: *mut u32, width: usize) {
    for top in [0, 8] {
        for left in [0, 8] {
            // SAFETY: eight words are 32 bytes.
            let line = |i: usize| unsafe { _mm256_loadu_ps(rows[top + i][left..][..8].as_ptr().cast()) };
            // Of rows i and i + 4, so that one shuffle of halves is enough: columns 0 and 1 of each half, 2 and 3.
            let mut pairs = [_mm256_setzero_ps(); 8];
            for i in 0..4 {
                let (first, second) = (line(i % 2 * 2 + i / 2 * 4), line(i % 2 * 2 + i / 2 * 4 + 1));
                pairs[2 * i] = _mm256_unpacklo_ps(first, second);
                pairs[2 * i + 1] = _mm256_unpackhi_ps(first, second);
            }
            // Columns c and c + 4 of four rows each.
            let mut quads = [_mm256_setzero_ps(); 8];
            for half in [0, 4] {
                for high in [0, 1] {
                    let (first, second) = (pairs[half + high], pairs[half + 2 + high]);
                    quads[half + 2 * high] = _mm256_shuffle_ps::<0b0100_0100>(first, second);
                    quads[half + 2 * high + 1] = _mm256_shuffle_ps::<0b1110_1110>(first, second);
                }
            }
            for column in 0..4 {
                let (upper, lower) = (quads[column], quads[4 + column]);
                let columns = [
                    _mm256_permute2f128_ps::<0x20>(upper, lower),
                    _mm256_permute2f128_ps::<0x31>(upper, lower),
                ];
                for (half, words) in columns.into_iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe {
                        _mm256_storeu_ps(to.add((left + column + 4 * half) * width + top).cast(), words)
                    };
                }
            }
        }
    }
}

/// The words of up to 32 values that follow each other.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn along(values: Values, first: usize, depth: usize) -> __m512i {
    match values {
        Values::F32(values) => {
            let values = &values[first..][..depth];
            rounded(some(&values[..depth.min(16)]), some(&values[depth.min(16)..]))
        }
        Values::Bf16(values) => some_bf16(&values[first..][..depth]),
    }
}

/// The words of up to 16 lines that follow each other: their values at `first` and, where there are any, at `second`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn across(values: Values, first: usize, second: Option<usize>, lines: usize) -> __m512i {
    /// Word i is values i and 16 + i.
    const INTERLEAVED: Row = {
        let mut order = [0; 16];
        let mut i = 0;
        while i < 16 {
            order[i] = i as u32 | (16 + i as u32) << 16;
            i += 1;
        }
        order
    };
    let halves = match values {
        Values::F32(values) => {
            let line = |place: usize| some(&values[place..][..lines]);
            rounded(line(first), second.map_or(_mm512_setzero_ps(), line))
        }
        Values::Bf16(values) => {
            let line = |place: usize| some_bf16(&values[place..][..lines]);
            let second = second.map_or(_mm512_setzero_si512(), line);
            _mm512_inserti64x4::<1>(line(first), _mm512_castsi512_si256(second))
        }
    };
    // SAFETY: 16 words are 64 bytes.
    let order = unsafe { _mm512_loadu_si512(INTERLEAVED.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, halves)
}

/// Up to 16 values, then zeros.
#[inline]
#[target_feature(enable = "avx512f")]
fn some(values: &[f32]) -> __m512 {
    // SAFETY: the mask has as many bits as there are values; others are not read.
    unsafe { _mm512_maskz_loadu_ps(bits(values.len()) as __mmask16, values.as_ptr()) }
}

/// Up to 32 values, then zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn some_bf16(values: &[bf16]) -> __m512i {
    // SAFETY: the mask has as many bits as there are values; others are not read.
    unsafe { _mm512_maskz_loadu_epi16(bits(values.len()), values.as_ptr().cast()) }
}

/// 16 values and 16 more, rounded to nearest, ties to even.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn rounded(first: __m512, second: __m512) -> __m512i {
    // SAFETY: both types are 64 bytes without invalid values.
    unsafe { transmute(_mm512_cvtne2ps_pbh(second, first)) }
}

/// The lowest `count` ≤ 32 bits.
#[inline]
fn bits(count: usize) -> u32 {
    ((1_u64 << count) - 1) as u32
}

/// [`narrow`](super::narrow) of up to 32 sums, with AVX512-BF16.
///
/// # Safety
///
/// That of [`narrow`](super::narrow); the instructions are available.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn narrow(sums: &[f32], bias: Option<&[f32]>, to: *mut bf16) {
    let count = sums.len();
    let bias = bias.unwrap_or(&[0.0; 32][..count]);
    let half = |range: Range<usize>| _mm512_add_ps(some(&sums[range.clone()]), some(&bias[range]));
    let values = rounded(half(0..count.min(16)), half(count.min(16)..count));
    // SAFETY: the mask has as many bits as there are places.
    unsafe { _mm512_mask_storeu_epi16(to.cast(), bits(count), values) };
}
