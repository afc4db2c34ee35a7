//! Operands to tiles: values as words, transposed where their order in memory asks for it.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use crate::frame::{PANEL, TILE_WORDS, Tile};
use crate::matrix::{Matrix, Values};
use half::bf16;
use std::ops::Range;

/// An operand seen along its lines, which are the rows of A or the columns of B, each of K values.
#[derive(Clone, Copy)]
pub(crate) struct Lines<'a> {
    values: Values<'a>,
    /// From one line to the next.
    line: usize,
    /// From one value of a line to the next.
    step: usize,
    /// Lines, and values of each.
    shape: [usize; 2],
    /// Whether a line is a column of a tile, as in B, or a row, as in A.
    is_column: bool,
}

/// Panels of the other operand up to which packing costs more than it saves.
const FEW_PANELS: usize = 4;

/// An operand that is multiplied where it is, in words: the first, how many there are, from line to line, and along K.
#[derive(Clone, Copy)]
pub(crate) struct Direct {
    pub(crate) first: *const u32,
    pub(crate) words: usize,
    pub(crate) line: usize,
    pub(crate) step: usize,
}

/// The panels of an operand to pack.
pub(crate) struct Part<'a> {
    pub(crate) lines: &'a Lines<'a>,
    pub(crate) panels: Range<usize>,
    /// Tiles along K.
    pub(crate) depth: Range<usize>,
    /// Where they go, and tiles from one panel to the next.
    pub(crate) to: *mut Tile,
    pub(crate) panel: usize,
}

/// Words that follow each other along a line or across lines.
type Row = [u32; 16];

/// How values become words. Calls need the type's instructions.
trait Words {
    /// Values along K in a word.
    const VALUES: usize;

    /// The words of up to 16 · VALUES values of a line, which follow each other. The others are 0.
    unsafe fn along(values: Values, first: usize, count: usize) -> Row;

    /// The words of up to 16 lines that follow each other: their values at `first` and, where words hold two and there are any, at
    /// `second`.
    unsafe fn across(values: Values, first: usize, second: Option<usize>, lines: usize) -> Row;

    /// Writes row i as column i, to rows that begin `width` words after each other.
    unsafe fn transpose(rows: &[Row; 16], to: *mut u32, width: usize);
}

impl<'a> Lines<'a> {
    pub(crate) fn of_a(a: &Matrix<'a>) -> Self {
        let [line, step] = a.strides();
        Self { values: a.values(), line, step, shape: a.shape(), is_column: false }
    }

    pub(crate) fn of_b(b: &Matrix<'a>) -> Self {
        Self { is_column: true, ..Self::of_a(&b.transpose()) }
    }

    /// The lines where they are, if a kernel whose words hold so many values can read them there, and will not for so many
    /// `panels` of the other operand that packing is worth it.
    pub(crate) fn direct(&self, word_values: usize, panels: usize) -> Option<Direct> {
        let Self { values, line, step, shape: [lines, k], is_column } = *self;
        // Rows of A are read as fast as tiles; what lies across lines in memory is read from many pages. Columns of B must fill
        // their panels.
        let is_row = !is_column && step == 1;
        let is_across = line == 1 && panels <= FEW_PANELS && (!is_column || lines % PANEL == 0);
        let direct = match values {
            Values::F32(values) if word_values == 1 && (is_row || is_across) => {
                Direct { first: values.as_ptr().cast(), words: values.len(), line, step }
            }
            // Two values that follow each other are a word.
            Values::Bf16(values) if word_values == 2 && is_row && line % 2 == 0 && k % 2 == 0 => {
                Direct { first: values.as_ptr().cast(), words: values.len() / 2, line: line / 2, step }
            }
            _ => return None,
        };
        // What is a multiple of 4 KiB apart shares the few places of the first cache that an address can be in.
        (direct.line.max(direct.step) % 1024 != 0).then_some(direct)
    }

    /// Whether the values of a line are closer together than the lines are.
    pub(crate) fn is_along(&self) -> bool {
        self.step <= self.line
    }

    /// Packs 16 words from value `k` of 16 lines from `line`. What lies beyond the matrix is 0.
    ///
    /// # Safety
    ///
    /// The instructions are available, and the tile is valid for writes.
    #[inline(always)]
    unsafe fn pack<W: Words>(&self, line: usize, k: usize, to: *mut Tile) {
        let lines = self.shape[0].saturating_sub(line).min(16);
        let depth = self.shape[1].saturating_sub(k).min(16 * W::VALUES);
        let start = line * self.line + k * self.step;
        let half = line % PANEL;
        let (place, width) = if self.is_column { (half, PANEL) } else { (half * TILE_WORDS, TILE_WORDS) };
        // Nothing to read is the same either way.
        let is_empty = lines == 0 || depth == 0;
        let is_column = if is_empty { self.is_column } else { self.step != 1 && self.line == 1 };
        let mut rows = [[0; 16]; 16];
        // SAFETY (of all that follows): the caller's promise; 16 rows of 16 words are this half of the tile.
        let to = unsafe { to.cast::<u32>().add(place) };
        let is_transposed = is_column != self.is_column;
        let (first_row, step) = if is_transposed { (rows.as_mut_ptr().cast(), 16) } else { (to, width) };
        let to_row = |i: usize| first_row.wrapping_add(i * step).cast::<Row>();
        let count = match (is_empty, is_column) {
            (true, _) => 0,
            (false, true) => depth.div_ceil(W::VALUES),
            (false, false) => lines,
        };
        for i in 0..count {
            let row = if is_column {
                let first = start + W::VALUES * i * self.step;
                let second = (W::VALUES * i + 1 < depth).then_some(first + self.step);
                // The same lines are read some values further on: far apart in memory, they are not foreseen.
                for next in 0..W::VALUES {
                    prefetch(self.values, first + (16 * W::VALUES + next) * self.step);
                }
                unsafe { W::across(self.values, first, second, lines) }
            } else {
                let first = start + i * self.line;
                if self.step == 1 {
                    // 16 lines in turn are too many for the CPU to foresee.
                    prefetch(self.values, first + 64 * W::VALUES);
                    unsafe { W::along(self.values, first, depth) }
                } else {
                    // Neither axis is contiguous: value by value.
                    let mut line = [0.0; 32];
                    for (k, value) in line.iter_mut().enumerate().take(depth) {
                        *value = self.at(first + k * self.step);
                    }
                    unsafe { W::along(Values::F32(&line), 0, 16 * W::VALUES) }
                }
            };
            unsafe { to_row(i).write(row) };
        }
        for i in count..16 {
            unsafe { to_row(i).write([0; 16]) };
        }
        if is_transposed {
            unsafe { W::transpose(&rows, to, width) };
        }
    }

    #[inline(always)]
    fn at(&self, place: usize) -> f32 {
        match self.values {
            Values::F32(values) => values[place],
            Values::Bf16(values) => values[place].to_f32(),
        }
    }
}

/// Packs panels.
///
/// # Safety
///
/// The instructions are available, and there is room for all tiles of the part, which nobody else uses.
#[inline(always)]
unsafe fn pack<W: Words>(part: Part) {
    let Part { lines, panels, depth, to, panel } = part;
    let (halves, depth_count) = (2 * panels.len(), depth.len());
    // In the order in which the operand is in memory.
    let is_along = lines.is_along();
    // One loop and no closures, which would be compiled without the instructions.
    for i in 0..halves * depth_count {
        let (half, k) = if is_along { (i / depth_count, i % depth_count) } else { (i % halves, i / halves) };
        let (line, value) = (16 * (2 * panels.start + half), TILE_WORDS * W::VALUES * (depth.start + k));
        // SAFETY: the caller's promise.
        unsafe { lines.pack::<W>(line, value, to.add(half / 2 * panel + k)) };
    }
}

/// [`pack`] of words in f32, of values rounded to bf16 if `ROUNDED`, on any CPU.
///
/// # Safety
///
/// That of [`pack`].
pub(crate) unsafe fn portable<const ROUNDED: bool>(part: Part) {
    struct Portable<const ROUNDED: bool>;

    impl<const ROUNDED: bool> Words for Portable<ROUNDED> {
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
            for i in 0..16 {
                for (j, row) in rows.iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { to.add(i * width + j).write(row[i]) };
                }
            }
        }
    }

    // SAFETY: the caller's promise.
    unsafe { pack::<Portable<ROUNDED>>(part) }
}

/// Up to 16 values that follow each other, as words.
#[inline(always)]
fn words<const ROUNDED: bool>(values: Values, first: usize, count: usize) -> Row {
    match values {
        Values::F32(values) if ROUNDED => row(&values[first..][..count], |value| round(value).to_bits()),
        Values::F32(values) => row(&values[first..][..count], f32::to_bits),
        Values::Bf16(values) => row(&values[first..][..count], |value| value.to_f32().to_bits()),
    }
}

/// Up to 16 words.
#[inline(always)]
fn row<T: Copy>(values: &[T], word: impl Fn(T) -> u32) -> Row {
    let mut row = [0; 16];
    // Of a known number, for vectors.
    if let Some(values) = values.first_chunk::<16>() {
        row.iter_mut().zip(values).for_each(|(to, value)| *to = word(*value));
    } else {
        row.iter_mut().zip(values).for_each(|(to, value)| *to = word(*value));
    }
    row
}

/// Rounded to bf16, to nearest, ties to even: as the crate `half` does it, for vectors.
#[inline(always)]
fn round(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    // A NaN stays one, also if its upper half alone would be infinity.
    let bits = if value.is_nan() { bits | 1 << 22 } else { rounded };
    f32::from_bits(bits & 0xffff_0000)
}

/// Fetches a value's line into the second cache, if there is such a value.
#[inline(always)]
fn prefetch(values: Values, place: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        let address: *const i8 = match values {
            Values::F32(values) => values.as_ptr().wrapping_add(place).cast(),
            Values::Bf16(values) => values.as_ptr().wrapping_add(place).cast(),
        };
        // SAFETY: every address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, place);
}

/// Writes sums, plus a bias for each, rounded to bf16.
///
/// # Safety
///
/// `to` is valid for writes of as many values as there are sums.
pub(crate) unsafe fn narrow(sums: &[f32], bias: Option<&[f32]>, to: *mut bf16) {
    for (i, sum) in sums.iter().enumerate() {
        let value = sum + bias.map_or(0.0, |bias| bias[i]);
        // SAFETY: the caller's promise.
        unsafe { to.add(i).write(bf16::from_bits((round(value).to_bits() >> 16) as u16)) }
    }
}
