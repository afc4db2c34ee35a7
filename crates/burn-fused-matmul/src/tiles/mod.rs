//! Matmuls of operands packed in tiles, for AMX and AVX512-BF16. A tile is 16 × 16 words of 32 bits, 1 KiB. A word holds two
//! bf16 values that follow each other along K, the first in its lower half: what `tdpbf16ps` and `vdpbf16ps` multiply.
//!
//! ```text
//! tile of A: word (i, p) = (A[i, 2p], A[i, 2p + 1])      16 rows of 32 values
//! tile of B: word (p, j) = (B[2p, j], B[2p + 1, j])      32 values of 16 columns
//! ```
//!
//! Two tiles side by side are a panel of 32 rows of A or 32 columns of B, filled up with zeros. The values along K of
//! the first half of a panel come first, then those of the second.
//!
//! Threads share two lists of items: parts of the operands to pack, then blocks of C to compute from what all have packed.
//! Operands that are too large for the buffer are packed and multiplied in several phases. The values of an entry of C are
//! added up in an order that follows from K alone, so that results depend neither on threads nor on blocks.

pub(crate) mod amx;
pub(crate) mod avx512;
mod pack;

use crate::Output;
use crate::matrix::Matrix;
use crate::threads::on_threads;
use amx::Registers;
use pack::Lines;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of a panel of A, columns of a panel of B.
const PANEL: usize = 32;

/// Values along K in a tile.
const DEPTH: usize = 32;

/// A tile, aligned to a cache line as AMX likes it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Tile([u32; 256]);

/// Two panels and where their product goes.
struct Panels {
    /// The first tile of the first half of each panel, and of the second.
    a: [*const Tile; 2],
    b: [*const Tile; 2],
    /// Tiles to multiply.
    depth: usize,
    /// 32 × 32 values, of which a row begins `row` values after the one before.
    c: *mut f32,
    row: usize,
    /// Whether the product is added to C.
    add: bool,
}

/// Below so many multiplications one thread is faster than several.
const PARALLEL_FROM: usize = 1 << 23;

/// Tiles along K of a phase.
const PHASE_DEPTH: usize = 128;

/// Tiles of A, and of B, in a phase.
const PHASE_A: usize = 8 * 1024;
const PHASE_B: usize = 4 * 1024;

/// Tiles along K whose products are added up in registers: a panel of A stays in the first cache meanwhile.
const DEPTH_IN_REGISTERS: usize = 16;

/// The largest blocks of C, in panels: what they need of B stays in the second cache.
const BLOCK: [usize; 2] = [8, 16];

/// Tiles of an item of packing, about.
const ITEM: usize = 96;

thread_local! {
    /// What operands are packed into, kept for the next product.
    static BUFFER: Cell<Vec<Tile>> = const { Cell::new(Vec::new()) };
}

/// Multiplies, with AMX or with AVX512-BF16.
///
/// # Safety
///
/// That of [`Kernel::run`](crate::Kernel::run), no dimension is 0, and the instructions are available.
pub(crate) unsafe fn multiply(a: Matrix, b: Matrix, output: Output, is_amx: bool) {
    let ([m, k], [_, n]) = (a.shape(), b.shape());
    let parallel = m.saturating_mul(n).saturating_mul(k) >= PARALLEL_FROM;
    let threads = if parallel { rayon::current_num_threads() } else { 1 };
    let [rows, columns, depth] = [m.div_ceil(PANEL), n.div_ceil(PANEL), k.div_ceil(DEPTH)];
    // A sum that is rounded is complete first.
    let is_whole = matches!(output, Output::Bf16 { .. });
    let depth_step = if is_whole { depth } else { even(depth, PHASE_DEPTH) };
    let row_step = even(rows, PHASE_A / (2 * depth_step));
    let column_step = even(columns, PHASE_B / (2 * depth_step));
    let mut phases = Vec::new();
    for depth in steps(0..depth, depth_step) {
        for rows in steps(0..rows, row_step) {
            for columns in steps(0..columns, column_step) {
                phases.push(Phase::new(rows.clone(), columns, depth.clone(), threads));
            }
        }
    }
    let mut buffer = BUFFER.take();
    let count = 2 * depth_step * (row_step + column_step);
    // It never shrinks: the next matmul is often of the same size.
    if buffer.len() < count {
        buffer.resize(count, Tile([0; 256]));
    }
    let packed_a = buffer.as_mut_ptr();
    let packed_b = packed_a.wrapping_add(2 * depth_step * row_step);
    let product = Product {
        a: Lines { matrix: a, is_column: false },
        b: Lines { matrix: b.transpose(), is_column: true },
        output,
        is_amx,
        shape: [m, n],
        packed_a,
        packed_b,
        phases,
    };
    // SAFETY: the instructions are available, and C and the buffer are valid.
    on_threads(threads.min(product.phases[0].blocks()), || unsafe { product.work() });
    BUFFER.set(buffer);
}

/// `count` in equal steps of at most `largest`, or of 1: the length of a step.
fn even(count: usize, largest: usize) -> usize {
    count.div_ceil(count.div_ceil(largest.max(1)))
}

/// A range cut into steps.
fn steps(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(step).map(move |first| first..range.end.min(first + step))
}

/// What is packed and multiplied at a time.
struct Phase {
    /// Panels of A and of B.
    rows: Range<usize>,
    columns: Range<usize>,
    /// Tiles along K.
    depth: Range<usize>,
    /// Panels in an item of packing.
    item: usize,
    /// Panels of A and B in a block of C.
    block: [usize; 2],
    packing: List,
    computing: List,
}

/// Items that threads take in turn.
#[derive(Default)]
struct List {
    taken: AtomicUsize,
    done: AtomicUsize,
}

impl List {
    /// Works on items until all of `count` are taken.
    fn take(&self, count: usize, mut work: impl FnMut(usize)) {
        /// Counts an item as done, also when a panic ends it: others would wait for ever.
        struct Done<'a>(&'a AtomicUsize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Release);
            }
        }
        loop {
            let item = self.taken.fetch_add(1, Ordering::Relaxed);
            if item >= count {
                return;
            }
            let _done = Done(&self.done);
            work(item);
        }
    }

    /// Waits until all of `count` are done. They are taken: this ends when other threads do.
    fn wait(&self, count: usize) {
        let mut spins = 0;
        while self.done.load(Ordering::Acquire) < count {
            spins += 1;
            // Others finish soon, unless the system has taken their core away.
            if spins < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

impl Phase {
    fn new(rows: Range<usize>, columns: Range<usize>, depth: Range<usize>, threads: usize) -> Self {
        let mut phase = Self {
            item: (ITEM / (2 * depth.len())).max(1),
            block: BLOCK,
            packing: List::default(),
            computing: List::default(),
            rows,
            columns,
            depth,
        };
        // Several blocks a thread, so that none waits long for the last one.
        while threads > 1 && phase.blocks() < 4 * threads && phase.block != [2, 2] {
            let larger = if phase.block[1] > phase.block[0] { 1 } else { 0 };
            phase.block[larger] /= 2;
        }
        phase
    }

    fn blocks(&self) -> usize {
        self.rows.len().div_ceil(self.block[0]) * self.columns.len().div_ceil(self.block[1])
    }
}

struct Product<'a> {
    a: Lines<'a>,
    b: Lines<'a>,
    output: Output<'a>,
    is_amx: bool,
    /// M and N.
    shape: [usize; 2],
    packed_a: *mut Tile,
    packed_b: *mut Tile,
    phases: Vec<Phase>,
}

// SAFETY: threads write to different tiles of the buffer and to different entries of C, since each item is taken once. They
// read what another has written after a wait for all that write.
unsafe impl Sync for Product<'_> {}

impl Product<'_> {
    /// Works until nothing is left to be taken.
    ///
    /// # Safety
    ///
    /// The instructions must be available, and C and the buffer valid.
    unsafe fn work(&self) {
        // SAFETY: the caller's promise.
        let registers = self.is_amx.then(|| unsafe { Registers::new() });
        let mut before: Option<&Phase> = None;
        for phase in &self.phases {
            // The buffer is written again: nobody may read it any more.
            if let Some(before) = before {
                before.computing.wait(before.blocks());
            }
            // Consecutive phases with the same part of A share it.
            let packs_a =
                before.is_none_or(|before| (&before.rows, &before.depth) != (&phase.rows, &phase.depth));
            let a_items = if packs_a { phase.rows.len().div_ceil(phase.item) } else { 0 };
            let items = a_items + phase.columns.len().div_ceil(phase.item);
            phase.packing.take(items, |item| {
                // SAFETY: each item is a part of the buffer of its own.
                unsafe {
                    match item.checked_sub(a_items) {
                        None => pack(&self.a, &phase.rows, phase, item, self.packed_a),
                        Some(item) => pack(&self.b, &phase.columns, phase, item, self.packed_b),
                    }
                }
            });
            phase.packing.wait(items);
            phase.computing.take(phase.blocks(), |block| {
                // SAFETY: all is packed, and each block is a part of C of its own.
                unsafe { self.compute(phase, block, registers.as_ref()) }
            });
            before = Some(phase);
        }
    }

    /// A block of C.
    ///
    /// # Safety
    ///
    /// That of [`work`](Self::work); the phase's panels are packed, and nobody else uses the block.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn compute(&self, phase: &Phase, block: usize, registers: Option<&Registers>) {
        let [m, n] = self.shape;
        let depth = phase.depth.len();
        let down = phase.rows.len().div_ceil(phase.block[0]);
        let rows = part(&phase.rows, block % down, phase.block[0]);
        let columns = part(&phase.columns, block / down, phase.block[1]);
        let step = match self.output {
            Output::F32 { .. } => even(depth, DEPTH_IN_REGISTERS),
            Output::Bf16 { .. } => depth,
        };
        // 32 × 32 sums that are not C's, or not all.
        let mut sums = [0.0; PANEL * PANEL];
        for chunk in steps(0..depth, step) {
            for row in rows.clone() {
                for column in columns.clone() {
                    let halves = |packed: *const Tile, panel: usize| {
                        [0, 1].map(|half| packed.wrapping_add((2 * panel + half) * depth + chunk.start))
                    };
                    let a = halves(self.packed_a, row - phase.rows.start);
                    let b = halves(self.packed_b, column - phase.columns.start);
                    // SAFETY: the panels are packed, and 32 rows of 32 values are those of C or of `sums`.
                    let multiply = |c, row, add| unsafe {
                        let panels = Panels { a, b, depth: chunk.len(), c, row, add };
                        match registers {
                            Some(registers) => registers.multiply(panels),
                            None => avx512::multiply(panels),
                        }
                    };
                    let (first_row, first_column) = (PANEL * row, PANEL * column);
                    let (height, width) = (PANEL.min(m - first_row), PANEL.min(n - first_column));
                    let place = first_row * n + first_column;
                    match self.output {
                        Output::F32 { c, add } => {
                            let add = add || phase.depth.start + chunk.start > 0;
                            let c = c.wrapping_add(place);
                            if (height, width) == (PANEL, PANEL) {
                                prefetch(c.wrapping_add(PANEL), n);
                                multiply(c, n, add);
                                continue;
                            }
                            // At an edge, beside C, in the same order. SAFETY: these values are C's and this block's, and
                            // initialised where they are read.
                            let rows = (0..height).map(|i| (c.wrapping_add(i * n), PANEL * i));
                            if add {
                                for (c, i) in rows.clone() {
                                    unsafe {
                                        c.copy_to_nonoverlapping(sums[i..][..width].as_mut_ptr(), width)
                                    };
                                }
                            }
                            multiply(sums.as_mut_ptr(), PANEL, add);
                            for (c, i) in rows {
                                unsafe { c.copy_from_nonoverlapping(sums[i..][..width].as_ptr(), width) };
                            }
                        }
                        Output::Bf16 { c, bias } => {
                            multiply(sums.as_mut_ptr(), PANEL, false);
                            let bias = bias.map(|bias| &bias[first_column..][..width]);
                            for (i, sums) in sums.chunks_exact(PANEL).enumerate().take(height) {
                                // SAFETY: these values are C's and this block's.
                                unsafe {
                                    avx512::narrow(&sums[..width], bias, c.wrapping_add(place + i * n))
                                };
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Fetches 32 rows of 32 values, which are written next, into the second cache.
fn prefetch(c: *const f32, row: usize) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    for i in 0..PANEL {
        let row = c.wrapping_add(i * row).cast::<i8>();
        // SAFETY: every address may be prefetched.
        unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(row);
            _mm_prefetch::<_MM_HINT_ET0>(row.wrapping_add(64));
        }
    }
}

/// Step `index` of a range.
fn part(range: &Range<usize>, index: usize, step: usize) -> Range<usize> {
    let first = range.start + index * step;
    first..range.end.min(first + step)
}

/// Packs some panels of those in a phase.
///
/// # Safety
///
/// The CPU has what [`avx512`] needs; `to` has room for all panels of the phase, and nobody else uses those of this item.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn pack(lines: &Lines, all: &Range<usize>, phase: &Phase, item: usize, to: *mut Tile) {
    let depth = phase.depth.len();
    let halves = part(&(2 * all.start..2 * all.end), item, 2 * phase.item);
    let tile = |half: usize, k: usize| {
        let place = (half - 2 * all.start) * depth + (k - phase.depth.start);
        // SAFETY: the caller's promise.
        lines.pack(16 * half, DEPTH * k, unsafe { &mut *to.add(place) });
    };
    // In the order in which the operand is in memory.
    if lines.are_rows_in_memory() {
        halves.for_each(|half| phase.depth.clone().for_each(|k| tile(half, k)));
    } else {
        phase.depth.clone().for_each(|k| halves.clone().for_each(|half| tile(half, k)));
    }
}
