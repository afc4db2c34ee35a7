//! Tiles of 64 queries and 64 keys: a cube owns the tile of 64 queries, or keys, whose results it writes, and passes over the others.
//! Logits and weights of a tile are in registers and shared memory alone, so memory grows with N and not with L².
//!
//! A cube has 16 × 16 units. Unit (x, y) computes the logits of its own tokens y, y + 16, y + 32 and y + 48 with the others x,
//! x + 16, x + 32 and x + 48: a vector for each other token, with a lane for each own one.

use crate::cube::launch::UNITS;
use burn_cubecl::cubecl::{self, prelude::*};

/// Queries, or keys, of a tile. Not tuned: each of 256 units computes 4 × 4 of its products.
pub(super) const TILE: usize = 64;
/// Values along K that are in shared memory at a time: each unit fetches one vector.
pub(super) const DEPTH: usize = UNITS / 16;
/// Vectors from one row of shared memory to the next: sixteen, and one so that columns are not all in the same banks.
pub(super) const ROW: usize = 17;
/// Values of a cube's shared memory.
pub(super) const SHARED: usize = (2 * DEPTH + TILE) * ROW * 4;

pub(super) type Four<W> = Vector<W, Const<4>>;

/// A head of a sequence, and a cube's tile of it.
#[derive(CubeType)]
pub(super) struct Head {
    /// The first row of the head's sequence in [N, H].
    pub(super) start: usize,
    /// Tokens of the sequence; 0 for a surplus cube.
    pub(super) length: usize,
    /// The first column of the head in [N, H].
    pub(super) column: usize,
    /// H.
    pub(super) hidden: usize,
    #[cube(comptime)]
    pub(super) columns: usize,
    /// The first row of the head's logits in [B · A · L, L].
    pub(super) logits: usize,
    /// The first row of the head's bias.
    pub(super) bias: usize,
    /// L.
    pub(super) longest: usize,
    /// The first token of the cube's tile.
    pub(super) own: usize,
}

/// What the units of a cube share: a slice of two operands along K, and the weights of a tile, a row for each other token.
#[derive(CubeType)]
pub(super) struct Memory<W: Float> {
    pub(super) own: Shared<[Four<W>]>,
    pub(super) other: Shared<[Four<W>]>,
    pub(super) weights: Shared<[Four<W>]>,
}

#[cube]
impl<W: Float> Memory<W> {
    pub(super) fn new() -> Self {
        Memory::<W> {
            own: Shared::new_slice(comptime!(DEPTH * ROW)),
            other: Shared::new_slice(comptime!(DEPTH * ROW)),
            weights: Shared::new_slice(comptime!(TILE * ROW)),
        }
    }

    pub(super) fn set_weights(&mut self, weights: &Array<Four<W>>) {
        #[unroll]
        for i in 0..4usize {
            self.weights[(x() + 16 * i) * ROW + y()] = weights[i];
        }
    }

    /// The same with a row for each own token.
    pub(super) fn set_transposed(&mut self, weights: &Array<Four<W>>) {
        #[unroll]
        for j in 0..4usize {
            let mut lanes = Four::<W>::new(W::new(0.0));
            #[unroll]
            for i in 0..4usize {
                lanes.insert(i, weights[i].extract(j));
            }
            self.weights[(y() + 16 * j) * ROW + x()] = lanes;
        }
    }

    /// Sum or maximum of what the sixteen units with the same own tokens have, for all of them.
    pub(super) fn reduced(&mut self, lanes: Four<W>, #[comptime] is_max: bool) -> Four<W> {
        self.weights[x() * ROW + y()] = lanes;
        sync_cube();
        let mut all = self.weights[y()];
        for i in 1..16usize {
            let lanes = self.weights[i * ROW + y()];
            all = if comptime!(is_max) { max(all, lanes) } else { all + lanes };
        }
        sync_cube();
        all
    }
}

#[cube]
pub(super) fn x() -> usize {
    UNIT_POS as usize % 16
}

#[cube]
pub(super) fn y() -> usize {
    UNIT_POS as usize / 16
}

#[cube]
pub(super) fn filled<W: Float>(#[comptime] value: f32, #[comptime] vectors: usize) -> Array<Four<W>> {
    let mut array = Array::<Four<W>>::new(vectors);
    #[unroll]
    for i in 0..vectors {
        array[i] = Four::<W>::new(W::new(value));
    }
    array
}

/// Adds up sixteen outer products of a row of each side.
#[cube]
pub(super) fn multiply<W: Float>(
    left: &Shared<[Four<W>]>,
    right: &Shared<[Four<W>]>,
    first_right: usize,
    sums: &mut Array<Four<W>>,
    #[comptime] first: usize,
) {
    for k in 0..DEPTH {
        add_outer::<W>(left[k * ROW + x()], right[first_right + k * ROW + y()], sums, first);
    }
}

/// Adds an outer product: to vector `first` + i the right vector times lane i of the left one.
#[cube]
pub(super) fn add_outer<W: Float>(
    left: Four<W>,
    right: Four<W>,
    sums: &mut Array<Four<W>>,
    #[comptime] first: usize,
) {
    #[unroll]
    for i in 0..4usize {
        sums[comptime!(first + i)] += Four::<W>::new(left.extract(i)) * right;
    }
}

#[cube]
impl Head {
    /// Whether the cube has a tile.
    pub(super) fn exists(&self) -> bool {
        self.own < self.length
    }

    /// Sums of rows [column, own token], 0 to begin with.
    pub(super) fn sums<W: Float>(&self) -> Array<Four<W>> {
        filled::<W>(0.0, comptime!(4 * self.columns.div_ceil(TILE)))
    }

    pub(super) fn own_token(&self, #[comptime] lane: usize) -> usize {
        self.own + y() + 16 * lane
    }

    /// The value in [N, H] of a token's column; 0 where there is none.
    pub(super) fn value<T: Float, W: Float>(&self, rows: &[T], token: usize, column: usize) -> W {
        let mut value = W::new(0.0);
        if token < self.length && column < self.columns {
            value = W::cast_from(rows[(self.start + token) * self.hidden + self.column + column]);
        }
        value
    }

    /// Sixteen columns of a tile from `token` on, a row of memory for each, or 64 columns of sixteen tokens, a row for each token.
    pub(super) fn fetch<T: Float, W: Float>(
        &self,
        rows: &[T],
        token: usize,
        column: usize,
        memory: &mut Shared<[Four<W>]>,
        #[comptime] by_column: bool,
    ) {
        let mut lanes = Four::<W>::new(W::new(0.0));
        #[unroll]
        for i in 0..4usize {
            let token = token + y() + comptime!(if by_column { 16 * i } else { 0 });
            let column = column + x() + comptime!(if by_column { 0 } else { 16 * i });
            lanes.insert(i, self.value::<T, W>(rows, token, column));
        }
        // In both, units side by side read columns side by side.
        if comptime!(by_column) {
            memory[x() * ROW + y()] = lanes;
        } else {
            memory[y() * ROW + x()] = lanes;
        }
    }

    /// Adds to each own token's row those of the others, times the tile's weights.
    pub(super) fn add_weighted<T: Float, W: Float>(
        &self,
        others: &[T],
        other: usize,
        memory: &mut Memory<W>,
        sums: &mut Array<Four<W>>,
    ) {
        #[unroll]
        for block in 0..comptime!(self.columns.div_ceil(TILE)) {
            for slice in 0..comptime!(TILE / DEPTH) {
                let first = slice * DEPTH;
                self.fetch::<T, W>(others, other + first, block * TILE, &mut memory.other, false);
                sync_cube();
                multiply::<W>(&memory.other, &memory.weights, first * ROW, sums, comptime!(4 * block));
                sync_cube();
            }
        }
    }

    /// Writes the rows of own tokens, times a factor of each.
    pub(super) fn store_rows<T: Float, W: Float>(
        &self,
        sums: &Array<Four<W>>,
        factors: Four<W>,
        rows: &mut [T],
    ) {
        #[unroll]
        for i in 0..comptime!(4 * self.columns.div_ceil(TILE)) {
            let (column, lanes) = (x() + 16 * i, sums[i] * factors);
            #[unroll]
            for j in 0..4usize {
                if self.own_token(j) < self.length && column < self.columns {
                    let index = (self.start + self.own_token(j)) * self.hidden + self.column + column;
                    rows[index] = T::cast_from(lanes.extract(j));
                }
            }
        }
    }

    /// The statistics of the queries `first`, `first` + 16 and so on.
    pub(super) fn statistics<W: Float>(&self, values: &[W], first: usize) -> Four<W> {
        let mut lanes = Four::<W>::new(W::new(0.0));
        #[unroll]
        for i in 0..4usize {
            if first + 16 * i < self.length {
                lanes.insert(i, values[self.logits + first + 16 * i]);
            }
        }
        lanes
    }

    pub(super) fn store_statistics<W: Float>(&self, lanes: Four<W>, values: &mut [W]) {
        #[unroll]
        for i in 0..4usize {
            if x() == 0 && self.own_token(i) < self.length {
                values[self.logits + self.own_token(i)] = lanes.extract(i);
            }
        }
    }
}
