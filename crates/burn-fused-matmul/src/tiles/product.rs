//! A product, block by block.

#[cfg(target_arch = "x86_64")]
use super::amx::Registers;
use super::operand::{Operand, stride};
use super::{Instructions, PANEL, Panels, Rounding, Tile, fetch, in_place};
use crate::Output;
use crate::matrix::{Matrix, RightMatrix};
use crate::sharing::{Packed, Worker, even, share_product};
use std::ops::Range;

/// Tiles along K of a phase, whose products are added up in registers: to read sums again costs more than to read a few rows of A from
/// the second cache. Half and twice as many take 0.94 to 1.06 of the time on AVX-512.
const DEPTH: usize = 96;

/// Fewer tiles along K than this are multiplied before C has come from memory. Half and twice as many take 0.91 to 1.07 of the time
/// on AVX-512.
const SHORT: usize = 12;

/// The most entries of C that are still in the second cache: 1 MiB. Half and twice as many take 0.91 to 1.05 of the time on AVX-512.
const LARGE: usize = 1 << 18;

/// Multiplies, with as many columns in A as rows in B.
///
/// # Safety
///
/// The instructions must be available. The output must be valid for writes of M · N values, and if it is added to, for reads of as
/// many that are initialised. They are initialised when this returns. A bias must have N values.
pub(crate) unsafe fn multiply(a: Matrix, b: RightMatrix, output: Output, instructions: Instructions) {
    let ([m, k], [_, n]) = (a.shape(), b.shape());
    if m == 0 || n == 0 {
        return;
    }
    // A sum without terms is that of a tile of zeros.
    let depth = k.div_ceil(16 * instructions.values()).max(1);
    // A sum that is rounded is complete first, in registers or, if there are many steps, beside C.
    let is_whole = match output {
        Output::Bf16 { c, bias } if depth > 4 * DEPTH => {
            let mut sums = vec![0.0; m * n];
            // SAFETY: the caller's promise; there are as many sums as entries.
            unsafe {
                multiply(a, b, Output::F32 { c: sums.as_mut_ptr(), add: false }, instructions);
                let sums = sums.as_ptr();
                // On one thread: a value for so many multiplications.
                return Rounding { sums, to_sums: n, bias, c, to_row: n, shape: [m, n] }.round(instructions);
            }
        }
        Output::Bf16 { .. } => true,
        Output::F32 { .. } => false,
    };
    let depth_step = if is_whole { depth } else { even(depth, DEPTH) };
    let b = Operand::columns(b, instructions, m);
    let a =
        if b.is_in_strips() { Operand::packed_rows(a, instructions) } else { Operand::rows(a, instructions) };
    let operands = [&a, &b].map(|operand| (2 * stride(depth_step), !operand.is_in_place()));
    let words = k.div_ceil(instructions.values());
    let in_strips = b.is_in_strips();
    let product = Product { a, b, output, instructions, shape: [m, n], words };
    let height = instructions.block()[0];
    // SAFETY: the instructions are available, and C is valid.
    share_product([m, k, n], operands, [depth, depth_step], in_strips, height, |worker| unsafe {
        product.work(&worker)
    });
}

struct Product<'a> {
    a: Operand<'a>,
    b: Operand<'a>,
    output: Output<'a>,
    instructions: Instructions,
    /// M and N.
    shape: [usize; 2],
    /// Words along K.
    words: usize,
}

// SAFETY: threads write to different entries of C, since each block is taken once.
unsafe impl Sync for Product<'_> {}

/// Where a thread keeps sums that are not C's, or not all: of this block, and of the one before, which may not be rounded yet.
struct Pending<'a> {
    sums: [*mut f32; 2],
    before: Option<Rounding<'a>>,
}

impl Product<'_> {
    /// Works until nothing is left to be taken.
    ///
    /// # Safety
    ///
    /// The instructions must be available, and C and the worker's buffers valid.
    unsafe fn work(&self, worker: &Worker) {
        // SAFETY: the caller's promise.
        #[cfg(target_arch = "x86_64")]
        let _registers = (self.instructions == Instructions::Amx).then(|| unsafe { Registers::new() });
        // Of 32 × 32 sums each.
        let mut sums = [[Tile([[0; 16]; 16]); 4]; 2];
        let sums = sums.each_mut().map(|tiles| tiles.as_mut_ptr().cast());
        let mut pending = Pending { sums, before: None };
        let operands = [&self.a, &self.b];
        worker.work(
            |operand, packed| operands[operand].items(packed),
            // SAFETY: each item is a part of the buffer of its own.
            |operand, packed, item| unsafe { operands[operand].pack(item, packed) },
            // SAFETY: all is packed, and each block is a part of C of its own.
            |rows, packed| unsafe { self.compute(rows, packed, &mut pending) },
        );
        if let Some(before) = pending.before {
            // SAFETY: these values of C are this thread's.
            unsafe { before.round(self.instructions) };
        }
    }

    /// A block of C: some of A's packed rows, and the packed columns.
    ///
    /// # Safety
    ///
    /// That of [`work`](Self::work); both are packed, nobody else uses the block, and for AMX this thread has registers.
    unsafe fn compute<'a>(&'a self, rows: &Range<usize>, [a, b]: [Packed; 2], pending: &mut Pending<'a>) {
        let [height, width] = self.instructions.block();
        // From one line to the next of those that `Panels` asks for.
        let lines = if height == PANEL { 16 } else { 1 };
        let [m, n] = self.shape;
        let (end, columns_end) = (m.min(PANEL * rows.end), PANEL * b.panels.end);
        let (first, depth) = (a.depth.start, a.depth.len());
        let words = self.words.saturating_sub(16 * first).min(16 * depth);
        if self.b.is_in_strips() {
            let rows = PANEL * rows.start..end;
            // SAFETY: the caller's promise.
            return unsafe {
                in_place::multiply([&self.a, &self.b], [a, b], rows, words, self.output, n, self.instructions)
            };
        }
        for row in (PANEL * rows.start..end).step_by(height) {
            let a_words = std::array::from_fn(|i| self.a.words(row + lines * i, first, a));
            for column in (PANEL * b.panels.start..n.min(columns_end)).step_by(width) {
                // One by one: an array that a call fills is waited for.
                let b_word = |half| self.b.words(column + half, first, b);
                let b_words = [b_word(0), b_word(16), b_word(32), b_word(48)];
                let width = width.min(columns_end - column);
                let (high, wide) = (height.min(end - row), width.min(n - column));
                let height = self.instructions.rows(high);
                // SAFETY: the panels are packed, and rows of `width` values are those of C or of `sums`.
                let multiply = |c, row, add, before: Option<&Rounding>| unsafe {
                    let (a, b) = (a_words, b_words);
                    let panels = Panels { a, b, words, c, row, height, width, add };
                    self.instructions.multiply(panels, before)
                };
                let sums = pending.sums[0];
                match self.output {
                    Output::F32 { c, add } => {
                        let add = add || first > 0;
                        let c = c.wrapping_add(row * n + column);
                        if (high, wide) == (height, width) {
                            // Few steps do not hide that a large C is far away.
                            if depth < SHORT && m * n > LARGE {
                                prefetch(c.wrapping_add(width), n, [height, width]);
                            }
                            multiply(c, n, add, None);
                            continue;
                        }
                        // At an edge, beside C, in the same order.
                        let rows = (0..high).map(|i| (c.wrapping_add(i * n), sums.wrapping_add(width * i)));
                        // SAFETY: these values are C's and this block's, and initialised where they are read.
                        unsafe {
                            if add {
                                rows.clone().for_each(|(c, sums)| c.copy_to_nonoverlapping(sums, wide));
                            }
                            multiply(sums, width, add, None);
                            rows.for_each(|(c, sums)| c.copy_from_nonoverlapping(sums, wide));
                        }
                    }
                    Output::Bf16 { c, bias } => {
                        // AMX does it in the time of the next block.
                        multiply(sums, width, false, pending.before.as_ref());
                        pending.before = Some(Rounding {
                            sums,
                            to_sums: width,
                            bias: bias.map(|bias| &bias[column..][..wide]),
                            c: c.wrapping_add(row * n + column),
                            to_row: n,
                            shape: [high, wide],
                        });
                        pending.sums.swap(0, 1);
                    }
                }
            }
        }
    }
}

/// Fetches so many rows and columns, which are written next.
pub(crate) fn prefetch(c: *const f32, row: usize, [rows, columns]: [usize; 2]) {
    for i in 0..rows {
        (0..columns).step_by(16).for_each(|column| fetch::<1>(c.wrapping_add(i * row + column).cast()));
    }
}
