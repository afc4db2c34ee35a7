//! Operands to tiles: rounded, in words of two values, and transposed where their order in memory asks for it.

use super::avx512::bits;
use super::{DEPTH, Tile};
use crate::matrix::{Matrix, Values};
use std::arch::x86_64::*;
use std::mem::transmute;

/// An operand seen along its lines, which are the rows of A or the columns of B, each of K values.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    /// A, or B transposed: lines are its rows.
    pub(super) matrix: Matrix<'a>,
    /// Whether a line is a column of a tile, as in B, or a row, as in A.
    pub(super) is_column: bool,
}

impl Lines<'_> {
    /// Whether the values of a line are closer together than the lines are.
    pub(super) fn are_rows_in_memory(&self) -> bool {
        self.matrix.strides[1] <= self.matrix.strides[0]
    }

    /// Packs 32 values from `k` of 16 lines from `line`. What lies beyond the matrix is 0.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) fn pack(&self, line: usize, k: usize, to: &mut Tile) {
        let (values, [to_line, step]) = (self.matrix.values, self.matrix.strides);
        let [lines, depth] = self.matrix.shape();
        let (lines, depth) = (lines.saturating_sub(line).min(16), depth.saturating_sub(k).min(DEPTH));
        let mut words = [_mm512_setzero_si512(); 16];
        // Nothing to read: zeros are the same either way.
        let is_column = if lines == 0 || depth == 0 {
            self.is_column
        } else {
            let start = line * to_line + k * step;
            if to_line == 1 && step != 1 {
                for (pair, words) in words.iter_mut().enumerate().take(depth.div_ceil(2)) {
                    let first = start + 2 * pair * step;
                    let second = (2 * pair + 1 < depth).then_some(first + step);
                    // The same lines are read 32 values further on: far apart in memory, they are not foreseen.
                    prefetch(values, first + DEPTH * step);
                    prefetch(values, first + (DEPTH + 1) * step);
                    *words = across(values, first, second, lines);
                }
                true
            } else {
                for (i, words) in words.iter_mut().enumerate().take(lines) {
                    let first = start + i * to_line;
                    // Value by value where neither axis is contiguous.
                    *words = match step {
                        1 => along(values, first, depth),
                        _ => gathered(values, first, step, depth),
                    };
                }
                false
            }
        };
        if is_column != self.is_column {
            words = transposed(words);
        }
        for (to, words) in to.0.as_chunks_mut::<16>().0.iter_mut().zip(words) {
            // SAFETY: 16 words are 64 bytes.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) };
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
        Values::Bf16(values) => {
            let values = &values[first..][..depth];
            // SAFETY: the mask has as many bits as there are values; others are not read.
            unsafe { _mm512_maskz_loadu_epi16(bits(depth), values.as_ptr().cast()) }
        }
    }
}

/// The words of up to 16 lines that follow each other: their values at `first` and, where there are any, at `second`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn across(values: Values, first: usize, second: Option<usize>, lines: usize) -> __m512i {
    let halves = match values {
        Values::F32(values) => {
            let line = |place: usize| some(&values[place..][..lines]);
            rounded(line(first), second.map_or(_mm512_setzero_ps(), line))
        }
        Values::Bf16(values) => {
            let line = |place: usize| {
                let values = &values[place..][..lines];
                // SAFETY: the mask has as many bits as there are values; others are not read.
                unsafe { _mm512_maskz_loadu_epi16(bits(lines), values.as_ptr().cast()) }
            };
            let second = second.map_or(_mm512_setzero_si512(), line);
            _mm512_inserti64x4::<1>(line(first), _mm512_castsi512_si256(second))
        }
    };
    // SAFETY: 16 words are 64 bytes.
    let order = unsafe { _mm512_loadu_si512(INTERLEAVED.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, halves)
}

/// Word i is values i and 16 + i.
const INTERLEAVED: [u32; 16] = {
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
fn gathered(values: Values, first: usize, step: usize, depth: usize) -> __m512i {
    let mut line = [0.0; DEPTH];
    for (k, value) in line.iter_mut().enumerate().take(depth) {
        *value = match values {
            Values::F32(values) => values[first + k * step],
            Values::Bf16(values) => values[first + k * step].to_f32(),
        };
    }
    along(Values::F32(&line), 0, DEPTH)
}

/// Fetches a value's line into the second cache, if there is such a value.
#[inline]
fn prefetch(values: Values, place: usize) {
    let address: *const i8 = match values {
        Values::F32(values) => values.as_ptr().wrapping_add(place).cast(),
        Values::Bf16(values) => values.as_ptr().wrapping_add(place).cast(),
    };
    // SAFETY: every address may be prefetched.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address) };
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

/// Row i becomes column i.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; 16]) -> [__m512i; 16] {
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
    columns
}
