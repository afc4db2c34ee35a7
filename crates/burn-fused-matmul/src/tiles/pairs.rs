//! Words of two bf16 values, with AVX-512.

use super::Words;
use crate::matrix::Values;
use half::bf16;
use std::arch::x86_64::*;
use std::mem::transmute;

/// The words of up to 32 values that follow each other.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn along(values: Values, first: usize, depth: usize) -> Words {
    words(match values {
        Values::F32(values) => {
            let values = &values[first..][..depth];
            rounded(some(&values[..depth.min(16)]), some(&values[depth.min(16)..]))
        }
        Values::Bf16(values) => {
            let values = &values[first..][..depth];
            // SAFETY: the mask has as many bits as there are values; others are not read.
            unsafe { _mm512_maskz_loadu_epi16(bits(depth), values.as_ptr().cast()) }
        }
    })
}

/// The words of up to 16 lines that follow each other: their values at `first` and, where there are any, at `second`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn across(values: Values, first: usize, second: Option<usize>, lines: usize) -> Words {
    let halves = match values {
        Values::F32(values) => {
            let line = |index: usize| some(&values[index..][..lines]);
            rounded(line(first), second.map_or(_mm512_setzero_ps(), line))
        }
        Values::Bf16(values) => {
            let line = |index: usize| {
                let values = &values[index..][..lines];
                // SAFETY: the mask has as many bits as there are values; others are not read.
                unsafe { _mm512_maskz_loadu_epi16(bits(lines), values.as_ptr().cast()) }
            };
            let second = second.map_or(_mm512_setzero_si512(), line);
            _mm512_inserti64x4::<1>(line(first), _mm512_castsi512_si256(second))
        }
    };
    words(permuted(halves))
}

/// The words of two lines of 16 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn interleaved([first, second]: [__m256i; 2]) -> __m512i {
    permuted(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn permuted(halves: __m512i) -> __m512i {
    // SAFETY: 16 words are 64 bytes.
    let order = unsafe { _mm512_loadu_si512(INTERLEAVED.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, halves)
}

/// Word i is values i and 16 + i.
const INTERLEAVED: Words = {
    let mut order = [0; 16];
    let mut i = 0;
    while i < 16 {
        order[i] = i as u32 | (16 + i as u32) << 16;
        i += 1;
    }
    order
};

/// The words of up to 32 values `step` apart.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn gathered(values: Values, first: usize, step: usize, depth: usize) -> Words {
    let mut line = [0.0; 32];
    for (k, value) in line.iter_mut().enumerate().take(depth) {
        *value = match values {
            Values::F32(values) => values[first + k * step],
            Values::Bf16(values) => values[first + k * step].to_f32(),
        };
    }
    along(Values::F32(&line), 0, 32)
}

/// Writes up to 32 sums, plus a bias for each, rounded to nearest, ties to even.
///
/// # Safety
///
/// `to` must be valid for writes of as many values as there are sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn narrow(sums: &[f32], bias: &[f32], to: *mut bf16) {
    let half = |from: usize, to: usize| _mm512_add_ps(some(&sums[from..to]), some(&bias[from..to]));
    let (count, middle) = (sums.len(), sums.len().min(16));
    let values = rounded(half(0, middle), half(middle, count));
    // SAFETY: the mask has as many bits as there are places.
    unsafe { _mm512_mask_storeu_epi16(to.cast(), bits(count), values) };
}

/// Up to 16 values, then zeros.
#[inline]
#[target_feature(enable = "avx512f")]
fn some(values: &[f32]) -> __m512 {
    // SAFETY: the mask has as many bits as there are values; others are not read.
    unsafe { _mm512_maskz_loadu_ps(bits(values.len()) as __mmask16, values.as_ptr()) }
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

/// Row i becomes column i.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose(words: &mut [Words; 16]) {
    // SAFETY: 16 words are 64 bytes, without invalid values.
    let rows = unsafe { transmute::<[Words; 16], [__m512i; 16]>(*words) };
    // Of each four rows, the columns of their 4 × 4 blocks: block b of `quads[4 * r + c]` is column 4 b + c of rows 4 r on.
    let mut quads = rows;
    for (from, to) in rows.as_chunks::<4>().0.iter().zip(quads.as_chunks_mut::<4>().0) {
        let low = [_mm512_unpacklo_epi32(from[0], from[1]), _mm512_unpacklo_epi32(from[2], from[3])];
        let high = [_mm512_unpackhi_epi32(from[0], from[1]), _mm512_unpackhi_epi32(from[2], from[3])];
        *to = [
            _mm512_unpacklo_epi64(low[0], low[1]),
            _mm512_unpackhi_epi64(low[0], low[1]),
            _mm512_unpacklo_epi64(high[0], high[1]),
            _mm512_unpackhi_epi64(high[0], high[1]),
        ];
    }
    // Column 4 b + c of all rows is block b of four vectors.
    let mut columns = rows;
    for c in 0..4 {
        let [first, second, third, fourth] = [quads[c], quads[4 + c], quads[8 + c], quads[12 + c]];
        let blocks_01 = _mm512_shuffle_i32x4::<0b0100_0100>(first, second); // 0 1 of the first, 0 1 of the second
        let blocks_23 = _mm512_shuffle_i32x4::<0b1110_1110>(first, second);
        let next_01 = _mm512_shuffle_i32x4::<0b0100_0100>(third, fourth);
        let next_23 = _mm512_shuffle_i32x4::<0b1110_1110>(third, fourth);
        columns[c] = _mm512_shuffle_i32x4::<0b1000_1000>(blocks_01, next_01);
        columns[4 + c] = _mm512_shuffle_i32x4::<0b1101_1101>(blocks_01, next_01);
        columns[8 + c] = _mm512_shuffle_i32x4::<0b1000_1000>(blocks_23, next_23);
        columns[12 + c] = _mm512_shuffle_i32x4::<0b1101_1101>(blocks_23, next_23);
    }
    // SAFETY: as above.
    *words = unsafe { transmute::<[__m512i; 16], [Words; 16]>(columns) };
}

#[inline]
#[target_feature(enable = "avx512f")]
fn words(words: __m512i) -> Words {
    // SAFETY: 16 words are 64 bytes, without invalid values.
    unsafe { transmute(words) }
}
