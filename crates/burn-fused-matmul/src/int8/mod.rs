//! Matmuls with int8 weights. Each row of A is quantised as it is packed, with a step s and a zero point z of its own:
//! A\[i, k\] ≈ s (q − z) with q in 0..=255. With a weight w = c · v, v an integer and c shared by a block of rows of its column,
//!
//! ```text
//! A · W + bias = s (Σ_blocks c Σ q v  −  z Σ_blocks c Σ v) + bias
//! ```
//!
//! in which the inner sums are integers, and exact. A word of 32 bits holds four values that follow each other along K:
//!
//! ```text
//! panel of A   steps of 32 rows, zero points of 32 rows, then each row's words
//! panel of W   Σ c Σ v of 32 columns, the blocks' c of 32 columns each, then 32 columns' words for each step along K
//! ```
//!
//! Blocks are filled up to whole words. A panel of W is a little over a tile for each 8 words, one of A as well.

mod columns;
mod kernels;

use crate::matrix::{Matrix, Values};
use crate::sharing::{Packed, Worker, share_product};
use crate::threads::on_threads;
#[cfg(target_arch = "x86_64")]
use crate::tiles::amx::Registers;
use crate::tiles::{PANEL, Tile, prefetch};
use columns::interleave_block;
pub use kernels::Int8Kernel;
use kernels::Panels;
use pulp::Arch;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// 8-bit integers of which each column has a scale for each so many rows: entry (k, j) is values\[k · N + j\] ·
/// scales\[k / block · N + j\].
///
/// ```
/// use burn_fused_matmul::{Int8Kernel, Int8Matrix, Matrix, product_int8};
///
/// let weight = Int8Matrix::new(&[1, -2, 3, 127], &[0.5, 1.0], [2, 2], 2);
/// let x = Matrix::rows(&[0.0, 51.0][..], [1, 2]); // quantised in steps of 51/255
/// let y = product_int8(x, weight, Some(&[0.0, 3.0]), Int8Kernel::best());
/// assert_eq!(y, [76.5, 6480.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Int8Matrix<'a> {
    values: &'a [i8],
    scales: &'a [f32],
    shape: [usize; 2],
    block: usize,
    /// In place of values and scales.
    packed: Option<&'a PackedInt8Matrix>,
}

impl<'a> Int8Matrix<'a> {
    /// The longest block: its sums fit into 32 bits.
    pub const LONGEST_BLOCK: usize = 1 << 16;

    /// A row-major matrix with a scale for each column and each `block` rows.
    ///
    /// # Panics
    ///
    /// If there are not as many values as entries, the rows are not a number of whole blocks of 1 to
    /// [`LONGEST_BLOCK`](Self::LONGEST_BLOCK) rows, or there is not a scale for each column of each block.
    pub fn new(values: &'a [i8], scales: &'a [f32], shape: [usize; 2], block: usize) -> Self {
        let [rows, columns] = shape;
        assert_eq!(Some(values.len()), rows.checked_mul(columns), "a value for each entry of {shape:?}");
        let is_whole = (1..=Self::LONGEST_BLOCK).contains(&block) && rows.is_multiple_of(block);
        assert!(is_whole, "{rows} rows are not a number of whole blocks of {block}");
        assert_eq!(scales.len(), rows / block * columns, "a scale for each column of each block");
        Self { values, scales, shape, block, packed: None }
    }

    /// Packs the panel of 32 columns of W from `line` on.
    #[inline(always)]
    fn pack(&self, line: usize, to: &mut [u32]) {
        let Self { values, scales, shape: [k, n], block, .. } = *self;
        let (blocks, words) = (k / block, block.div_ceil(4));
        let width = PANEL.min(n - line);
        let (to_totals, to) = to.split_at_mut(PANEL);
        let (to_scales, to) = to.split_at_mut(PANEL * blocks);
        let mut totals = [0.0_f32; PANEL];
        for index in 0..blocks {
            let to = &mut to[PANEL * index * words..][..PANEL * words];
            let sums = interleave_block(&values[index * block * n..][..block * n], line, [n, width], to);
            let mut scales_of_block = [0.0; PANEL];
            scales_of_block[..width].copy_from_slice(&scales[index * n + line..][..width]);
            // Over references: what arrays' own methods call is not compiled for the CPU.
            for (to, scale) in to_scales[PANEL * index..].iter_mut().zip(&scales_of_block) {
                *to = scale.to_bits();
            }
            // In the order in which kernels add up products.
            for ((total, &sum), scale) in totals.iter_mut().zip(&sums).zip(&scales_of_block) {
                *total = scale.mul_add(sum as f32, *total);
            }
        }
        for (to, total) in to_totals.iter_mut().zip(&totals) {
            *to = total.to_bits();
        }
    }
}

/// Weights in 8 bits that stay as kernels read them: those that many products share. Results have the same bits.
///
/// ```
/// use burn_fused_matmul::{Int8Kernel, Int8Matrix, Matrix, PackedInt8Matrix, product_int8};
///
/// let weight = Int8Matrix::new(&[1; 64 * 32], &[0.5; 32], [64, 32], 64);
/// let x = Matrix::rows(&[0.25; 64][..], [1, 64]);
/// let packed = PackedInt8Matrix::new(weight).expect("whole panels");
/// assert_eq!(product_int8(x, &packed, None, Int8Kernel::best()), product_int8(x, weight, None, Int8Kernel::best()));
/// ```
#[derive(Clone)]
pub struct PackedInt8Matrix {
    /// Panel after panel.
    tiles: Vec<Tile>,
    shape: [usize; 2],
    block: usize,
}

impl PackedInt8Matrix {
    /// The weights and their scales packed for every kernel, in 1 + 4 / block of the memory; `None` where they would take more: if
    /// 32 does not divide the columns, or 4 the block, or there are none.
    pub fn new(weight: Int8Matrix) -> Option<Self> {
        let Int8Matrix { shape: [k, n], block, .. } = weight;
        if let Some(packed) = weight.packed {
            return Some(packed.clone());
        }
        if k == 0 || n == 0 || !n.is_multiple_of(PANEL) || !block.is_multiple_of(4) {
            return None;
        }
        let len = panel_len(k / block, block.div_ceil(4));
        let mut tiles = vec![Tile([[0; 16]; 16]); (len * n / PANEL).div_ceil(WORDS_OF_TILE)];
        let items = Mutex::new(words_mut(&mut tiles).chunks_exact_mut(len).take(n / PANEL).enumerate());
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        on_threads(rayon::current_num_threads(), || {
            while let Some((panel, to)) = next() {
                weight.pack(PANEL * panel, to);
            }
        });
        Some(Self { tiles, shape: [k, n], block })
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The bytes of its values, row by row.
    pub fn to_rows(&self) -> Vec<u8> {
        let ([k, n], blocks) = (self.shape, self.shape[0] / self.block);
        let mut rows = vec![0; k * n];
        let panels = words(&self.tiles).chunks_exact(panel_len(blocks, self.block / 4));
        for (panel, words) in panels.enumerate().take(n / PANEL) {
            let words = words[PANEL * (1 + blocks)..].chunks_exact(PANEL);
            for (fours, words) in rows.chunks_exact_mut(4 * n).zip(words) {
                for (column, word) in words.iter().enumerate() {
                    for (row, value) in word.to_ne_bytes().into_iter().enumerate() {
                        fours[row * n + PANEL * panel + column] = value;
                    }
                }
            }
        }
        rows
    }
}

impl fmt::Debug for PackedInt8Matrix {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("PackedInt8Matrix").field("shape", &self.shape).field("block", &self.block).finish()
    }
}

impl<'a> From<&'a PackedInt8Matrix> for Int8Matrix<'a> {
    fn from(packed: &'a PackedInt8Matrix) -> Self {
        let PackedInt8Matrix { shape, block, .. } = *packed;
        Self { values: &[], scales: &[], shape, block, packed: Some(packed) }
    }
}

/// Words of a panel of W: a multiple of a cache line.
fn panel_len(blocks: usize, words: usize) -> usize {
    PANEL * (1 + blocks + blocks * words)
}

const WORDS_OF_TILE: usize = size_of::<Tile>() / size_of::<u32>();

fn words(tiles: &[Tile]) -> &[u32] {
    // SAFETY: a tile is so many words.
    unsafe { std::slice::from_raw_parts(tiles.as_ptr().cast(), tiles.len() * WORDS_OF_TILE) }
}

fn words_mut(tiles: &mut [Tile]) -> &mut [u32] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(tiles.as_mut_ptr().cast(), tiles.len() * WORDS_OF_TILE) }
}

/// The product A · W + bias, row-major, of A with its rows quantised to int8 as the weights are. [`Int8Matrix`] has an example.
///
/// Each row of A is quantised to 256 values, from its smallest or 0 to its largest or 0. Sums of a block are exact in 32 bits before they
/// are rounded to f32, so every kernel returns the same bits. A row with a NaN or an infinite value is NaN in the output.
///
/// # Shapes
///
/// - `a`: [M, K], `weight`: [K, N], `bias`: `[N]`
/// - output: [M, N]
///
/// # Panics
///
/// If the columns of `a` are not as many as the rows of `weight`, or `bias` has not N values.
pub fn product_int8<'a>(
    a: Matrix,
    weight: impl Into<Int8Matrix<'a>>,
    bias: Option<&[f32]>,
    kernel: Int8Kernel,
) -> Vec<f32> {
    let weight = weight.into();
    let ([m, columns], [k, n]) = (a.shape(), weight.shape);
    assert_eq!(columns, k, "the columns of A must be as many as the rows of the weight");
    if let Some(bias) = bias {
        assert_eq!(bias.len(), n, "the bias must have as many values as the weight has columns");
    }
    let count = m.checked_mul(n).expect("a product that fits into memory");
    if count == 0 || k == 0 {
        return bias.map_or_else(|| vec![0.0; n], <[f32]>::to_vec).repeat(m);
    }
    let mut c = Vec::with_capacity(count);
    let (blocks, words) = (k / weight.block, weight.block.div_ceil(4));
    let kernel = kernel.for_blocks(words);
    let lens = [PANEL * (2 + blocks * words), panel_len(blocks, words)];
    let [a_tiles, b_tiles] = lens.map(|len| len.div_ceil(WORDS_OF_TILE));
    let operands = [(a_tiles, true), (b_tiles, weight.packed.is_none())];
    let product = Product { a, weight, bias, c: c.as_mut_ptr(), kernel, blocks, words, lens };
    // Four values are multiplied in the time of one in f32; all of K is in one phase.
    share_product([m, k / 4, n], operands, [1, 1], false, kernel.rows(), |worker| product.work(&worker));
    // SAFETY: there is room for M · N values, and each was written by a block.
    unsafe { c.set_len(count) };
    c
}

struct Product<'a> {
    a: Matrix<'a>,
    weight: Int8Matrix<'a>,
    bias: Option<&'a [f32]>,
    c: *mut f32,
    kernel: Int8Kernel,
    /// Blocks along K, and words of each.
    blocks: usize,
    words: usize,
    /// Words of a panel of A and of one of W, each a multiple of a cache line.
    lens: [usize; 2],
}

// SAFETY: threads write to different entries of C, since each block is taken once.
unsafe impl Sync for Product<'_> {}

impl Product<'_> {
    /// A panel that is packed.
    fn panel(&self, operand: usize, packed: Packed, panel: usize) -> *mut u32 {
        if let (1, Some(kept)) = (operand, self.weight.packed) {
            return words(&kept.tiles)[panel * self.lens[1]..].as_ptr().cast_mut();
        }
        let words = packed.tiles.cast::<u32>();
        words.wrapping_add((panel - packed.panels.start) * self.lens[operand])
    }

    fn work(&self, worker: &Worker) {
        // SAFETY: the kernel exists only where AMX does.
        #[cfg(target_arch = "x86_64")]
        let _registers = self.kernel.is_amx().then(|| unsafe { Registers::new() });
        worker.work(
            |operand, packed| match (operand, self.weight.packed) {
                (1, Some(_)) => 0,
                _ => packed.panels.len(),
            },
            |operand, packed, item| {
                let panel = packed.panels.start + item;
                // SAFETY: an item is a panel of its own, of the buffer, whose words are initialised.
                let to = unsafe {
                    std::slice::from_raw_parts_mut(self.panel(operand, packed, panel), self.lens[operand])
                };
                let line = PANEL * panel;
                // What consumes `to` is called once, and its body is what is compiled for the CPU. A closure that could be called
                // again would be called through a function that is not.
                Arch::new().dispatch(
                    #[inline(always)]
                    move || {
                        let to = to;
                        if operand == 0 { self.pack_rows(line, to) } else { self.weight.pack(line, to) }
                    },
                );
            },
            |rows, packed| self.compute(rows, packed),
        );
    }

    /// A block of C.
    fn compute(&self, rows: &Range<usize>, [a, b]: [Packed; 2]) {
        let ([m, _], [_, n]) = (self.a.shape(), self.weight.shape);
        // Rows of A stay in a near cache while panels of W pass by.
        for row in (PANEL * rows.start..m.min(PANEL * rows.end)).step_by(self.kernel.rows()) {
            for panel in b.panels.clone() {
                let column = PANEL * panel;
                let panels = Panels {
                    a: self.panel(0, a, row / PANEL).cast_const(),
                    row: row % PANEL,
                    b: self.panel(1, b, panel).cast_const(),
                    blocks: self.blocks,
                    words: self.words,
                    bias: self.bias.map(|bias| &bias[column..n.min(column + PANEL)]),
                    c: self.c.wrapping_add(row * n + column),
                    to_row: n,
                    shape: [self.kernel.rows().min(m - row), PANEL.min(n - column)],
                };
                prefetch(panels.c, n, [panels.shape[0], PANEL]);
                // SAFETY: the panels are packed, these entries of C are this block's, and for AMX this thread has registers.
                unsafe { self.kernel.multiply(&panels) };
            }
        }
    }

    /// Packs the panel of 32 rows of A from `line` on.
    #[inline(always)]
    fn pack_rows(&self, line: usize, to: &mut [u32]) {
        let Self { a, weight: Int8Matrix { block, .. }, blocks, words, .. } = *self;
        let [m, k] = a.shape();
        let (heads, words_of_rows) = to.split_at_mut(2 * PANEL);
        let len = blocks * words;
        // Rows beyond the last are multiplied, whatever they are, and their products not written.
        for i in 0..PANEL.min(m - line) {
            let to = &mut words_of_rows[i * len..][..len];
            let start = (line + i) * a.strides[0];
            let row: Cow<[f32]> = match a.values {
                Values::F32(all) if a.strides[1] == 1 => Cow::Borrowed(&all[start..][..k]),
                Values::F32(all) => (0..k).map(|k| all[start + k * a.strides[1]]).collect(),
                Values::Bf16(all) => (0..k).map(|k| all[start + k * a.strides[1]].to_f32()).collect(),
            };
            let (step, zero) = step_and_zero(&row);
            (heads[i], heads[PANEL + i]) = (step.to_bits(), zero.to_bits());
            let inverse = if step > 0.0 { step.recip() } else { 0.0 };
            for (values, to) in row.chunks(block).zip(to.chunks_exact_mut(words)) {
                quantise(values, inverse, zero, to);
            }
        }
    }
}

/// The step of a row's 256 values, and the one that stands for 0. The step is NaN if a value is not finite.
#[inline(always)]
fn step_and_zero(row: &[f32]) -> (f32, f32) {
    // Lane by lane, which is a vector at a time.
    let (mut least, mut most, mut wrong) = ([0.0_f32; 16], [0.0_f32; 16], [0.0_f32; 16]);
    let mut add = |lane: usize, x: f32| {
        least[lane] = if x < least[lane] { x } else { least[lane] };
        most[lane] = if x > most[lane] { x } else { most[lane] };
        wrong[lane] += x * 0.0; // NaN if it is not finite
    };
    let (chunks, rest) = row.as_chunks::<16>();
    for chunk in chunks {
        (0..16).for_each(|lane| add(lane, chunk[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, &x)| add(lane, x));
    let (least, most) = (least.into_iter().fold(0.0, f32::min), most.into_iter().fold(0.0, f32::max));
    let wrong: f32 = wrong.into_iter().sum();
    let step = most / 255.0 - least / 255.0;
    // Steps too small for a reciprocal are those of rows of zeros.
    let step = if step < f32::MIN_POSITIVE { 0.0 } else { step };
    let zero = if step > 0.0 { (-least / step).round_ties_even() } else { 0.0 };
    (step + wrong, zero)
}

/// A block of a row, four values to a word.
#[inline(always)]
fn quantise(values: &[f32], inverse: f32, zero: f32, to: &mut [u32]) {
    /// Added to a small float, this rounds it to nearest, ties to even, and the integer is in its lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let byte = |x: f32| {
        let x = x * inverse + zero;
        let x = if x > 255.0 { 255.0 } else { x };
        let x = if x > 0.0 { x } else { 0.0 }; // also NaN
        (x + ROUND).to_bits() as u8
    };
    let (fours, rest) = values.as_chunks::<4>();
    for (to, four) in to.iter_mut().zip(fours) {
        *to = u32::from_ne_bytes(four.map(byte));
    }
    if let (false, Some(to)) = (rest.is_empty(), to.last_mut()) {
        // The weights beside what fills up a word are 0.
        let mut last = [0; 4];
        last.iter_mut().zip(rest).for_each(|(to, &x)| *to = byte(x));
        *to = u32::from_ne_bytes(last);
    }
}
