//! The heads of a batch: which pairs of a tile's tokens attend to each other, with what weights and gradients.

use super::distances::Distances;
use super::tile::{DEPTH, Four, Head, Memory, TILE, filled, multiply, x, y};
use crate::cube::mask::Mask;
use crate::numerics::philox::{GROUP, LANES};
use burn_cubecl::cubecl::{self, prelude::*};

/// The sequences of a batch, its heads, and what turns products Q · Kᵀ into weights.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Heads<T: Float> {
    /// [B + 1].
    pub(super) starts: OwnedTensor<i32>,
    /// A.
    pub(super) heads: usize,
    /// L.
    pub(super) longest: usize,
    /// How far from its query a key is, at most.
    window: usize,
    pub(super) scale: InputScalar,
    /// [B, A, L, L] or [1, A, L, L].
    bias: ComptimeOption<Box<[T]>>,
    pub(super) distances: Distances<T>,
    mask: ComptimeOption<Mask>,
    #[cube(comptime)]
    columns: usize,
}

#[cube]
impl<T: Float> Heads<T> {
    /// The head that a cube has a tile of tokens of.
    pub(super) fn head(&self) -> Head {
        let tiles = self.tiles();
        self.tile(CUBE_POS / tiles, CUBE_POS % tiles)
    }

    /// How many tiles the longest sequence has.
    pub(super) fn tiles(&self) -> usize {
        self.longest.div_ceil(TILE)
    }

    /// The tile of a head among B · A; without tokens if there are not so many.
    pub(super) fn tile(&self, head: usize, tile: usize) -> Head {
        let sequence = head / self.heads;
        let mut start = 0usize;
        let mut length = 0usize;
        if sequence + 1 < self.starts.len() {
            start = u32::cast_from(self.starts[sequence]) as usize;
            length = u32::cast_from(self.starts[sequence + 1]) as usize - start;
        }
        let logits = head * self.longest;
        #[comptime]
        let bias = match &self.bias {
            // One for all sequences repeats.
            ComptimeOption::Some(bias) => logits % (bias.len() / self.longest),
            ComptimeOption::None => logits,
        };
        Head {
            start,
            length,
            column: head % self.heads * self.columns,
            hidden: self.heads * self.columns,
            columns: self.columns,
            logits,
            bias,
            longest: self.longest,
            own: tile * TILE,
        }
    }

    /// The tiles that have tokens near enough to the cube's: the first, and the one after the last.
    pub(super) fn near(&self, head: &Head) -> (usize, usize) {
        let first = select(head.own > self.window, head.own - self.window, 0usize);
        // No sum is above 2 L + 64.
        let end = clamp_max(head.own + TILE + self.window, head.length);
        (first / TILE, end.div_ceil(TILE))
    }

    /// Query and key of a unit's pair.
    pub(super) fn pair(
        &self,
        head: &Head,
        other: usize,
        #[comptime] vector: usize,
        #[comptime] lane: usize,
        #[comptime] of_keys: bool,
    ) -> (usize, usize) {
        let (own, other) = (head.own_token(lane), other + x() + 16 * vector);
        if comptime!(of_keys) { (other, own) } else { (own, other) }
    }

    /// Turns products into logits, the lowest value where a query does not attend to a key. Returns 1 for each pair where it
    /// does, and 0 for the others.
    pub(super) fn score<W: Float>(
        &self,
        products: &mut Array<Four<W>>,
        head: &Head,
        other: usize,
        #[comptime] of_keys: bool,
    ) -> Array<Four<W>> {
        let mut attended = filled::<W>(0.0, 4usize);
        #[unroll]
        for i in 0..4usize {
            let mut lanes = products[i];
            let mut exist = attended[i];
            #[unroll]
            for j in 0..4usize {
                let (query, key) = self.pair(head, other, i, j, of_keys);
                let is_near = key <= query + self.window && query <= key + self.window;
                let mut score = W::min_value();
                if query < head.length && key < head.length && is_near {
                    score = lanes.extract(j) * self.scale.get::<W>();
                    #[comptime]
                    match &self.bias {
                        ComptimeOption::Some(bias) => {
                            score += W::cast_from(bias[(head.bias + query) * self.longest + key]);
                        }
                        ComptimeOption::None => {}
                    }
                    exist.insert(j, W::new(1.0));
                }
                lanes.insert(j, score);
            }
            products[i] = lanes;
            attended[i] = exist;
        }
        attended
    }

    /// The products of the rows of own tokens and others, a vector for each of a unit's others. Of queries and keys, where `of_keys`
    /// says whether keys are own, with the vectors of their distances too.
    pub(super) fn products<W: Float>(
        &self,
        head: &Head,
        own: &[T],
        others: &[T],
        other: usize,
        memory: &mut Memory<W>,
        #[comptime] of_keys: Option<bool>,
    ) -> Array<Four<W>> {
        let mut sums = filled::<W>(0.0, 4usize);
        for slice in 0..comptime!(self.columns.div_ceil(DEPTH)) {
            let column = slice * DEPTH;
            head.fetch::<T, W>(own, head.own, column, &mut memory.own, true);
            head.fetch::<T, W>(others, other, column, &mut memory.other, true);
            if comptime!(of_keys.is_some()) {
                self.distances.fetch::<W>(head, other, column, memory, comptime!(of_keys == Some(true)));
            }
            sync_cube();
            multiply::<W>(&memory.other, &memory.own, 0usize, &mut sums, 0usize);
            if comptime!(of_keys.is_some()) {
                self.distances.multiply::<W>(memory, &mut sums, comptime!(of_keys == Some(true)));
            }
            sync_cube();
        }
        sums
    }

    /// What dropout multiplies the weights by.
    pub(super) fn factors<W: Float>(
        &self,
        head: &Head,
        other: usize,
        #[comptime] of_keys: bool,
    ) -> Array<Four<W>> {
        let mut factors = filled::<W>(1.0, 4usize);
        #[comptime]
        match &self.mask {
            ComptimeOption::Some(mask) => {
                let first_key = if comptime!(of_keys) { head.own + y() } else { other + x() };
                // Keys that are 16 apart share it, as units of a tile and words of a counter do.
                let counter = first_key / GROUP * LANES + first_key % GROUP;
                #[unroll]
                for i in 0..4usize {
                    let first_query = if comptime!(of_keys) { other + x() } else { head.own + y() };
                    let of_keys_of_query = mask.factors::<W>(head.logits + first_query + 16 * i, counter);
                    #[unroll]
                    for j in 0..4usize {
                        let vector = comptime!(if of_keys { i } else { j });
                        let mut lanes = factors[vector];
                        lanes.insert(comptime!(if of_keys { j } else { i }), of_keys_of_query[j]);
                        factors[vector] = lanes;
                    }
                }
            }
            ComptimeOption::None => {}
        }
        factors
    }
}

/// What the backward knows of each query: its row's maximum, inverse sum, and Σ P · ∂L/∂P.
#[derive(CubeType)]
pub(super) struct Statistics<W: Float> {
    pub(super) largest: Four<W>,
    pub(super) inverse_sum: Four<W>,
    pub(super) dot: Four<W>,
}

#[cube]
impl<W: Float> Statistics<W> {
    pub(super) fn read(head: &Head, maxima: &[W], inverse_sums: &[W], dots: &[W], first: usize) -> Self {
        Statistics::<W> {
            largest: head.statistics::<W>(maxima, first),
            inverse_sum: head.statistics::<W>(inverse_sums, first),
            dot: head.statistics::<W>(dots, first),
        }
    }
}

/// Turns a tile's logits into the weights that values are multiplied with, and products of values and gradients into the gradients of
/// the logits.
#[cube]
pub(super) fn differentiate<W: Float>(
    weights: &mut Array<Four<W>>,
    of_logits: &mut Array<Four<W>>,
    attended: &Array<Four<W>>,
    factors: &Array<Four<W>>,
    statistics: &Statistics<W>,
    #[comptime] of_keys: bool,
) {
    #[unroll]
    for i in 0..4usize {
        let exponent = weights[i] - query_statistics::<W>(statistics.largest, i, of_keys);
        let inverse_sum = query_statistics::<W>(statistics.inverse_sum, i, of_keys);
        let weight = exponent.exp() * inverse_sum * attended[i];
        let dot = query_statistics::<W>(statistics.dot, i, of_keys);
        of_logits[i] = weight * (of_logits[i] * factors[i] - dot);
        weights[i] = weight * factors[i];
    }
}

/// Statistics beside vector `i`, whose lanes are queries, or keys of one query.
#[cube]
fn query_statistics<W: Float>(
    statistics: Four<W>,
    #[comptime] i: usize,
    #[comptime] of_keys: bool,
) -> Four<W> {
    if comptime!(of_keys) { Four::<W>::new(statistics.extract(i)) } else { statistics }
}
