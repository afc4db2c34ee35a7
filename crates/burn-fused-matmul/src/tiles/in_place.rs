//! Products of a few rows with columns that are read where they lie in memory, each value once: packing would take longer than what it
//! is used for. Words of a strip of 16 columns pass by up to 16 rows, whose sums are in registers, while those of a strip further on are
//! fetched. Sums are added up in the order in which packed columns are.

use super::float::arch;
use super::operand::Operand;
use super::{Instructions, PANEL, Rounding, chain, fetch};
use crate::Output;
use crate::sharing::Packed;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use pulp::{Arch, Simd};
use std::ops::Range;

/// With so few rows of A, packing a value of B takes longer than what it is used for. Found with BERT-base's weights in memory on an AMD
/// with AVX-512: in f32 in place takes 0.72 of the time at 16 rows and 0.88 at 64; in bf16 0.55 at 16 and 1.25 at 64.
pub(super) fn most_rows(instructions: Instructions) -> usize {
    64 / instructions.values()
}

/// Whether so few rows take less time in strips, which read each value once, where columns stay packed: on the same CPU 0.9 of it at 16
/// rows, 1.2 at 4 and 1.03 at 64; with pairs of bf16 1.1 at 16 and 1.3 at 32.
pub(super) fn are_few_for_packed(rows: usize, instructions: Instructions) -> bool {
    instructions.words_are_f32() && (5..=32).contains(&rows)
}

/// Columns of a strip.
const STRIP: usize = 16;

/// Rows whose sums are in registers where there are 32 of 16 values.
const HALF: usize = 16;

/// Words along K of a strip that are multiplied at a time: sums are read and written again for each. At 16 rows of f32 half as many take
/// 1.02 to 1.06 of the time, and a quarter 1.26 to 1.44; with 4 rows or fewer, memory in another order would be 0.8 to 0.9.
const STEPS: usize = 96;

/// Strips between the one that is multiplied and the one that is fetched. Twice as many take 1.0 to 1.1 of the time.
const AHEAD: usize = 2;

/// Tiles for the sums of a block of so many panels, of a chain and in all.
pub(crate) fn tiles([rows, columns]: [usize; 2]) -> usize {
    2 * (PANEL * rows * PANEL * columns).div_ceil(16 * 16)
}

/// Some words of a strip, and the rows that they are multiplied with.
pub(super) struct Strip {
    /// The first words of [`HALF`] rows, word by word.
    pub(super) a: *const u32,
    /// The first word of the columns, and bytes from one along K to the next.
    pub(super) b: *const u8,
    pub(super) step: usize,
    pub(super) words: usize,
    /// Sums of as many rows, and whether these words go on with them.
    pub(super) sums: *mut f32,
    pub(super) continues: bool,
    /// Rows that are there, at most.
    pub(super) rows: usize,
    /// The same words of the strip that is fetched.
    pub(super) next: Option<*const u8>,
}

/// A block of C: some of A's packed rows times columns in place.
///
/// # Safety
///
/// The CPU must have the instructions. Rows are packed, `sums` has room for [`tiles`], and nobody else uses it or the block of C, which has
/// rows of `n` values.
pub(super) unsafe fn multiply(
    operands: [&Operand; 2],
    [packed, columns]: [Packed; 2],
    rows: Range<usize>,
    words: usize,
    output: Output,
    n: usize,
    instructions: Instructions,
) {
    let [a, b] = operands;
    let (first, height) = (packed.depth.start, rows.len().next_multiple_of(HALF));
    let columns_from = PANEL * columns.panels.start;
    let width = n.min(PANEL * columns.panels.end) - columns_from;
    let strips = width / STRIP;
    let sums: *mut f32 = columns.tiles.cast();
    let totals = sums.wrapping_add(PANEL * rows.len().div_ceil(PANEL) * width);
    let halves = || rows.clone().step_by(HALF).map(|row| (row, HALF.min(rows.end - row)));
    let column = |strip: usize, word: usize| b.word_in_place(columns_from + STRIP * strip, 16 * first + word);
    let length = chain(words);
    // A sum without terms is zero, and written as well.
    for start in (0..words.max(1)).step_by(length) {
        let end = words.min(start + length);
        for word in (start..end.max(start + 1)).step_by(STEPS) {
            for strip in 0..strips {
                // What is multiplied soon: the next strips of these words, or the first ones of the next.
                let to = strip + AHEAD;
                let (to_strip, to_word) = (to % strips, word + to / strips * STEPS);
                let next = (to_word < words).then(|| column(to_strip, to_word).0);
                let (b, step) = column(strip, word);
                for (row, rows_left) in halves() {
                    let is_first = row == rows.start;
                    let strip = Strip {
                        a: a.words(row, first, packed).wrapping_add(16 * word),
                        b,
                        step,
                        words: STEPS.min(end - word),
                        sums: sums.wrapping_add(STRIP * (strip * height + row - rows.start)),
                        continues: word > start,
                        rows: rows_left,
                        next: next.filter(|_| is_first),
                    };
                    // SAFETY: the caller's promise.
                    unsafe { strip.multiply(instructions) };
                }
            }
        }
        for (strip, row) in (0..strips).flat_map(|strip| rows.clone().map(move |row| (strip, row))) {
            // SAFETY: these values are C's and this block's, and initialised where they are read.
            unsafe {
                let from = sums.add(STRIP * (strip * height + row - rows.start));
                let from = &*from.cast::<[f32; STRIP]>();
                let (to, adds) = match output {
                    Output::F32 { c, add } => {
                        (c.add(row * n + columns_from + STRIP * strip), add || first > 0 || start > 0)
                    }
                    Output::Bf16 { .. } => {
                        (totals.add((row - rows.start) * width + STRIP * strip), start > 0)
                    }
                };
                let to = to.cast::<[f32; STRIP]>();
                if adds {
                    (*to).iter_mut().zip(from).for_each(|(c, sum)| *c += sum);
                } else {
                    to.write(*from);
                }
            }
        }
    }
    if let Output::Bf16 { c, bias } = output {
        let rounding = Rounding {
            sums: totals,
            to_sums: width,
            bias: bias.map(|bias| &bias[columns_from..][..width]),
            c: c.wrapping_add(rows.start * n + columns_from),
            to_row: n,
            shape: [rows.len(), width],
        };
        // SAFETY: these values of C are this block's.
        unsafe { rounding.round(instructions) };
    }
}

impl Strip {
    /// # Safety
    ///
    /// The CPU must have the instructions, and all that is pointed to must be there.
    unsafe fn multiply(&self, instructions: Instructions) {
        // SAFETY: the caller's promise; the vectors exist only where their instructions do.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if instructions == Instructions::Avx512 {
                return super::avx512::with_rows(self);
            }
            match arch(instructions) {
                #[cfg(target_arch = "x86_64")]
                Arch::V4(simd) => with_avx512(simd, self),
                #[cfg(target_arch = "x86_64")]
                Arch::V3(simd) => with_avx2(simd, self),
                #[cfg(target_arch = "aarch64")]
                Arch::Neon(simd) => in_turns::<_, 4>(simd, self),
                _ => in_turns::<_, STRIP>(pulp::Scalar, self),
            }
        }
    }
}

// Functions of their own, which have names in a profile; pulp's have not.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn with_avx512(simd: V4, strip: &Strip) {
    // SAFETY: the caller's promise.
    unsafe {
        match strip.rows.div_ceil(4) {
            1 => with_rows::<_, 4, 1>(simd, strip, 0),
            2 => with_rows::<_, 8, 1>(simd, strip, 0),
            3 => with_rows::<_, 12, 1>(simd, strip, 0),
            _ => with_rows::<_, HALF, 1>(simd, strip, 0),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn with_avx2(simd: V3, strip: &Strip) {
    // SAFETY: the caller's promise.
    unsafe { in_turns::<_, 2>(simd, strip) }
}

/// As many rows at a time as registers hold sums of, beside the strip in `VECTORS` vectors and a value of A. Safe where
/// [`Strip::multiply`] is.
#[inline(always)]
unsafe fn in_turns<S: Simd, const VECTORS: usize>(simd: S, strip: &Strip) {
    for row in (0..strip.rows).step_by(6) {
        // SAFETY: the caller's promise.
        unsafe {
            match (strip.rows - row).div_ceil(2) {
                1 => with_rows::<_, 2, VECTORS>(simd, strip, row),
                2 => with_rows::<_, 4, VECTORS>(simd, strip, row),
                _ => with_rows::<_, 6, VECTORS>(simd, strip, row),
            }
        }
    }
}

/// `ROWS` rows from `row` on. Safe where [`Strip::multiply`] is.
#[inline(always)]
unsafe fn with_rows<S: Simd, const ROWS: usize, const VECTORS: usize>(simd: S, strip: &Strip, row: usize) {
    let Strip { a, b, step, words, sums, continues, next, .. } = *strip;
    let to = |i: usize, vector: usize| {
        sums.wrapping_add(STRIP * (row + i) + vector * S::F32_LANES).cast::<S::f32s>()
    };
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    if continues {
        for (i, sums) in sums.iter_mut().enumerate() {
            for (vector, sum) in sums.iter_mut().enumerate() {
                // SAFETY: there are `STRIP` sums of each row.
                *sum = unsafe { to(i, vector).read_unaligned() };
            }
        }
    }
    let next = next.filter(|_| row == 0);
    for k in 0..words {
        if let Some(next) = next {
            fetch::<2>(next.wrapping_add(k * step).cast());
        }
        // SAFETY: each word has `STRIP` values beside each other.
        let b = std::array::from_fn::<_, VECTORS, _>(|vector| unsafe {
            b.add(k * step).cast::<f32>().add(vector * S::F32_LANES).cast::<S::f32s>().read_unaligned()
        });
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: of each word there are `HALF` rows.
            let a = simd.splat_f32s(unsafe { a.cast::<f32>().add(HALF * k + row + i).read() });
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = simd.mul_add_e_f32s(a, b, *sum);
            }
        }
    }
    for (i, sums) in sums.into_iter().enumerate() {
        for (vector, sum) in sums.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { to(i, vector).write_unaligned(sum) };
        }
    }
}
