//! A product, shared by threads.

use super::operand::{Operand, part, stride};
use super::{Instructions, PANEL, Panels, Registers, Tile, fetch};
use crate::Output;
use crate::matrix::Matrix;
use crate::threads::on_threads;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below so many multiplications one thread is faster than several.
const PARALLEL_FROM: usize = 1 << 23;

/// Tiles along K of a phase.
const PHASE_DEPTH: usize = 128;

/// Tiles of A, and of B, that are packed in a phase: they stay in the third cache until they are read.
pub(crate) const PHASE: usize = 4 * 1024;

/// Tiles along K whose products are added up in registers: rows of A stay in the first cache meanwhile.
const DEPTH_IN_REGISTERS: usize = 24;

/// The most panels of A, and of B, in a block of C: what it needs of B stays in the second cache.
const LARGEST_BLOCK: usize = 8;

thread_local! {
    /// What operands are packed into, kept for the next product.
    static BUFFER: Cell<Vec<Tile>> = const { Cell::new(Vec::new()) };
}

/// Multiplies.
///
/// # Safety
///
/// That of [`Kernel::run`](crate::Kernel::run), there are entries in C, and the instructions are available.
pub(crate) unsafe fn multiply(a: Matrix, b: Matrix, output: Output, instructions: Instructions) {
    let ([m, k], [_, n]) = (a.shape(), b.shape());
    let threads = threads([m, k, n]);
    // A sum without terms is that of a tile of zeros.
    let depth = k.div_ceil(16 * instructions.values()).max(1);
    // A sum that is rounded is complete first.
    let is_whole = matches!(output, Output::Bf16 { .. });
    let depth_step = if is_whole { depth } else { even(depth, PHASE_DEPTH) };
    let tiles = 2 * stride(depth_step);
    // Panels in a phase, and those that are packed.
    let panels = |operand: &Operand, lines: usize| {
        let panels = lines.div_ceil(PANEL);
        if operand.is_in_place() { (panels, panels, 0) } else { (panels, even(panels, PHASE / tiles), 1) }
    };
    let (mut a, mut b) = (Operand::rows(a, instructions), Operand::columns(b, instructions, m));
    let (rows, row_step, packs_a) = panels(&a, m);
    let (columns, column_step, packs_b) = panels(&b, n);
    let phases = phases([rows, columns, depth], [row_step, column_step, depth_step], threads);
    with_buffer([packs_a * tiles * row_step, packs_b * tiles * column_step], |packed| {
        [a.packed, b.packed] = packed;
        let words = k.div_ceil(instructions.values());
        let product = Product { a, b, output, instructions, shape: [m, n], words, phases };
        // SAFETY: the instructions are available, and C and the buffer are valid.
        on_threads(threads.min(product.phases[0].blocks()), || unsafe { product.work() });
    });
}

/// How many threads a product of M, K and N is worth.
pub(crate) fn threads([m, k, n]: [usize; 3]) -> usize {
    let is_parallel = m.saturating_mul(n).saturating_mul(k) >= PARALLEL_FROM;
    if is_parallel { rayon::current_num_threads() } else { 1 }
}

/// Phases of so many panels of A and of B and tiles along K, in steps.
pub(crate) fn phases(
    [rows, columns, depth]: [usize; 3],
    [row_step, column_step, depth_step]: [usize; 3],
    threads: usize,
) -> Vec<Phase> {
    let mut phases = Vec::new();
    for depth in steps(0..depth, depth_step) {
        for rows in steps(0..rows, row_step) {
            for columns in steps(0..columns, column_step) {
                phases.push(Phase::new(rows.clone(), columns, depth.clone(), threads));
            }
        }
    }
    phases
}

/// Calls `f` with room for so many tiles of A and of B.
pub(crate) fn with_buffer([a_tiles, b_tiles]: [usize; 2], f: impl FnOnce([*mut Tile; 2])) {
    let mut buffer = BUFFER.take();
    // It never shrinks: the next matmul is often of the same size.
    if buffer.len() < a_tiles + b_tiles {
        buffer.resize(a_tiles + b_tiles, Tile([[0; 16]; 16]));
    }
    let a = buffer.as_mut_ptr();
    f([a, a.wrapping_add(a_tiles)]);
    BUFFER.set(buffer);
}

/// `count` in equal steps of at most `largest`, or of 1: the length of a step.
pub(crate) fn even(count: usize, largest: usize) -> usize {
    count.div_ceil(count.div_ceil(largest.max(1)))
}

/// A range cut into steps.
fn steps(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(step).map(move |first| first..range.end.min(first + step))
}

/// What is packed and multiplied at a time.
pub(crate) struct Phase {
    /// Panels of A and of B.
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
    /// Tiles along K.
    depth: Range<usize>,
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
        let block = block([rows.len(), columns.len()], threads);
        Self { rows, columns, depth, block, packing: List::default(), computing: List::default() }
    }

    /// The panels of operand 0, A, or 1, B.
    pub(crate) fn panels(&self, operand: usize) -> &Range<usize> {
        [&self.rows, &self.columns][operand]
    }

    /// The panels of A and of B that block `index` multiplies.
    pub(crate) fn block(&self, index: usize) -> [Range<usize>; 2] {
        let down = self.rows.len().div_ceil(self.block[0]);
        [part(&self.rows, index % down, self.block[0]), part(&self.columns, index / down, self.block[1])]
    }

    pub(crate) fn blocks(&self) -> usize {
        self.rows.len().div_ceil(self.block[0]) * self.columns.len().div_ceil(self.block[1])
    }
}

/// Panels of A and of B in a block of C: of the sizes whose operands fit the caches, that with which the last thread is done first.
fn block(panels: [usize; 2], threads: usize) -> [usize; 2] {
    if threads == 1 {
        return [LARGEST_BLOCK; 2];
    }
    let sizes = (1..=LARGEST_BLOCK).flat_map(|rows| (1..=LARGEST_BLOCK).map(move |columns| [rows, columns]));
    // Twice the blocks that a thread takes, and one, since threads join at any time and wait for half a block in the end. To
    // fetch a panel takes about a tenth of the time of multiplying two.
    let time = |&[rows, columns]: &[usize; 2]| {
        let blocks = panels[0].div_ceil(rows) * panels[1].div_ceil(columns);
        (2 * blocks.div_ceil(threads) + 1) * (10 * rows * columns + rows + columns)
    };
    sizes.min_by_key(time).expect("a size")
}

/// Works until nothing is left to be taken: each of the `items` of operand 0 or 1 is to `pack`, then each block to `compute`.
pub(crate) fn work_through(
    phases: &[Phase],
    items: impl Fn(&Phase, usize) -> usize,
    pack: impl Fn(&Phase, usize, usize),
    compute: impl Fn(&Phase, usize),
) {
    let mut before: Option<&Phase> = None;
    for phase in phases {
        // The buffer is written again: nobody may read it any more.
        if let Some(before) = before {
            before.computing.wait(before.blocks());
        }
        let [a_items, b_items] = [0, 1].map(|operand| {
            // Consecutive phases with the same part of an operand share it.
            let part = |phase: &Phase| (phase.panels(operand).clone(), phase.depth.clone());
            let is_packed = before.is_some_and(|before| part(before) == part(phase));
            if is_packed { 0 } else { items(phase, operand) }
        });
        phase.packing.take(a_items + b_items, |item| match item.checked_sub(a_items) {
            None => pack(phase, 0, item),
            Some(item) => pack(phase, 1, item),
        });
        phase.packing.wait(a_items + b_items);
        phase.computing.take(phase.blocks(), |block| compute(phase, block));
        before = Some(phase);
    }
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
        let registers = unsafe { self.instructions.registers() };
        let operands = [&self.a, &self.b];
        work_through(
            &self.phases,
            |phase, operand| operands[operand].items(phase.panels(operand), &phase.depth),
            // SAFETY: each item is a part of the buffer of its own.
            |phase, operand, item| unsafe {
                operands[operand].pack(item, phase.panels(operand), &phase.depth);
            },
            // SAFETY: all is packed, and each block is a part of C of its own.
            |phase, block| unsafe { self.compute(phase, block, registers.as_ref()) },
        );
    }

    /// A block of C.
    ///
    /// # Safety
    ///
    /// That of [`work`](Self::work); the phase's panels are packed, and nobody else uses the block.
    unsafe fn compute(&self, phase: &Phase, block: usize, registers: Option<&Registers>) {
        let Phase { rows, columns, depth, .. } = phase;
        let [block_rows, block_columns] = phase.block(block);
        let step = match self.output {
            Output::F32 { .. } => even(depth.len(), DEPTH_IN_REGISTERS),
            Output::Bf16 { .. } => depth.len(),
        };
        let [height, width] = self.instructions.block();
        // From one line to the next of those that `Panels` asks for.
        let lines = if height == PANEL { 16 } else { 1 };
        let [m, n] = self.shape;
        // Sums that are not C's, or not all.
        let mut sums = [0.0; PANEL * PANEL];
        for chunk in steps(depth.clone(), step) {
            let words = self.words.saturating_sub(16 * chunk.start).min(16 * chunk.len());
            for row in (PANEL * block_rows.start..m.min(PANEL * block_rows.end)).step_by(height) {
                let a = std::array::from_fn(|i| self.a.words(row + lines * i, chunk.start, rows, depth));
                for column in (PANEL * block_columns.start..n.min(PANEL * block_columns.end)).step_by(width) {
                    let b =
                        [0, 16, 32, 48].map(|half| self.b.words(column + half, chunk.start, columns, depth));
                    let width = width.min(PANEL * block_columns.end - column);
                    let (high, wide) =
                        (height.min(m.min(PANEL * block_rows.end) - row), width.min(n - column));
                    let height = self.instructions.rows(high);
                    // SAFETY: the panels are packed or in place, and rows of `width` values are those of C or of `sums`.
                    let multiply = |c, row, add| unsafe {
                        let step = [self.a.step(), self.b.step()];
                        self.instructions
                            .multiply(Panels { a, b, step, words, c, row, height, width, add }, registers)
                    };
                    match self.output {
                        Output::F32 { c, add } => {
                            let add = add || chunk.start > 0;
                            let c = c.wrapping_add(row * n + column);
                            if (high, wide) == (height, width) {
                                prefetch(c.wrapping_add(width), n, [height, width]);
                                multiply(c, n, add);
                                continue;
                            }
                            // At an edge, beside C, in the same order. SAFETY: these values are C's and this block's, and
                            // initialised where they are read.
                            let rows = (0..high).map(|i| (c.wrapping_add(i * n), width * i));
                            if add {
                                for (c, i) in rows.clone() {
                                    unsafe { c.copy_to_nonoverlapping(sums[i..][..wide].as_mut_ptr(), wide) };
                                }
                            }
                            multiply(sums.as_mut_ptr(), width, add);
                            for (c, i) in rows {
                                unsafe { c.copy_from_nonoverlapping(sums[i..][..wide].as_ptr(), wide) };
                            }
                        }
                        Output::Bf16 { c, bias } => {
                            multiply(sums.as_mut_ptr(), width, false);
                            let bias = bias.map(|bias| &bias[column..][..wide]);
                            for (i, sums) in sums.chunks_exact(width).enumerate().take(high) {
                                let c = c.wrapping_add((row + i) * n + column);
                                for (part, sums) in sums[..wide].chunks(PANEL).enumerate() {
                                    let bias = bias.map(|bias| &bias[PANEL * part..][..sums.len()]);
                                    // SAFETY: these values are C's and this block's.
                                    unsafe {
                                        self.instructions.narrow(sums, bias, c.wrapping_add(PANEL * part))
                                    };
                                }
                            }
                        }
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

#[cfg(test)]
mod tests {
    use super::{block, part};

    /// The products of BERT-base's step, 1024 tokens: its hidden layers, the gradients of their weights, and a part of the
    /// vocabulary for 150 masked tokens.
    #[test]
    fn blocks_keep_all_threads_busy() {
        for (panels, least) in
            [([32, 24], 0.99), ([32, 96], 0.99), ([24, 24], 0.99), ([96, 24], 0.99), ([5, 41], 0.75)]
        {
            for threads in [2, 8, 16, 64] {
                let size = block(panels, threads);
                let lengths = |axis: usize| {
                    let steps = 0..panels[axis].div_ceil(size[axis]);
                    steps.map(move |step| part(&(0..panels[axis]), step, size[axis]).len())
                };
                let mut busy = vec![0; threads];
                for area in lengths(1).flat_map(|columns| lengths(0).map(move |rows| rows * columns)) {
                    // Taken by the thread that is done first.
                    *busy.iter_mut().min().expect("a thread") += area;
                }
                let longest = busy.iter().max().expect("a thread");
                let share = (panels[0] * panels[1]) as f64 / (threads * longest) as f64;
                assert!(share >= least, "{panels:?} on {threads} threads: {share:.2} of the time");
            }
        }
    }
}
