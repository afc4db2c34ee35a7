//! Tiles of heads and of logits, in the fast memory of a cube: how its units share them, read them and add them up.

use super::kernels::Scores;
use crate::cube::mask::Mask;
use burn_cubecl::cubecl::{self, prelude::*};

/// The tiles of a cube. A kernel is compiled for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// Units along each side of the square.
    pub(super) side: usize,
    /// d.
    pub(super) columns: usize,
}

impl Tile {
    /// Rows and columns of a tile of logits.
    pub(super) fn rows(self) -> usize {
        4 * self.side
    }

    /// Columns of a head that one unit takes at most.
    pub(super) fn slots(self) -> usize {
        self.columns.div_ceil(self.side)
    }

    /// From row to row of a tile of a head. One more than columns: units read rows side by side, each of another bank.
    pub(super) fn stride(self) -> usize {
        self.columns + 1
    }

    /// Room for a tile of a head. Units past the last column read on, and what they find is not stored.
    pub(super) fn values(self) -> usize {
        self.rows() * self.stride() + self.side * self.slots()
    }

    /// From row to row of a tile of logits.
    pub(super) fn stride_of_logits(self) -> usize {
        self.rows() + 1
    }

    pub(super) fn logits(self) -> usize {
        self.rows() * self.stride_of_logits()
    }

    /// Columns apart that share a counter of dropout's generator, for a unit's four.
    fn counters(self) -> usize {
        4.min(16 / self.side)
    }

    /// The largest tile with heads of `columns` of which so many, and so many tiles of logits, fit in fast memory of `size`
    /// values. `None` if there is none, or too few units share a row for their sums to stay in registers.
    pub(super) fn fitting(
        columns: usize,
        [heads, logits]: [usize; 2],
        size: usize,
        units: usize,
    ) -> Option<Self> {
        let tiles = [8, 4].map(|side| Self { side, columns });
        tiles.into_iter().find(|tile| {
            let needed = heads * tile.values() + logits * tile.logits();
            needed <= size && tile.side * tile.side <= units && tile.slots() <= 16
        })
    }
}

/// The rows of one head of one sequence.
#[derive(CubeType)]
pub(super) struct Head {
    /// The first row of B · A · L, which numbers dropout's masks.
    pub(super) first: usize,
    /// The first row among the packed ones.
    start: usize,
    pub(super) length: usize,
    /// The first column of the head in a row.
    column: usize,
}

#[cube]
pub(super) fn head<C: Float>(scores: &Scores<C>, index: usize, #[comptime] tile: Tile) -> Head {
    let start = scores.layout.start(index / scores.layout.heads);
    Head {
        first: index * scores.layout.longest,
        start,
        length: scores.layout.start(index / scores.layout.heads + 1) - start,
        column: index % scores.layout.heads * tile.columns,
    }
}

/// Reads a head's rows from `first` on to a tile, 0 past the sequence's end.
#[cube]
pub(super) fn load<T: Float, W: Float>(
    rows: &[T],
    to: &mut Shared<[W]>,
    head: &Head,
    first: usize,
    hidden: usize,
    #[comptime] tile: Tile,
) {
    let mut place = UNIT_POS as usize;
    while place < comptime!(tile.rows() * tile.columns) {
        let row = place / tile.columns;
        let column = place % tile.columns;
        // What lies past the end takes part in sums: there it must add nothing.
        let mut value = W::new(0.0);
        if first + row < head.length {
            value = W::cast_from(rows[(head.start + first + row) * hidden + head.column + column]);
        }
        to[row * comptime!(tile.stride()) + column] = value;
        place += comptime!(tile.side * tile.side);
    }
}

/// [`load`] of rows to which a bias `[H]` is added.
#[cube]
pub(super) fn load_biased<T: Float, V: Float, W: Float>(
    rows: &[T],
    bias: &ComptimeOption<Box<[V]>>,
    to: &mut Shared<[W]>,
    head: &Head,
    first: usize,
    hidden: usize,
    #[comptime] tile: Tile,
) {
    load::<T, W>(rows, to, head, first, hidden, tile);
    #[comptime]
    match bias {
        ComptimeOption::Some(bias) => {
            // A unit adds to what it has read itself.
            let mut place = UNIT_POS as usize;
            while place < comptime!(tile.rows() * tile.columns) {
                let row = place / tile.columns;
                let column = place % tile.columns;
                if first + row < head.length {
                    to[row * comptime!(tile.stride()) + column] += W::cast_from(bias[head.column + column]);
                }
                place += comptime!(tile.side * tile.side);
            }
        }
        ComptimeOption::None => {}
    }
}

/// a · bᵀ of a unit's four rows of each, in the order of rows of `a`.
#[cube]
pub(super) fn dots<W: Float>(
    a: &Shared<[W]>,
    b: &Shared<[W]>,
    y: usize,
    x: usize,
    #[comptime] tile: Tile,
) -> Array<W> {
    let mut sums = filled::<W>(16usize);
    for column in 0..tile.columns {
        let mut of_a = Array::<W>::new(4usize);
        let mut of_b = Array::<W>::new(4usize);
        #[unroll]
        for i in 0..4usize {
            of_a[i] = a[(y + i * tile.side) * comptime!(tile.stride()) + column];
            of_b[i] = b[(x + i * tile.side) * comptime!(tile.stride()) + column];
        }
        #[unroll]
        for i in 0..4usize {
            #[unroll]
            for j in 0..4usize {
                sums[i * 4 + j] += of_a[i] * of_b[j];
            }
        }
    }
    sums
}

/// Adds weights · rows to the sums of a unit's four rows.
#[cube]
pub(super) fn accumulate<W: Float>(
    sums: &mut Array<W>,
    weights: &Shared<[W]>,
    rows: &Shared<[W]>,
    y: usize,
    x: usize,
    #[comptime] tile: Tile,
) {
    let slots = comptime!(tile.slots());
    for row in 0..comptime!(tile.rows()) {
        let mut of_weights = Array::<W>::new(4usize);
        #[unroll]
        for i in 0..4usize {
            of_weights[i] = weights[(y + i * tile.side) * comptime!(tile.stride_of_logits()) + row];
        }
        #[unroll]
        for slot in 0..slots {
            let value = rows[row * comptime!(tile.stride()) + x + slot * tile.side];
            #[unroll]
            for i in 0..4usize {
                sums[i * slots + slot] += of_weights[i] * value;
            }
        }
    }
}

#[cube]
pub(super) fn filled<W: Float>(#[comptime] count: usize) -> Array<W> {
    let mut values = Array::<W>::new(count);
    #[unroll]
    for i in 0..count {
        values[i] = W::new(0.0);
    }
    values
}

/// What dropout multiplies the weights of `row` of B · A · L by, at the four keys from `key` on.
#[cube]
pub(super) fn factors<W: Float>(
    mask: &ComptimeOption<Mask>,
    row: usize,
    key: usize,
    #[comptime] tile: Tile,
) -> Array<W> {
    let mut factors = Array::<W>::new(4usize);
    #[comptime]
    match mask {
        ComptimeOption::Some(mask) => {
            // Keys sixteen apart are words of one counter.
            #[unroll]
            for i in 0..comptime!(tile.counters()) {
                let first = key + i * tile.side;
                let words = mask.factors::<W>(row, first / 64 * 16 + first % 16);
                #[unroll]
                for j in 0..comptime!(4 / tile.counters()) {
                    let step = comptime!(j * tile.counters());
                    factors[i + step] = words[(first + step * tile.side) % 64 / 16];
                }
            }
        }
        ComptimeOption::None =>
        {
            #[unroll]
            for i in 0..4usize {
                factors[i] = W::new(1.0);
            }
        }
    }
    factors
}

/// Stores the sums of a unit's four rows of a head, from `first` on.
#[cube]
pub(super) fn store<T: Float, W: Float>(
    sums: &Array<W>,
    to: &mut [T],
    head: &Head,
    first: usize,
    x: usize,
    hidden: usize,
    #[comptime] tile: Tile,
) {
    let slots = comptime!(tile.slots());
    #[unroll]
    for i in 0..4usize {
        let row = first + i * tile.side;
        if row < head.length {
            #[unroll]
            for slot in 0..slots {
                let column = x + slot * tile.side;
                if column < tile.columns {
                    to[(head.start + row) * hidden + head.column + column] =
                        T::cast_from(sums[i * slots + slot]);
                }
            }
        }
    }
}
