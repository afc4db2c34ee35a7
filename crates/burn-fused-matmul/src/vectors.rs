//! The micro-kernel: a product of two panels, a few rows of C at a time in registers, for any vectors of f32 sums.

use crate::frame::{PANEL, Panels, TILE_WORDS};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Sums in a register, and what is added to them. Calls need the type's instructions.
trait Vector: Copy {
    const LANES: usize;

    unsafe fn zero() -> Self;

    /// Words that follow each other.
    unsafe fn load(words: *const u32) -> Self;

    /// A word in all places.
    unsafe fn broadcast(word: *const u32) -> Self;

    /// self + a · b in each place, where the places of `a` and `b` are words.
    unsafe fn plus(self, a: Self, b: Self) -> Self;

    unsafe fn sum(self, other: Self) -> Self;

    unsafe fn store(self, to: *mut f32);
}

/// R rows and C vectors of columns of C, from row and column `start` of the panels. Returns R.
///
/// # Safety
///
/// That of [`Panels`], of which these rows and columns are a part; `V`'s instructions are available.
#[inline(always)]
unsafe fn pass<V: Vector, const R: usize, const C: usize>(panels: &Panels, start: [usize; 2]) -> usize {
    let &Panels { a, a_steps: [a_row, a_word, a_tile], b, b_word, words, c, row, add, .. } = panels;
    let [first_row, first_column] = start;
    // SAFETY: A and B have `words` words of each line, and C is valid where it is read and written.
    unsafe {
        let mut rows = [a; R];
        for (i, to) in rows.iter_mut().enumerate() {
            // Sums of rows beyond the last are of no use, but are computed of something.
            *to = a.add((first_row + i).min(panels.rows - 1) * a_row);
        }
        let mut b = b.add(first_column);
        let mut sums = [[V::zero(); C]; R];
        let mut tile = 0;
        for _ in 0..words / TILE_WORDS {
            let mut place = tile;
            for _ in 0..TILE_WORDS {
                add_word(&mut sums, &rows, place, b);
                place += a_word;
                b = b.wrapping_add(b_word);
            }
            tile += a_tile;
        }
        for _ in 0..words % TILE_WORDS {
            add_word(&mut sums, &rows, tile, b);
            tile += a_word;
            b = b.wrapping_add(b_word);
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let c = c.add((first_row + i) * row + first_column + j * V::LANES);
                // What earlier words of K added up comes last: a long sum has the errors of short ones.
                let sum = if add { V::load(c.cast()).sum(sum) } else { sum };
                sum.store(c);
            }
        }
    }
    R
}

/// Adds the products of a word of each row of A, at `place`, and of each column of B.
#[inline(always)]
unsafe fn add_word<V: Vector, const R: usize, const C: usize>(
    sums: &mut [[V; C]; R],
    rows: &[*const u32; R],
    place: usize,
    b: *const u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut columns = [V::zero(); C];
        for (j, column) in columns.iter_mut().enumerate() {
            *column = V::load(b.add(j * V::LANES));
        }
        for (sums, row) in sums.iter_mut().zip(rows) {
            let a = V::broadcast(row.add(place));
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = sum.plus(a, column);
            }
        }
    }
}

/// Multiplies two panels, `R` rows and `C` vectors of columns at a time, then `S` rows.
///
/// # Safety
///
/// That of [`Panels`]; `V`'s instructions are available.
#[inline(always)]
unsafe fn multiply<V: Vector, const R: usize, const S: usize, const C: usize>(panels: &Panels) {
    let mut row = 0;
    while row < panels.rows {
        let mut rows = 0;
        for column in (0..PANEL).step_by(C * V::LANES) {
            let start = [row, column];
            // SAFETY: the caller's promise; no pass goes beyond the 32 rows of C.
            unsafe {
                rows = match panels.rows - row {
                    1 => pass::<V, 1, C>(panels, start),
                    2..=4 => pass::<V, 4, C>(panels, start),
                    5..=8 => pass::<V, S, C>(panels, start),
                    _ => pass::<V, R, C>(panels, start),
                };
            }
        }
        row += rows;
    }
}

/// Multiplies two panels on any CPU.
///
/// # Safety
///
/// That of [`Panels`].
pub(crate) unsafe fn portable(panels: &Panels) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<[f32; 4], 6, 4, 2>(panels) }
}

/// Multiplies two panels with AVX2 and FMA.
///
/// # Safety
///
/// That of [`Panels`]; the instructions are available.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn avx2(panels: &Panels) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<__m256, 6, 4, 2>(panels) }
}

/// Multiplies two panels with AVX-512.
///
/// # Safety
///
/// That of [`Panels`]; the instructions are available.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(crate) unsafe fn avx512(panels: &Panels) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<__m512, 12, 8, 2>(panels) }
}

/// Multiplies two panels of pairs of bf16 values with AVX512-BF16.
///
/// # Safety
///
/// That of [`Panels`]; the instructions are available.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn avx512_bf16(panels: &Panels) {
    // SAFETY: the caller's promise.
    unsafe { multiply::<Pairs, 12, 8, 2>(panels) }
}

impl Vector for [f32; 4] {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        [0.0; 4]
    }

    #[inline(always)]
    unsafe fn load(words: *const u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { words.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn broadcast(word: *const u32) -> Self {
        // SAFETY: the caller's promise.
        [unsafe { word.cast::<f32>().read_unaligned() }; 4]
    }

    #[inline(always)]
    unsafe fn plus(mut self, a: Self, b: Self) -> Self {
        for ((sum, a), b) in self.iter_mut().zip(a).zip(b) {
            // Without the instruction it is a call of a function.
            *sum = if cfg!(target_arch = "aarch64") { a.mul_add(b, *sum) } else { *sum + a * b };
        }
        self
    }

    #[inline(always)]
    unsafe fn sum(mut self, other: Self) -> Self {
        self.iter_mut().zip(other).for_each(|(x, y)| *x += y);
        self
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
}

/// 16 sums, or 16 words of two bf16 values.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Pairs(__m512);

/// Implements [`Vector`] by intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    (
        $vector:ty, $lanes:literal, $wrap:expr, $unwrap:expr;
        $zero:ident, $load:ident, $broadcast:ident, $add:ident, $store:ident, $plus:expr
    ) => {
        impl Vector for $vector {
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY (here and below): the caller's promise.
                $wrap(unsafe { $zero() })
            }

            #[inline(always)]
            unsafe fn load(words: *const u32) -> Self {
                $wrap(unsafe { $load(words.cast()) })
            }

            #[inline(always)]
            unsafe fn broadcast(word: *const u32) -> Self {
                $wrap(unsafe { $broadcast(word.cast::<f32>().read_unaligned()) })
            }

            #[inline(always)]
            unsafe fn plus(self, a: Self, b: Self) -> Self {
                $wrap(unsafe { $plus($unwrap(self), $unwrap(a), $unwrap(b)) })
            }

            #[inline(always)]
            unsafe fn sum(self, other: Self) -> Self {
                $wrap(unsafe { $add($unwrap(self), $unwrap(other)) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                unsafe { $store(to, $unwrap(self)) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector!(__m256, 8, |v| v, |v| v;
    _mm256_setzero_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_add_ps, _mm256_storeu_ps,
    |sum, a, b| _mm256_fmadd_ps(a, b, sum));
#[cfg(target_arch = "x86_64")]
vector!(__m512, 16, |v| v, |v| v;
    _mm512_setzero_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_add_ps, _mm512_storeu_ps,
    |sum, a, b| _mm512_fmadd_ps(a, b, sum));
#[cfg(target_arch = "x86_64")]
vector!(Pairs, 16, Pairs, |v: Pairs| v.0;
_mm512_setzero_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_add_ps, _mm512_storeu_ps,
|sum, a, b| _mm512_dpbf16_ps(
    sum,
    std::mem::transmute::<__m512, __m512bh>(a),
    std::mem::transmute::<__m512, __m512bh>(b)
));
