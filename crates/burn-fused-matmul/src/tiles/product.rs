//! A product, shared by threads.

use super::operand::{Operand, part, stride};
use super::{Instructions, PANEL, Panels, Registers, Rounding, Tile, fetch};
use crate::Output;
use crate::matrix::Matrix;
use crate::threads::on_threads;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below so many multiplications one thread is faster than several.
const PARALLEL_FROM: usize = 1 << 23;

/// Tiles along K of a phase, whose products are added up in registers: to read sums again costs more than to read a few rows of A from
/// the second cache.
const DEPTH: usize = 96;

/// Tiles of A that are packed in a phase: they stay in the third cache until they are read.
const SHARED: usize = 8 * 1024;

/// Tiles of B that a thread packs for itself: they stay in its second cache while the rows of A pass by.
const OWN: usize = 800;

/// Fewer tiles along K than this are multiplied before C has come from memory.
const SHORT: usize = 12;

/// More entries of C than these are not in the second cache.
const LARGE: usize = 1 << 18;

/// The most panels of A in a block of C.
const MOST_ROWS: usize = 8;

thread_local! {
    /// What A and B are packed into, kept for the next product.
    static BUFFERS: [Cell<Vec<Tile>>; 2] = const { [Cell::new(Vec::new()), Cell::new(Vec::new())] };
}

/// Multiplies.
///
/// # Safety
///
/// That of [`Kernel::run`](crate::Kernel::run), there are entries in C, and the instructions are available.
pub(crate) unsafe fn multiply(a: Matrix, b: Matrix, output: Output, instructions: Instructions) {
    let ([m, k], [_, n]) = (a.shape(), b.shape());
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
    let (a, b) = (Operand::rows(a, instructions), Operand::columns(b, instructions, m));
    let schedule = Schedule::new(
        [m, n],
        [&a, &b].map(|operand| (2 * stride(depth_step), !operand.is_in_place())),
        steps(0..depth, depth_step),
        instructions.block()[0],
        threads([m, k, n]),
    );
    let product =
        Product { a, b, output, instructions, shape: [m, n], words: k.div_ceil(instructions.values()) };
    // SAFETY: the instructions are available, and C is valid.
    schedule.run(|worker| unsafe { product.work(&worker) });
}

/// How many threads a product of M, K and N is worth.
pub(crate) fn threads([m, k, n]: [usize; 3]) -> usize {
    let is_parallel = m.saturating_mul(n).saturating_mul(k) >= PARALLEL_FROM;
    if is_parallel { rayon::current_num_threads() } else { 1 }
}

/// Calls `f` with room for so many tiles of operand 0, A, or 1, B.
fn with_buffer<T>(operand: usize, tiles: usize, f: impl FnOnce(*mut Tile) -> T) -> T {
    let mut buffer = BUFFERS.with(|buffers| buffers[operand].take());
    // It never shrinks: the next matmul is often of the same size.
    if buffer.len() < tiles {
        buffer.resize(tiles, Tile([[0; 16]; 16]));
    }
    let result = f(buffer.as_mut_ptr());
    BUFFERS.with(|buffers| buffers[operand].set(buffer));
    result
}

/// `count` in equal steps of at most `largest`, or of 1: the length of a step.
fn even(count: usize, largest: usize) -> usize {
    count.div_ceil(count.div_ceil(largest.max(1)))
}

/// A range cut into steps.
fn steps(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(step).map(move |first| first..range.end.min(first + step))
}

/// How threads share a product: in each phase they pack A together; then each takes blocks of C, and packs the columns of B that
/// it multiplies for itself.
pub(crate) struct Schedule {
    phases: Vec<Phase>,
    /// Panels of B.
    columns: usize,
    /// Panels of A and B in a block of C.
    block: [usize; 2],
    /// Tiles to pack A, and B, into.
    room: [usize; 2],
    threads: usize,
    /// Threads that have begun.
    begun: AtomicUsize,
}

/// What is packed and multiplied at a time.
struct Phase {
    /// Panels of A.
    rows: Range<usize>,
    /// Tiles along K.
    depth: Range<usize>,
    packing: List,
    computing: List,
}

/// Panels of an operand, and where they are packed.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    pub(crate) tiles: *mut Tile,
    pub(crate) panels: &'a Range<usize>,
    /// Tiles along K.
    pub(crate) depth: &'a Range<usize>,
}

impl Schedule {
    /// Of a product with M rows and N columns in steps along K, with a kernel of `height` rows. Of each operand, how many tiles a
    /// panel has, and whether it is packed.
    pub(crate) fn new(
        lines: [usize; 2],
        operands: [(usize, bool); 2],
        depths: impl Iterator<Item = Range<usize>>,
        height: usize,
        threads: usize,
    ) -> Self {
        let [rows, columns] = lines.map(|lines| lines.div_ceil(PANEL));
        let [(a_tiles, packs_a), (b_tiles, packs_b)] = operands;
        let row_step = if packs_a { even(rows, SHARED / a_tiles) } else { rows };
        let block = block([row_step, columns], (OWN / b_tiles).max(1), height, threads);
        let threads = threads.min(row_step.div_ceil(block[0]) * columns.div_ceil(block[1]));
        let phase =
            |rows, depth| Phase { rows, depth, packing: List::new(threads), computing: List::new(threads) };
        let phases = depths
            .flat_map(|depth| steps(0..rows, row_step).map(move |rows| phase(rows, depth.clone())))
            .collect();
        let room = [a_tiles * row_step * usize::from(packs_a), b_tiles * block[1] * usize::from(packs_b)];
        Self { phases, columns, block, room, threads, begun: AtomicUsize::new(0) }
    }

    /// Runs `work` on threads.
    pub(crate) fn run(&self, work: impl Fn(Worker) + Sync) {
        /// Where threads pack A.
        struct Shared(*mut Tile);
        // SAFETY: threads write to different tiles, and read what another has written after a wait for all that write.
        unsafe impl Sync for Shared {}
        impl Shared {
            fn tiles(&self) -> *mut Tile {
                self.0
            }
        }
        with_buffer(0, self.room[0], |a| {
            let a = Shared(a);
            on_threads(self.threads, || {
                let index = self.begun.fetch_add(1, Ordering::Relaxed);
                with_buffer(1, self.room[1], |b| {
                    work(Worker { schedule: self, index, tiles: [a.tiles(), b] })
                });
            });
        });
    }
}

/// A thread that works on a product.
pub(crate) struct Worker<'a> {
    schedule: &'a Schedule,
    index: usize,
    /// Where A, and B, are packed.
    tiles: [*mut Tile; 2],
}

impl Worker<'_> {
    /// Works until nothing is left to be taken: each of the `items` of operand 0 or 1 is to `pack`, and each block of C to `compute`, of
    /// rows of what is packed of A.
    pub(crate) fn work(
        &self,
        items: impl Fn(usize, Packed) -> usize,
        pack: impl Fn(usize, Packed, usize),
        mut compute: impl FnMut(&Range<usize>, [Packed; 2]),
    ) {
        let Schedule { phases, columns: all_columns, block: [height, width], .. } = self.schedule;
        let across = all_columns.div_ceil(*width);
        let mut before: Option<(&Phase, usize)> = None;
        // The columns of B that are packed, and the tiles along K.
        let mut packed = (0..0, &(0..0));
        for phase in phases {
            let Phase { rows, depth, .. } = phase;
            // The buffer is written again: nobody may read it any more.
            if let Some((before, blocks)) = before {
                before.computing.wait(blocks);
            }
            let a = Packed { tiles: self.tiles[0], panels: rows, depth };
            let count = items(0, a);
            phase.packing.take(self.index, count, |item| pack(0, a, item));
            phase.packing.wait(count);
            let down = rows.len().div_ceil(*height);
            phase.computing.take(self.index, down * across, |block| {
                let columns = part(&(0..*all_columns), block / down, *width);
                let b = Packed { tiles: self.tiles[1], panels: &columns, depth };
                if packed != (columns.clone(), depth) {
                    (0..items(1, b)).for_each(|item| pack(1, b, item));
                    packed = (columns.clone(), depth);
                }
                compute(&part(rows, block % down, *height), [a, b]);
            });
            before = Some((phase, down * across));
        }
    }
}

/// Items that threads take: each those of a range of its own, which follow each other, then what others have left.
struct List {
    /// Items of each thread's range that are taken.
    taken: Vec<AtomicUsize>,
    done: AtomicUsize,
}

impl List {
    fn new(threads: usize) -> Self {
        Self { taken: (0..threads).map(|_| AtomicUsize::new(0)).collect(), done: AtomicUsize::new(0) }
    }

    /// Works on items until all of `count` are taken.
    fn take(&self, thread: usize, count: usize, mut work: impl FnMut(usize)) {
        /// Counts an item as done, also when a panic ends it: others would wait for ever.
        struct Done<'a>(&'a AtomicUsize);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Release);
            }
        }
        let threads = self.taken.len();
        for range in (0..threads).map(|other| (thread + other) % threads) {
            let [start, end] = [range, range + 1].map(|bound| bound * count / threads);
            // Threads that only look do not wait for each other.
            while start + self.taken[range].load(Ordering::Relaxed) < end {
                let item = start + self.taken[range].fetch_add(1, Ordering::Relaxed);
                if item >= end {
                    break;
                }
                let _done = Done(&self.done);
                work(item);
            }
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

/// The most panels of B in a block of C.
const MOST_COLUMNS: usize = 32;

/// Panels of A, and of at most `widest` of B, in a block of C: those with which the last thread is done first.
fn block(panels: [usize; 2], widest: usize, height: usize, threads: usize) -> [usize; 2] {
    if threads == 1 {
        return [MOST_ROWS, widest.min(MOST_COLUMNS)];
    }
    let sizes = (1..=MOST_ROWS.min(panels[0]))
        .flat_map(|rows| (1..=widest.min(panels[1]).min(MOST_COLUMNS)).map(move |columns| [rows, columns]));
    let time = |&[rows, columns]: &[usize; 2]| {
        let (down, across) = (panels[0].div_ceil(rows), panels[1].div_ceil(columns));
        let blocks = (down * across).div_ceil(threads);
        // Rows that are multiplied: the last ones of a block may be few.
        let rows = (PANEL * rows).next_multiple_of(height);
        // To pack a panel of B takes about the time of multiplying it with one of A, and to fetch one of A a tenth of that.
        let [packing, fetching] = [10 * PANEL * columns * blocks.div_ceil(down), rows];
        // Twice the blocks that a thread takes, and one, since threads join at any time and wait for half a block in the end.
        (2 * blocks + 1) * (10 * rows * columns + fetching) + 2 * packing
    };
    sizes.min_by_key(time).expect("a size")
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

/// Sums of a block, aligned to a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Sums([f32; PANEL * PANEL]);

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
        let registers = unsafe { self.instructions.registers() };
        let mut sums = [Sums([0.0; PANEL * PANEL]); 2];
        let mut pending = Pending { sums: sums.each_mut().map(|sums| sums.0.as_mut_ptr()), before: None };
        let operands = [&self.a, &self.b];
        worker.work(
            |operand, packed| operands[operand].items(packed),
            // SAFETY: each item is a part of the buffer of its own.
            |operand, packed, item| unsafe { operands[operand].pack(item, packed) },
            // SAFETY: all is packed, and each block is a part of C of its own.
            |rows, packed| unsafe { self.compute(rows, packed, registers.as_ref(), &mut pending) },
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
    /// That of [`work`](Self::work); both are packed, and nobody else uses the block.
    unsafe fn compute<'a>(
        &'a self,
        rows: &Range<usize>,
        [a, b]: [Packed; 2],
        registers: Option<&Registers>,
        pending: &mut Pending<'a>,
    ) {
        let [height, width] = self.instructions.block();
        // From one line to the next of those that `Panels` asks for.
        let lines = if height == PANEL { 16 } else { 1 };
        let [m, n] = self.shape;
        let (end, columns_end) = (m.min(PANEL * rows.end), PANEL * b.panels.end);
        let (first, depth) = (a.depth.start, a.depth.len());
        let words = self.words.saturating_sub(16 * first).min(16 * depth);
        for row in (PANEL * rows.start..end).step_by(height) {
            let a_words = std::array::from_fn(|i| self.a.words(row + lines * i, first, a));
            for column in (PANEL * b.panels.start..n.min(columns_end)).step_by(width) {
                // One by one: an array that a call fills is waited for.
                let b_word = |half| self.b.words(column + half, first, b);
                let b_words = [b_word(0), b_word(16), b_word(32), b_word(48)];
                let width = width.min(columns_end - column);
                let (high, wide) = (height.min(end - row), width.min(n - column));
                let height = self.instructions.rows(high);
                // SAFETY: the panels are packed or in place, and rows of `width` values are those of C or of `sums`.
                let multiply = |c, row, add, before: Option<&Rounding>| unsafe {
                    let (a, b, step) = (a_words, b_words, self.b.step());
                    let panels = Panels { a, b, step, words, c, row, height, width, add };
                    self.instructions.multiply(panels, registers, before)
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

#[cfg(test)]
mod tests {
    use super::{OWN, block, part};

    /// The products of BERT-base's step, 1024 tokens: its hidden layers, the gradients of their weights, and a part of the
    /// vocabulary for 150 masked tokens.
    #[test]
    fn blocks_keep_all_threads_busy() {
        for (panels, least) in
            [([32, 24], 0.99), ([32, 96], 0.99), ([24, 24], 0.99), ([96, 24], 0.99), ([5, 41], 0.75)]
        {
            for threads in [2, 8, 16, 64] {
                let size = block(panels, OWN / 98, 6, threads);
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
