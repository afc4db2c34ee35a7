//! Vectors of distances: what they add to a tile's logits, and their part in the gradients.
//!
//! Of a tile's own tokens and others there are 127 distances. Slot s is of others 63 − s places before their own token, so that the slot
//! of unit (x, y)'s pairs is 63 + x − y, or that and a multiple of 16: seven slots for its sixteen pairs.

use super::tile::{DEPTH, Four, Head, Memory, ROW, TILE, add_outer, filled, x, y};
use burn_cubecl::cubecl::{self, prelude::*};

/// The slots of a tile, and one that no pair has.
const SLOTS: usize = 2 * TILE;
/// Vectors along K of a slice.
const GROUPS: usize = DEPTH / 4;

/// What queries and keys are multiplied with, [2L − 1, H] each: row j − i + L − 1 for query i and key j.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Distances<T: Float> {
    by_query: ComptimeOption<Box<[T]>>,
    by_key: ComptimeOption<Box<[T]>>,
}

#[cube]
impl<T: Float> Distances<T> {
    /// Puts a slice of the tile's vectors along K where the tile's weights will be.
    pub(super) fn fetch<W: Float>(
        &self,
        head: &Head,
        other: usize,
        column: usize,
        memory: &mut Memory<W>,
        #[comptime] of_keys: bool,
    ) {
        #[comptime]
        match &self.by_query {
            ComptimeOption::Some(vectors) => {
                fetch::<T, W>(vectors, head, other, column, &mut memory.weights, 0usize, of_keys);
            }
            ComptimeOption::None => {}
        }
        #[comptime]
        match &self.by_key {
            ComptimeOption::Some(vectors) => {
                fetch::<T, W>(vectors, head, other, column, &mut memory.weights, GROUPS * SLOTS, of_keys);
            }
            ComptimeOption::None => {}
        }
    }

    /// Adds the products of what was fetched to those of a unit's pairs.
    pub(super) fn multiply<W: Float>(
        &self,
        memory: &mut Memory<W>,
        sums: &mut Array<Four<W>>,
        #[comptime] of_keys: bool,
    ) {
        if self.by_query.is_some() {
            multiply::<W>(memory, 0usize, sums, of_keys);
        }
        if self.by_key.is_some() {
            multiply::<W>(memory, GROUPS * SLOTS, sums, !of_keys);
        }
    }

    /// Adds to each own token's row the vectors of its distances to the others, times the tile's weights.
    pub(super) fn add_weighted<W: Float>(
        &self,
        head: &Head,
        other: usize,
        memory: &mut Memory<W>,
        sums: &mut Array<Four<W>>,
        #[comptime] of_keys: bool,
    ) {
        #[comptime]
        match if of_keys { &self.by_key } else { &self.by_query } {
            ComptimeOption::Some(vectors) =>
            {
                #[unroll]
                for block in 0..comptime!(head.columns.div_ceil(TILE)) {
                    for slice in 0..comptime!(SLOTS / DEPTH) {
                        let first = slice * DEPTH;
                        let mut lanes = Four::<W>::new(W::new(0.0));
                        #[unroll]
                        for i in 0..4usize {
                            let column = block * TILE + x() + 16 * i;
                            lanes
                                .insert(i, value::<T, W>(vectors, head, other, first + y(), column, of_keys));
                        }
                        memory.other[y() * ROW + x()] = lanes;
                        sync_cube();
                        for k in 0..DEPTH {
                            let mut weights = Four::<W>::new(W::new(0.0));
                            #[unroll]
                            for j in 0..4usize {
                                let place = first + k + y() + 16 * j;
                                if place + 1 >= TILE && place + 1 < SLOTS {
                                    let row = memory.weights[(place + 1 - TILE) * ROW + y()];
                                    weights.insert(j, row.extract(j));
                                }
                            }
                            add_outer::<W>(memory.other[k * ROW + x()], weights, sums, comptime!(4 * block));
                        }
                        sync_cube();
                    }
                }
            }
            ComptimeOption::None => {}
        }
    }
}

/// The value of a slot's vector; 0 where there is none.
#[cube]
fn value<T: Float, W: Float>(
    vectors: &[T],
    head: &Head,
    other: usize,
    slot: usize,
    column: usize,
    #[comptime] of_keys: bool,
) -> W {
    // Row key − query + L − 1, as a difference of numbers that are not negative.
    let own = head.own + TILE - 1;
    let other = other + slot;
    let (more, less) =
        if comptime!(of_keys) { (head.longest - 1 + own, other) } else { (head.longest - 1 + other, own) };
    let mut value = W::new(0.0);
    if more >= less && more - less + 1 < 2 * head.longest && column < head.columns {
        value = W::cast_from(vectors[(more - less) * head.hidden + head.column + column]);
    }
    value
}

/// Sixteen columns of the vectors of a tile's slots, four of them in each vector of memory.
#[cube]
fn fetch<T: Float, W: Float>(
    vectors: &[T],
    head: &Head,
    other: usize,
    column: usize,
    memory: &mut Shared<[Four<W>]>,
    #[comptime] first: usize,
    #[comptime] of_keys: bool,
) {
    // Units side by side read columns side by side.
    let (group, unit) = (UNIT_POS as usize % GROUPS, UNIT_POS as usize / GROUPS);
    #[unroll]
    for half in 0..2usize {
        let slot = unit + TILE * half;
        let mut lanes = Four::<W>::new(W::new(0.0));
        #[unroll]
        for i in 0..4usize {
            let column = column + 4 * group + i;
            lanes.insert(i, value::<T, W>(vectors, head, other, slot, column, of_keys));
        }
        memory[first + group * SLOTS + slot] = lanes;
    }
}

/// Adds to each product of a unit that of its own token, or of the other, with the vector of their distance.
#[cube]
fn multiply<W: Float>(
    memory: &mut Memory<W>,
    #[comptime] first: usize,
    sums: &mut Array<Four<W>>,
    #[comptime] of_others: bool,
) {
    #[unroll]
    for group in 0..GROUPS {
        let mut slots = filled::<W>(0.0, 7usize);
        #[unroll]
        for i in 0..7usize {
            slots[i] = memory.weights[first + group * SLOTS + 15 + x() + 16 * i - y()];
        }
        #[unroll]
        for k in 0..4usize {
            let row = (4 * group + k) * ROW;
            let tokens = if comptime!(of_others) { memory.other[row + x()] } else { memory.own[row + y()] };
            #[unroll]
            for i in 0..4usize {
                let mut vector = Four::<W>::new(W::new(0.0));
                #[unroll]
                for j in 0..4usize {
                    vector.insert(j, slots[comptime!(3 + i - j)].extract(k));
                }
                let tokens = if comptime!(of_others) { Four::<W>::new(tokens.extract(i)) } else { tokens };
                sums[i] += tokens * vector;
            }
        }
    }
}

/// Adds the rows of a tile's queries from `token` on, or of its keys, to the distances that the cube has, times the weights of their
/// pairs. The weights' rows are of the other side; `further` is 1 for the further of two tiles of keys.
#[cube]
pub(super) fn add_by_distance<T: Float, W: Float>(
    head: &Head,
    rows: &[T],
    token: usize,
    memory: &mut Memory<W>,
    sums: &mut Array<Four<W>>,
    further: usize,
    #[comptime] of_keys: bool,
) {
    #[unroll]
    for block in 0..comptime!(head.columns.div_ceil(TILE)) {
        #[unroll]
        for slice in 0..comptime!(TILE / DEPTH) {
            let first = comptime!(slice * DEPTH);
            head.fetch::<T, W>(rows, token + first, block * TILE, &mut memory.other, false);
            sync_cube();
            for k in 0..DEPTH {
                let mut weights = Four::<W>::new(W::new(0.0));
                #[unroll]
                for j in 0..4usize {
                    let distance = y() + 16 * j;
                    // The query of a key is as far before it as the key of a query is behind it.
                    let place = first + k + if comptime!(of_keys) { TILE - distance } else { distance };
                    let tile = if comptime!(of_keys) { 1 - further } else { further };
                    if place / TILE == tile {
                        weights.insert(j, memory.weights[place % TILE * ROW + k].extract(slice));
                    }
                }
                add_outer::<W>(memory.other[k * ROW + x()], weights, sums, comptime!(4 * block));
            }
            sync_cube();
        }
    }
}

/// Writes the sums of a cube's distances, times `scale`, to the share that a sequence has.
#[cube]
pub(super) fn store_distances<W: Float>(
    head: &Head,
    sums: &Array<Four<W>>,
    scale: W,
    sequence: usize,
    first: usize,
    shares: &mut ComptimeOption<Box<[W]>>,
) {
    #[comptime]
    match shares {
        ComptimeOption::Some(shares) => {
            #[unroll]
            for i in 0..comptime!(4 * head.columns.div_ceil(TILE)) {
                #[unroll]
                for j in 0..4usize {
                    // Distance 0 is in the middle of the cubes' distances, and of the rows.
                    let (place, column) = (first + y() + 16 * j + head.longest, x() + 16 * i);
                    let before = head.longest.div_ceil(TILE) * TILE + 1;
                    if place >= before && place - before + 1 < 2 * head.longest && column < head.columns {
                        let row = sequence * (2 * head.longest - 1) + place - before;
                        shares[row * head.hidden + head.column + column] = sums[i].extract(j) * scale;
                    }
                }
            }
        }
        ComptimeOption::None => {}
    }
}
