//! Operands as words: where they are, or packed in tiles, rounded and transposed where their order in memory asks for it.

use super::float::{arch, round};
use super::in_place::{are_few_for_packed, most_rows};
#[cfg(target_arch = "x86_64")]
use super::pairs;
use super::{Instructions, PANEL, Tile, Words, fetch};
use crate::matrix::{Matrix, RightMatrix, Values};
use crate::sharing::{Packed, part};
#[cfg(target_arch = "x86_64")]
use pulp::Arch;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Approximate number of tiles that a thread packs at a time. Half and twice as many take 0.95 to 1.05 of the time on one thread.
const ITEM: usize = 96;

/// An operand seen along its lines, which are the rows of A or the columns of B, each of K values.
pub(super) struct Operand<'a> {
    /// A, or B transposed: lines are its rows.
    matrix: Matrix<'a>,
    instructions: Instructions,
    layout: Layout,
    in_place: Option<InPlace>,
    /// Whether so few rows pass by columns in place that these are multiplied strip by strip.
    is_in_strips: bool,
}

/// The order of a packed operand's words in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Tile by tile, of which a line is a column: B, and A for columns in place.
    Columns,
    /// Tile by tile, of which a line is a row: A for AMX.
    Rows,
    /// Line by line: what is read of a few rows of A fills as little as it can of the first cache.
    Lines,
}

/// The words of an operand that is not packed. Those of columns in bf16 are two values that are a row apart.
pub(super) struct InPlace {
    pub(super) first: *const u8,
    /// Bytes from one half of a panel to the next, from one of its lines to the next, and from one word along K to the next.
    pub(super) half: usize,
    pub(super) line: usize,
    pub(super) step: usize,
}

impl InPlace {
    /// The words of a matrix of bytes from one line to the next, and from one word along K to the next.
    fn strided<T>(values: &[T], line: usize, step: usize) -> Self {
        Self { first: values.as_ptr().cast(), half: 16 * line, line, step }
    }

    fn word(&self, line: usize, word: usize) -> *const u8 {
        self.first.wrapping_add(line / 16 * self.half + line % 16 * self.line + word * self.step)
    }
}

impl<'a> Operand<'a> {
    /// A.
    pub(super) fn rows(a: Matrix<'a>, instructions: Instructions) -> Self {
        let [line, step] = a.strides;
        let in_place = match (instructions, a.values) {
            // In place, words of a transposed operand would be far apart: each on another page, and in few sets of a cache.
            (_, Values::F32(values)) if instructions.words_are_f32() && step == 1 => {
                Some(InPlace::strided(values, 4 * line, 4))
            }
            // A word is not cut in two.
            (Instructions::Avx512, Values::Bf16(values))
                if step == 1 && [line, a.shape()[1]].iter().all(|count| count.is_multiple_of(2)) =>
            {
                Some(InPlace::strided(values, 2 * line, 4))
            }
            _ => None,
        };
        let layout = if instructions == Instructions::Amx { Layout::Rows } else { Layout::Lines };
        Self { matrix: a, instructions, layout, in_place, is_in_strips: false }
    }

    /// A, for columns in strips.
    pub(super) fn packed_rows(a: Matrix<'a>, instructions: Instructions) -> Self {
        Self { matrix: a, instructions, layout: Layout::Columns, in_place: None, is_in_strips: true }
    }

    /// B, for a product with `rows` rows of A.
    pub(super) fn columns(b: RightMatrix<'a>, instructions: Instructions, rows: usize) -> Self {
        let (matrix, in_place, are_few) = match b {
            RightMatrix::Packed(packed) => {
                (packed.matrix(), Some(packed.words()), are_few_for_packed(rows, instructions))
            }
            RightMatrix::Matrix(b) => {
                let are_few = rows <= most_rows(instructions);
                let is_whole =
                    b.shape()[1].is_multiple_of(PANEL) && b.shape()[0].is_multiple_of(instructions.values());
                let in_place = match (instructions, b.values, b.strides) {
                    _ if !is_whole || !are_few => None,
                    (_, Values::F32(values), [step, 1]) if instructions.words_are_f32() => {
                        Some(InPlace::strided(values, 4, 4 * step))
                    }
                    (Instructions::Avx512, Values::Bf16(values), [step, 1]) => {
                        Some(InPlace::strided(values, 2, 4 * step))
                    }
                    _ => None,
                };
                (b, in_place, are_few)
            }
        };
        let is_in_strips = are_few && in_place.is_some();
        let matrix = matrix.transpose();
        Self { matrix, instructions, layout: Layout::Columns, in_place, is_in_strips }
    }

    pub(super) fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    pub(super) fn is_in_strips(&self) -> bool {
        self.is_in_strips
    }

    /// The first of a line's words from tile `tile` on.
    #[inline]
    pub(super) fn words(&self, line: usize, tile: usize, packed: Packed) -> *const u32 {
        // The last line stands for those beyond it, whose products are not C's.
        match &self.in_place {
            Some(in_place) => in_place.word(line.min(self.matrix.shape()[0] - 1), 16 * tile).cast(),
            None => {
                let line = line.min(PANEL * packed.panels.end - 1);
                let [first, to_line] = self.offsets(line / 16, tile, packed);
                packed.tiles.cast::<u32>().wrapping_add(first + line % 16 * to_line).cast_const()
            }
        }
    }

    /// A word of a line in place, and the bytes from it to the next along K.
    pub(super) fn word_in_place(&self, line: usize, word: usize) -> (*const u8, usize) {
        let in_place = self.in_place.as_ref().expect("an operand in place");
        (in_place.word(line, word), in_place.step)
    }

    /// The index of the first packed word of tile `tile` along K of half `half`, and the words from one of its lines to the next.
    #[inline]
    fn offsets(&self, half: usize, tile: usize, Packed { panels, depth, .. }: Packed) -> [usize; 2] {
        let (half, tile, stride) = (half - 2 * panels.start, tile - depth.start, stride(depth.len()));
        match self.layout {
            Layout::Columns => [256 * (half * stride + tile), 1],
            Layout::Rows => [256 * (half * stride + tile), 16],
            Layout::Lines => [16 * (16 * half * stride + tile), 16 * stride],
        }
    }

    /// The halves of panels that are packed. Of the last one strips read no more than there are lines in.
    fn halves(&self, panels: &Range<usize>) -> Range<usize> {
        let all = 2 * panels.start..2 * panels.end;
        if self.is_in_strips { all.start..all.end.min(self.matrix.shape()[0].div_ceil(16)) } else { all }
    }

    /// How many items of packing there are in these panels.
    pub(super) fn items(&self, Packed { panels, depth, .. }: Packed) -> usize {
        let halves = self.halves(panels).len();
        match (&self.in_place, self.are_rows_in_memory()) {
            (Some(_), _) => 0,
            (None, true) => halves.div_ceil(item_len(depth.len())),
            (None, false) => depth.len().div_ceil(item_len(halves)),
        }
    }

    /// Packs an item of these panels.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions; there must be room for all of the panels, and nobody else may use the tiles of this
    /// item.
    pub(super) unsafe fn pack(&self, item: usize, packed: Packed) {
        let Packed { tiles, panels, depth } = packed;
        let tile = |half: usize, tile: usize| {
            let [first, to_line] = self.offsets(half, tile, packed);
            // SAFETY: the caller's promise; the lines of a tile are 64 bytes each.
            unsafe {
                let to = tiles.cast::<u32>().add(first);
                if self.layout != Layout::Lines {
                    return self.pack_tile(16 * half, tile, &mut *to.cast());
                }
                let mut lines = Tile([[0; 16]; 16]);
                self.pack_tile(16 * half, tile, &mut lines);
                for (i, line) in lines.0.into_iter().enumerate() {
                    to.add(i * to_line).cast::<Words>().write(line);
                }
            }
        };
        let halves = self.halves(panels);
        // In the order in which the operand is in memory.
        if self.are_rows_in_memory() {
            let halves = part(&halves, item, item_len(depth.len()));
            halves.for_each(|half| depth.clone().for_each(|k| tile(half, k)));
        } else {
            let depth = part(depth, item, item_len(halves.len()));
            depth.for_each(|k| halves.clone().for_each(|half| tile(half, k)));
        }
    }

    /// Whether the values of a line are closer together than the lines are.
    fn are_rows_in_memory(&self) -> bool {
        self.matrix.strides[1] <= self.matrix.strides[0]
    }

    /// Packs tile `tile` along K of 16 lines from `line`. What lies beyond the matrix is 0.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions.
    pub(super) unsafe fn pack_tile(&self, line: usize, tile: usize, to: &mut Tile) {
        match self.instructions {
            // SAFETY: the caller's promise.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 | Instructions::Amx => unsafe { self.pack_pairs(line, tile, to) },
            vectors => arch(vectors).dispatch(Floats { operand: self, line, tile, to }),
        }
    }

    /// [`pack_tile`](Self::pack_tile), two bf16 values to a word.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack_pairs(&self, line: usize, tile: usize, to: &mut Tile) {
        let values = self.matrix.values;
        let along = |first, step, depth| match step {
            1 => pairs::along(values, first, depth),
            _ => pairs::gathered(values, first, step, depth),
        };
        let across = |first, second, lines| pairs::across(values, first, second, lines);
        self.pack_words::<2>(line, tile, along, across, |words| pairs::transpose(words), to);
    }

    /// Packs words of `VALUES` values: of `along` a line or, where lines are closer together, `across` them.
    #[inline(always)]
    fn pack_words<const VALUES: usize>(
        &self,
        line: usize,
        tile: usize,
        along: impl Fn(usize, usize, usize) -> Words,
        across: impl Fn(usize, Option<usize>, usize) -> Words,
        transpose: impl Fn(&mut [Words; 16]),
        to: &mut Tile,
    ) {
        let ([to_line, step], [lines, depth]) = (self.matrix.strides, self.matrix.shape());
        let k = 16 * VALUES * tile;
        let (lines, depth) = (lines.saturating_sub(line).min(16), depth.saturating_sub(k).min(16 * VALUES));
        if lines == 0 || depth == 0 {
            to.0.fill([0; 16]);
            return;
        }
        let start = line * to_line + k * step;
        let is_column = to_line == 1 && step != 1;
        let (words, rest) = to.0.split_at_mut(if is_column { depth.div_ceil(VALUES) } else { lines });
        rest.fill([0; 16]);
        if is_column {
            for (word, words) in words.iter_mut().enumerate() {
                let first = start + VALUES * word * step;
                let second = (VALUES * word + 1 < depth).then_some(first + step);
                // The same lines are read a tile further on: far apart in memory, they are not foreseen.
                for value in 0..VALUES {
                    let index = first + (16 * VALUES + value) * step;
                    fetch::<2>(match self.matrix.values {
                        Values::F32(values) => values.as_ptr().wrapping_add(index).cast(),
                        Values::Bf16(values) => values.as_ptr().wrapping_add(index).cast(),
                    });
                }
                *words = across(first, second, lines);
            }
        } else {
            for (i, words) in words.iter_mut().enumerate() {
                *words = along(start + i * to_line, step, depth);
            }
        }
        if is_column != (self.layout == Layout::Columns) {
            transpose(&mut to.0);
        }
    }
}

/// How many of what has `tiles` tiles each are in an item of packing.
fn item_len(tiles: usize) -> usize {
    (ITEM / tiles).max(1)
}

/// Tiles from one half of a panel to the next. An odd number: those of a power of two would lie in the same few sets of a cache.
pub(super) fn stride(depth: usize) -> usize {
    depth | 1
}

/// [`Operand::pack_tile`], one value in f32 to a word. A type's method and no closure, so that it is compiled once for each CPU, with
/// all that it calls.
struct Floats<'a> {
    operand: &'a Operand<'a>,
    line: usize,
    tile: usize,
    to: &'a mut Tile,
}

impl WithSimd for Floats<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { operand, line, tile, to } = self;
        let (values, instructions) = (operand.matrix.values, operand.instructions);
        let is_rounded = instructions == Instructions::F32OnRounded;
        let ([to_line, step], [lines, depth]) = (operand.matrix.strides, operand.matrix.shape());
        // The usual case apart: whole tiles of weights, whose lines are copied in two instructions each.
        if let (Values::F32(values), false, Layout::Columns) = (values, is_rounded, operand.layout)
            && (to_line, line + 16 <= lines, 16 * tile + 16 <= depth) == (1, true, true)
        {
            for (k, words) in to.0.iter_mut().enumerate() {
                let first = line + (16 * tile + k) * step;
                // The same lines are read a tile further on: far apart in memory, they are not foreseen.
                fetch::<2>(values.as_ptr().wrapping_add(first + 16 * step).cast());
                let values: &[f32; 16] = values[first..].first_chunk().expect("a line of the matrix");
                *words = values.map(f32::to_bits);
            }
            return;
        }
        let along = |first, step, depth| floats(values, first, step, depth, is_rounded);
        let across = |first, _, lines| floats(values, first, 1, lines, is_rounded);
        let transpose = |words: &mut _| transpose(words, instructions);
        operand.pack_words::<1>(line, tile, along, across, transpose, to);
    }
}

/// Up to 16 values in f32, `step` apart, then zeros.
#[inline(always)]
fn floats(values: Values, first: usize, step: usize, count: usize, is_rounded: bool) -> Words {
    let of_f32 = |value: f32| if is_rounded { round(value).to_bits() } else { value.to_bits() };
    match values {
        Values::F32(values) => some(&values[first..], step, count, of_f32),
        Values::Bf16(values) => some(&values[first..], step, count, |value| u32::from(value.to_bits()) << 16),
    }
}

#[inline(always)]
fn some<T: Copy>(values: &[T], step: usize, count: usize, word: impl Fn(T) -> u32) -> Words {
    let mut words = [0; 16];
    // The usual case apart: its loop has a fixed length, and becomes vectors.
    if let (1, 16, Some(values)) = (step, count, values.first_chunk::<16>()) {
        for (to, &value) in words.iter_mut().zip(values) {
            *to = word(value);
        }
    } else {
        // A step of 0 repeats a value.
        for (i, to) in words.iter_mut().enumerate().take(count) {
            *to = word(values[i * step]);
        }
    }
    words
}

/// Row i becomes column i.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
fn transpose(words: &mut [Words; 16], instructions: Instructions) {
    #[cfg(target_arch = "x86_64")]
    if let Arch::V4(_) = arch(instructions) {
        // SAFETY: they have AVX-512.
        return unsafe { pairs::transpose(words) };
    }
    *words = std::array::from_fn(|i| words.map(|row| row[i]));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six rows from the 31st on are read, of which packed panels have two.
    #[test]
    fn rows_beyond_the_last_panel_are_not_read() {
        let values = vec![0.0_f32; 32 * 40];
        let mut packed = [const { Tile([[0; 16]; 16]) }; 6];
        let a = Operand::rows(Matrix::rows(&values[..], [40, 32]).transpose(), Instructions::F32);
        let words = packed.as_ptr_range();
        let packed = Packed { tiles: packed.as_mut_ptr(), panels: &(0..1), depth: &(0..3) };
        for line in 0..38 {
            let first = a.words(line, 2, packed);
            assert!(words.contains(&first.cast()), "row {line}");
        }
    }
}
