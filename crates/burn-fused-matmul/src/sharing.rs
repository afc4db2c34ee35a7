//! How a product is cut into phases and blocks, which threads take.
//!
//! Constants of size were varied on one thread of an Intel with AVX-512 (2 MiB of second cache), in f32 and bf16, with the shapes of
//! `cargo bench -p burn-fused-matmul` in turns: half and twice of [`SHARED`], [`MOST_ROWS`] and [`MOST_COLUMNS`] change no product's CPU
//! time by more than 9 %, as much as two runs of the same differ on that machine, which others used too.

use crate::threads::{on_threads, wait_until};
use crate::tiles::{PANEL, Tile, tiles_in_place};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The fewest multiplications of each thread: 14 µs of work in f32 on AVX-512 where each packs columns, as attention's products of one head
/// do, which are shared already; a quarter of it where none does.
const LEAST_OF_THREAD: [usize; 2] = [1 << 17, 1 << 19];

/// Tiles of A that are packed in a phase: 8 MiB, which stay in the third cache until they are read.
const SHARED: usize = 8 * 1024;

/// Tiles of B that a thread packs for itself: 800 KiB, which stay in a second cache of 1 MiB or more while the rows of A pass by. Twice
/// as many take 1.0 to 1.11 of the time, half as many 0.94 to 1.09.
const OWN: usize = 800;

/// The most panels of A in a block of C.
const MOST_ROWS: usize = 8;

thread_local! {
    /// What A and B are packed into, kept for the next product.
    static BUFFERS: [Cell<Vec<Tile>>; 2] = const { [Cell::new(Vec::new()), Cell::new(Vec::new())] };
}

/// Calls `f` with room for so many tiles of operand 0, A, or 1, B.
fn with_buffer(operand: usize, tiles: usize, f: impl FnOnce(*mut Tile)) {
    let mut buffer = BUFFERS.with(|buffers| buffers[operand].take());
    // It never shrinks: the next matmul is often of the same size.
    if buffer.len() < tiles {
        buffer.resize(tiles, Tile([[0; 16]; 16]));
    }
    f(buffer.as_mut_ptr());
    BUFFERS.with(|buffers| buffers[operand].set(buffer));
}

/// Step `index` of a range.
pub(crate) fn part(range: &Range<usize>, index: usize, step: usize) -> Range<usize> {
    let first = range.start + index * step;
    first..range.end.min(first + step)
}

/// `count` in equal steps of at most `largest`, or of 1: the length of a step.
pub(crate) fn even(count: usize, largest: usize) -> usize {
    count.div_ceil(count.div_ceil(largest.max(1)))
}

/// A range cut into steps.
fn steps(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(step).map(move |first| first..range.end.min(first + step))
}

/// The part of a matmul that is packed and multiplied at a time.
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

/// Shares a product of M · K · N multiplications, with a kernel of `height` rows, among as many threads as it is worth, each of which
/// runs `work`: in each phase they pack A together; then each takes blocks of C, and packs the columns of B that it multiplies for
/// itself. Of each operand, how many tiles a panel has, and whether it is packed; along K, how many tiles there are, and in a phase; whether
/// columns are multiplied strip by strip.
pub(crate) fn share_product(
    [m, k, n]: [usize; 3],
    operands: [(usize, bool); 2],
    [depth, depth_step]: [usize; 2],
    in_strips: bool,
    height: usize,
    work: impl Fn(Worker) + Sync,
) {
    let [(a_tiles, packs_a), (b_tiles, packs_b)] = operands;
    let worth = m.saturating_mul(n).saturating_mul(k) / LEAST_OF_THREAD[usize::from(packs_b)];
    let threads = rayon::current_num_threads().min(worth).max(1);
    let [rows, columns] = [m, n].map(|lines| lines.div_ceil(PANEL));
    let row_step = if packs_a { even(rows, SHARED / a_tiles) } else { rows };
    let block = if !in_strips {
        // Where all rows are in one block, columns are packed once anyway, and a strip is still in a near cache when they are multiplied.
        let widest = if rows == 1 { 2 } else { (OWN / b_tiles).max(1) };
        block([row_step, columns], widest, height, threads)
    } else {
        // Each thread takes two blocks, of long rows of W that follow each other in memory.
        [rows, columns.div_ceil(2 * threads).min(MOST_COLUMNS)]
    };
    let threads = threads.min(row_step.div_ceil(block[0]) * columns.div_ceil(block[1]));
    let phase =
        |rows, depth| Phase { rows, depth, packing: List::new(threads), computing: List::new(threads) };
    let phases: Vec<_> = steps(0..depth, depth_step)
        .flat_map(|depth| steps(0..rows, row_step).map(move |rows| phase(rows, depth.clone())))
        .collect();
    let begun = AtomicUsize::new(0);
    // One panel of A each thread packs for itself where that takes little: it would wait as long for another, and then fetch what is in
    // that one's cache. 16 rows in f32 take 0.93 of the time; rows that are quantised first would take 1.04.
    let owns_a = in_strips && rows == 1;
    let a_tiles = a_tiles * row_step * usize::from(packs_a);
    let b_tiles = if in_strips { tiles_in_place(block) } else { b_tiles * block[1] * usize::from(packs_b) };
    let work = |a| {
        let index = begun.fetch_add(1, Ordering::Relaxed);
        with_buffer(1, b_tiles, |b| {
            work(Worker { phases: &phases, columns, block, index, owns_a, tiles: [a, b] });
        });
    };
    if owns_a {
        return on_threads(threads, || with_buffer(0, a_tiles, work));
    }
    with_buffer(0, a_tiles, |a| {
        // Threads write to different tiles, and read what another has written after a wait for all that write.
        let a = AtomicPtr::new(a);
        on_threads(threads, || work(a.load(Ordering::Relaxed)));
    });
}

/// A thread that works on a product.
pub(crate) struct Worker<'a> {
    phases: &'a [Phase],
    /// Panels of B.
    columns: usize,
    /// Panels of A and B in a block of C.
    block: [usize; 2],
    index: usize,
    /// Whether it packs A for itself.
    owns_a: bool,
    /// The memory that A and B are packed into.
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
        let Self { phases, columns: all_columns, block: [height, width], .. } = *self;
        let across = all_columns.div_ceil(width);
        let mut before: Option<(&Phase, usize)> = None;
        // The columns of B that are packed, and the tiles along K.
        let mut packed = (0..0, &(0..0));
        for phase in phases {
            let Phase { rows, depth, .. } = phase;
            // The buffer is written again: nobody may read it any more. And C is added to.
            if let Some((before, blocks)) = before {
                before.computing.wait(blocks);
            }
            let a = Packed { tiles: self.tiles[0], panels: rows, depth };
            let count = items(0, a);
            if self.owns_a {
                (0..count).for_each(|item| pack(0, a, item));
            } else {
                phase.packing.take(self.index, count, |item| pack(0, a, item));
                phase.packing.wait(count);
            }
            let down = rows.len().div_ceil(height);
            phase.computing.take(self.index, down * across, |block| {
                let columns = part(&(0..all_columns), block / down, width);
                let b = Packed { tiles: self.tiles[1], panels: &columns, depth };
                if packed != (columns.clone(), depth) {
                    (0..items(1, b)).for_each(|item| pack(1, b, item));
                    packed = (columns.clone(), depth);
                }
                compute(&part(rows, block % down, height), [a, b]);
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
        wait_until(|| self.done.load(Ordering::Acquire) >= count);
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
