//! Matmuls of operands packed in tiles, for every kernel. A tile is 16 words of 32 bits of each line of a panel, which is 32 rows
//! of A or 32 columns of B, filled up with zeros. A word is a value in f32, or two bf16 values that follow each other along K, the
//! first in its lower half: what `tdpbf16ps` and `vdpbf16ps` multiply.
//!
//! ```text
//! tile of A: word (i, p), row by row: A[i, p], or A[i, 2p] and A[i, 2p + 1]
//! tile of B: word (p, j), row by row: B[p, j], or B[2p, j] and B[2p + 1, j]
//! ```
//!
//! Threads share two lists of items: parts of the operands to pack, then blocks of C to compute from what all have packed.
//! Operands that are too large for the buffer are packed and multiplied in several phases. The values of an entry of C are
//! added up in an order that follows from K alone, so that results depend neither on threads nor on blocks.

use crate::Output;
#[cfg(target_arch = "x86_64")]
use crate::amx::Registers;
use crate::kernel::Instructions;
use crate::matrix::Matrix;
use crate::pack::{Direct, Lines, Part};
use crate::schedule::Phase;
use half::bf16;
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of a panel of A, columns of a panel of B.
pub(crate) const PANEL: usize = 32;

/// Words along K in a tile.
pub(crate) const TILE_WORDS: usize = 16;

/// A tile, aligned to a cache line as AMX likes it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Tile([u32; PANEL * TILE_WORDS]);

/// Two panels and where their product goes.
///
/// A has `rows` rows of `words` words, and B as many of 32 columns; for AMX both are tiles. C is valid for writes of 32 columns of
/// `rows`, rounded up to what instructions compute at a time and at most 32, and for reads if it is added to.
pub(crate) struct Panels {
    /// The first word of A, and words to the next row, to the next along K, and to the next 16 along K.
    pub(crate) a: *const u32,
    pub(crate) a_steps: [usize; 3],
    /// The first word of B, and words to the next along K.
    pub(crate) b: *const u32,
    pub(crate) b_word: usize,
    /// Words along K; in tiles zeros follow.
    pub(crate) words: usize,
    pub(crate) rows: usize,
    /// Of which a row begins `row` values after the one before.
    pub(crate) c: *mut f32,
    pub(crate) row: usize,
    /// Whether the product is added to C.
    pub(crate) add: bool,
}

/// Below so many multiplications one thread is faster than several.
const PARALLEL_FROM: usize = 1 << 23;

/// Words along K up to which a sum that is rounded is added up in one phase: longer panels of B outgrow the second cache.
const LONGEST_WHOLE: usize = 4096;

thread_local! {
    /// What operands are packed into, kept for the next matmul.
    static BUFFER: Cell<Vec<Tile>> = const { Cell::new(Vec::new()) };
}

/// Multiplies.
///
/// # Safety
///
/// That of [`Kernel::run`](crate::Kernel::run), M and N are not 0, and the instructions are available.
pub(crate) unsafe fn multiply(a: Matrix, b: Matrix, output: Output, instructions: &Instructions) {
    let ([m, k], [_, n]) = (a.shape(), b.shape());
    let parallel = m.saturating_mul(n).saturating_mul(k) >= PARALLEL_FROM;
    let threads = if parallel { rayon::current_num_threads() } else { 1 };
    let words = k.div_ceil(instructions.values);
    if let Output::Bf16 { c, bias } = output
        && words > LONGEST_WHOLE
    {
        let mut sums = vec![0.0; m * n];
        // SAFETY (of both): the caller's promise, and there are M · N sums.
        unsafe { multiply(a, b, Output::F32(sums.as_mut_ptr()), instructions) };
        for (place, sums) in sums.chunks(n).enumerate().map(|(i, row)| (i * n, row)) {
            for (column, sums) in sums.chunks(PANEL).enumerate().map(|(j, sums)| (j * PANEL, sums)) {
                let bias = bias.map(|bias| &bias[column..][..sums.len()]);
                unsafe { (instructions.narrow)(sums, bias, c.add(place + column)) };
            }
        }
        return;
    }
    // A sum without terms has a tile of zeros.
    let depth = words.div_ceil(TILE_WORDS).max(1);
    // A sum that is rounded is complete first.
    let is_whole = matches!(output, Output::Bf16 { .. });
    let lines = [Lines::of_a(&a), Lines::of_b(&b)];
    let panels = [m, n].map(|count| count.div_ceil(PANEL));
    let direct = [0, 1].map(|operand| {
        let direct = lines[operand].direct(instructions.values, panels[1 - operand]);
        direct.filter(|_| instructions.is_direct)
    });
    let packs = [0, 1].map(|operand| direct[operand].is_none().then(|| lines[operand].is_along()));
    let phases = Phase::all(panels, depth, packs, is_whole, threads);
    let [tiles_a, tiles_b] = Phase::tiles(&phases);
    // Of B, two phases in turn: the next one is packed while the last blocks of this one are computed.
    let count = tiles_a + 2 * tiles_b;
    let mut buffer = BUFFER.take();
    // It never shrinks: the next matmul is often of the same size.
    if buffer.len() < count {
        buffer.resize(count, Tile([0; PANEL * TILE_WORDS]));
    }
    let first = buffer.as_mut_ptr();
    let packed = [0, tiles_b].map(|place| [first, first.wrapping_add(tiles_a + place)]);
    let threads = threads.min(phases[0].blocks());
    let lists = phases.iter().map(|_| Default::default()).collect();
    let product = Product {
        operands: lines,
        direct,
        output,
        instructions,
        shape: [m, n],
        words,
        packed,
        phases,
        lists,
    };
    // SAFETY (of the calls): the instructions are available, and C and the buffer are valid.
    if threads <= 1 {
        unsafe { product.work() };
    } else {
        rayon::in_place_scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|_| unsafe { product.work() });
            }
            unsafe { product.work() };
        });
    }
    BUFFER.set(buffer);
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

struct Product<'a> {
    /// A and B.
    operands: [Lines<'a>; 2],
    /// Those that are multiplied where they are.
    direct: [Option<Direct>; 2],
    output: Output<'a>,
    instructions: &'a Instructions,
    /// M and N.
    shape: [usize; 2],
    /// Words along K.
    words: usize,
    /// Where the panels of A and of B go, for each of a phase's buffers.
    packed: [[*mut Tile; 2]; 2],
    phases: Vec<Phase>,
    /// Of each phase, what is packed and what is computed.
    lists: Vec<[List; 2]>,
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
        #[cfg(target_arch = "x86_64")]
        let _registers = self.instructions.is_amx.then(|| unsafe { Registers::new() });
        for (index, (phase, [packing, computing])) in self.phases.iter().zip(&self.lists).enumerate() {
            for before in phase.waits_for(index) {
                self.lists[before][1].wait(self.phases[before].blocks());
            }
            packing.take(phase.items(), |item| {
                let (operand, [panels, depth]) = phase.item(item);
                let place = (panels.start - phase.panels(operand).start) * phase.depth.len() + depth.start
                    - phase.depth.start;
                let part = Part {
                    lines: &self.operands[operand],
                    to: self.packed[phase.buffer][operand].wrapping_add(place),
                    panel: phase.depth.len(),
                    panels,
                    depth,
                };
                // SAFETY: the caller's promise; each item is a part of the buffer of its own.
                unsafe { (self.instructions.pack)(part) }
            });
            packing.wait(phase.items());
            // SAFETY: all is packed, and each block is a part of C of its own.
            computing.take(phase.blocks(), |block| unsafe { self.compute(phase, block) });
        }
    }

    /// A block of C.
    ///
    /// # Safety
    ///
    /// That of [`work`](Self::work); the phase's panels are packed, and nobody else uses the block.
    unsafe fn compute(&self, phase: &Phase, block: usize) {
        let [rows, columns] = phase.block(block);
        // SAFETY (of the calls): the caller's promise, of panels of the block.
        match self.output {
            // Chunk by chunk, so that what the block needs of B stays in the second cache.
            Output::F32(c) => {
                for chunk in phase.chunks() {
                    for row in rows.clone() {
                        for column in columns.clone() {
                            unsafe { self.write_f32(phase, [row, column], &chunk, c) };
                        }
                    }
                }
            }
            Output::Bf16 { c, bias } => {
                for row in rows {
                    for column in columns.clone() {
                        unsafe { self.write_bf16(phase, [row, column], c, bias) };
                    }
                }
            }
        }
    }

    /// Writes the product of two panels in a chunk of K to C, or adds it.
    ///
    /// # Safety
    ///
    /// That of [`compute`](Self::compute).
    unsafe fn write_f32(&self, phase: &Phase, at: [usize; 2], chunk: &Range<usize>, c: *mut f32) {
        let (place, [height, width]) = self.place(at);
        let (c, n) = (c.wrapping_add(place), self.shape[1]);
        let add = phase.depth.start + chunk.start > 0;
        let panels = Panels { c, row: n, add, ..self.panels(phase, at, chunk) };
        // SAFETY (of the calls): the caller's promise.
        if [height, width] == [PANEL; 2] {
            prefetch(c.wrapping_add(PANEL), n);
            return unsafe { (self.instructions.multiply)(&panels) };
        }
        // At an edge, beside C, in the same order.
        let mut sums = [0.0; PANEL * PANEL];
        let rows = (0..height).map(|i| (c.wrapping_add(i * n), PANEL * i));
        // SAFETY: these values are C's and this block's, and initialised where they are read.
        unsafe {
            if add {
                for (c, i) in rows.clone() {
                    c.copy_to_nonoverlapping(sums[i..][..width].as_mut_ptr(), width);
                }
            }
            (self.instructions.multiply)(&Panels { c: sums.as_mut_ptr(), row: PANEL, ..panels });
            for (c, i) in rows {
                c.copy_from_nonoverlapping(sums[i..][..width].as_ptr(), width);
            }
        }
    }

    /// Writes the product of two panels, which have all of K, plus the bias, rounded to bf16.
    ///
    /// # Safety
    ///
    /// That of [`compute`](Self::compute).
    unsafe fn write_bf16(&self, phase: &Phase, at: [usize; 2], c: *mut bf16, bias: Option<&[f32]>) {
        let (place, [height, width]) = self.place(at);
        let mut sums = [0.0; PANEL * PANEL];
        for chunk in phase.chunks() {
            let (c, add) = (sums.as_mut_ptr(), chunk.start > 0);
            // SAFETY: the caller's promise; the sums are 32 rows of 32.
            unsafe {
                (self.instructions.multiply)(&Panels {
                    c,
                    row: PANEL,
                    add,
                    ..self.panels(phase, at, &chunk)
                });
            }
        }
        let bias = bias.map(|bias| &bias[PANEL * at[1]..][..width]);
        for (i, sums) in sums.chunks_exact(PANEL).enumerate().take(height) {
            let c = c.wrapping_add(place + i * self.shape[1]);
            // SAFETY: these values are C's and this block's.
            unsafe { (self.instructions.narrow)(&sums[..width], bias, c) };
        }
    }

    /// Where the product of two panels begins in C, and its size.
    fn place(&self, at: [usize; 2]) -> (usize, [usize; 2]) {
        let ([row, column], [m, n]) = (at.map(|panel| PANEL * panel), self.shape);
        (row * n + column, [PANEL.min(m - row), PANEL.min(n - column)])
    }

    /// Two panels in a chunk of K, and no place for their product.
    fn panels(&self, phase: &Phase, at: [usize; 2], chunk: &Range<usize>) -> Panels {
        let [first, end] = [chunk.start, chunk.end].map(|tile| TILE_WORDS * (phase.depth.start + tile));
        let (words, rows) = (self.words.min(end) - self.words.min(first), self.place(at).1[0]);
        // The first word of an operand, words from line to line and along K, and of the next tile.
        let [(a, a_steps), (b, [_, b_word, _])] = [0, 1].map(|operand| match &self.direct[operand] {
            Some(Direct { first: values, words: count, line, step }) => {
                let place = PANEL * at[operand] * line + first * step;
                let last = ([rows, PANEL][operand] - 1) * line + words.saturating_sub(1) * step;
                assert!(place + last < *count || words == 0, "lines end within their values");
                (values.wrapping_add(place), [*line, *step, TILE_WORDS * step])
            }
            None => {
                let place = (at[operand] - phase.panels(operand).start) * phase.depth.len() + chunk.start;
                let steps = if operand == 0 { [TILE_WORDS, 1] } else { [1, PANEL] };
                let tile = self.packed[phase.buffer][operand].wrapping_add(place);
                (tile.cast_const().cast::<u32>(), [steps[0], steps[1], PANEL * TILE_WORDS])
            }
        });
        Panels { a, a_steps, b, b_word, words, rows, c: std::ptr::null_mut(), row: 0, add: false }
    }
}

/// Fetches 32 rows of 32 values, which are written next, into the second cache.
fn prefetch(c: *const f32, row: usize) {
    #[cfg(target_arch = "x86_64")]
    for i in 0..PANEL {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        let row = c.wrapping_add(i * row).cast::<i8>();
        // SAFETY: every address may be prefetched.
        unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(row);
            _mm_prefetch::<_MM_HINT_ET0>(row.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (c, row);
}
