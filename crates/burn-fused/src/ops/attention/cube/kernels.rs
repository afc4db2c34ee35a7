//! Attention by tiles of 64 queries and 64 keys: a cube owns the tile of 64 queries, or keys, whose results it writes, and passes
//! over the others. Logits and weights of a tile are in registers and shared memory alone, so memory grows with N and not with L².
//!
//! A cube has 16 × 16 units. Unit (x, y) computes the logits of its own tokens y, y + 16, y + 32 and y + 48 with the others x,
//! x + 16, x + 32 and x + 48: a vector for each other token, with a lane for each own one. Keys that are 16 apart share a Philox
//! counter.

use crate::cube::launch::UNITS;
use crate::cube::mask::Mask;
use crate::cube::totals::store;
use burn_cubecl::cubecl::{self, prelude::*};

/// Queries, or keys, of a tile.
pub(super) const TILE: usize = 64;
/// Values along K that are in shared memory at a time: each unit fetches one vector.
const DEPTH: usize = UNITS / 16;
/// Vectors from one row of shared memory to the next: sixteen, and one so that columns are not all in the same banks.
const ROW: usize = 17;
/// Values of a cube's shared memory.
pub(super) const SHARED: usize = (2 * DEPTH + TILE) * ROW * 4;

type Four<W> = Vector<W, Const<4>>;

/// Where the rows of a batch's sequences begin, what a head is, and what turns products Q · Kᵀ into weights.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Heads<T: Float> {
    /// [B + 1].
    starts: OwnedTensor<i32>,
    /// A.
    heads: usize,
    /// L.
    longest: usize,
    /// How far from its query a key is, at most.
    window: usize,
    scale: InputScalar,
    /// [B, A, L, L].
    bias: ComptimeOption<Box<[T]>>,
    mask: ComptimeOption<Mask>,
    #[cube(comptime)]
    columns: usize,
}

/// A head of a sequence, and a cube's tile of it.
#[derive(CubeType)]
struct Head {
    /// Its first row of [N, H].
    start: usize,
    /// Tokens of the sequence; 0 for a cube that nobody asked for.
    length: usize,
    /// Its first column of [N, H].
    column: usize,
    /// H.
    hidden: usize,
    #[cube(comptime)]
    columns: usize,
    /// Its first row of logits [B · A · L, L].
    logits: usize,
    /// The first token of the cube's tile.
    own: usize,
}

/// What the units of a cube share: a slice of two operands along K, and the weights of a tile, a row for each other token.
#[derive(CubeType)]
struct Memory<W: Float> {
    own: Shared<[Four<W>]>,
    other: Shared<[Four<W>]>,
    weights: Shared<[Four<W>]>,
}

#[cube]
impl<W: Float> Memory<W> {
    fn new() -> Self {
        Memory::<W> {
            own: Shared::new_slice(comptime!(DEPTH * ROW)),
            other: Shared::new_slice(comptime!(DEPTH * ROW)),
            weights: Shared::new_slice(comptime!(TILE * ROW)),
        }
    }

    fn set_weights(&mut self, weights: &Array<Four<W>>) {
        #[unroll]
        for i in 0..4usize {
            self.weights[(x() + 16 * i) * ROW + y()] = weights[i];
        }
    }

    /// Sum or maximum of what the sixteen units with the same own tokens have, for all of them.
    fn reduced(&mut self, lanes: Four<W>, #[comptime] is_max: bool) -> Four<W> {
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
fn x() -> usize {
    UNIT_POS as usize % 16
}

#[cube]
fn y() -> usize {
    UNIT_POS as usize / 16
}

#[cube]
fn filled<W: Float>(#[comptime] value: f32, #[comptime] vectors: usize) -> Array<Four<W>> {
    let mut array = Array::<Four<W>>::new(vectors);
    #[unroll]
    for i in 0..vectors {
        array[i] = Four::<W>::new(W::new(value));
    }
    array
}

/// Adds up sixteen outer products: to vector i the right vector times lane i of the left one.
#[cube]
fn multiply<W: Float>(
    left: &Shared<[Four<W>]>,
    right: &Shared<[Four<W>]>,
    first_right: usize,
    sums: &mut Array<Four<W>>,
    #[comptime] first: usize,
) {
    for k in 0..DEPTH {
        let lanes = left[k * ROW + x()];
        let vector = right[first_right + k * ROW + y()];
        #[unroll]
        for i in 0..4usize {
            sums[comptime!(first + i)] += Four::<W>::new(lanes.extract(i)) * vector;
        }
    }
}

#[cube]
impl Head {
    /// Whether the cube has a tile.
    fn exists(&self) -> bool {
        self.own < self.length
    }

    /// Sums of rows [column, own token], 0 to begin with.
    fn sums<W: Float>(&self) -> Array<Four<W>> {
        filled::<W>(0.0, comptime!(4 * self.columns.div_ceil(TILE)))
    }

    fn own_token(&self, #[comptime] lane: usize) -> usize {
        self.own + y() + 16 * lane
    }

    /// The value in [N, H] of a token's column; 0 where there is none.
    fn value<T: Float, W: Float>(&self, rows: &[T], token: usize, column: usize) -> W {
        let mut value = W::new(0.0);
        if token < self.length && column < self.columns {
            value = W::cast_from(rows[(self.start + token) * self.hidden + self.column + column]);
        }
        value
    }

    /// Sixteen columns of a tile from `token` on, a row of memory for each, or 64 columns of sixteen tokens, a row for each token.
    fn fetch<T: Float, W: Float>(
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

    /// The products of the rows of own tokens and others, a vector for each of a unit's others.
    fn products<T: Float, W: Float>(
        &self,
        own: &[T],
        others: &[T],
        other: usize,
        memory: &mut Memory<W>,
    ) -> Array<Four<W>> {
        let mut sums = filled::<W>(0.0, 4usize);
        for slice in 0..comptime!(self.columns.div_ceil(DEPTH)) {
            self.fetch::<T, W>(own, self.own, slice * DEPTH, &mut memory.own, true);
            self.fetch::<T, W>(others, other, slice * DEPTH, &mut memory.other, true);
            sync_cube();
            multiply::<W>(&memory.other, &memory.own, 0usize, &mut sums, 0usize);
            sync_cube();
        }
        sums
    }

    /// Adds to each own token's row those of the others, times the tile's weights.
    fn add_weighted<T: Float, W: Float>(
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
    fn store_rows<T: Float, W: Float>(&self, sums: &Array<Four<W>>, factors: Four<W>, rows: &mut [T]) {
        #[unroll]
        for i in 0..comptime!(4 * self.columns.div_ceil(TILE)) {
            let (column, lanes) = (x() + 16 * i, sums[i] * factors);
            #[unroll]
            for j in 0..4usize {
                if self.own_token(j) < self.length && column < self.columns {
                    let place = (self.start + self.own_token(j)) * self.hidden + self.column + column;
                    rows[place] = T::cast_from(lanes.extract(j));
                }
            }
        }
    }

    /// The statistics of the queries `first`, `first` + 16 and so on.
    fn statistics<W: Float>(&self, values: &[W], first: usize) -> Four<W> {
        let mut lanes = Four::<W>::new(W::new(0.0));
        #[unroll]
        for i in 0..4usize {
            if first + 16 * i < self.length {
                lanes.insert(i, values[self.logits + first + 16 * i]);
            }
        }
        lanes
    }

    fn store_statistics<W: Float>(&self, lanes: Four<W>, values: &mut [W]) {
        #[unroll]
        for i in 0..4usize {
            if x() == 0 && self.own_token(i) < self.length {
                values[self.logits + self.own_token(i)] = lanes.extract(i);
            }
        }
    }
}

#[cube]
impl<T: Float> Heads<T> {
    fn head(&self) -> Head {
        let tiles = self.longest.div_ceil(TILE);
        let head = CUBE_POS / tiles;
        let sequence = head / self.heads;
        let mut start = 0usize;
        let mut length = 0usize;
        // A device may launch more cubes than were asked for.
        if sequence + 1 < self.starts.len() {
            start = u32::cast_from(self.starts[sequence]) as usize;
            length = u32::cast_from(self.starts[sequence + 1]) as usize - start;
        }
        Head {
            start,
            length,
            column: head % self.heads * self.columns,
            hidden: self.heads * self.columns,
            columns: self.columns,
            logits: head * self.longest,
            own: CUBE_POS % tiles * TILE,
        }
    }

    /// The tiles that have tokens near enough to the cube's: the first, and the one after the last.
    fn tiles(&self, head: &Head) -> (usize, usize) {
        let first = select(head.own > self.window, head.own - self.window, 0usize);
        // No sum is above 2 L + 64.
        let end = clamp_max(head.own + TILE + self.window, head.length);
        (first / TILE, end.div_ceil(TILE))
    }

    /// Query and key of a unit's pair.
    fn pair(
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
    fn score<W: Float>(
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
                            score += W::cast_from(bias[(head.logits + query) * self.longest + key]);
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

    /// What dropout multiplies the weights by.
    fn factors<W: Float>(&self, head: &Head, other: usize, #[comptime] of_keys: bool) -> Array<Four<W>> {
        let mut factors = filled::<W>(1.0, 4usize);
        #[comptime]
        match &self.mask {
            ComptimeOption::Some(mask) => {
                let first_key = if comptime!(of_keys) { head.own + y() } else { other + x() };
                let counter = first_key / TILE * 16 + first_key % TILE;
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

/// O, and of each row of logits its maximum and 1 / Σ exp(S − max).
#[cube(launch, address_type = "dynamic")]
pub(super) fn forward<T: Float, W: Float>(
    query: &[T],
    key: &[T],
    value: &[T],
    layout: &Heads<T>,
    output: &mut [T],
    maxima: &mut [W],
    inverse_sums: &mut [W],
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let head = layout.head();
    if !head.exists() {
        terminate!();
    }
    let mut memory = Memory::<W>::new();
    let mut largest = Four::<W>::new(W::min_value());
    let mut sum = Four::<W>::new(W::new(0.0));
    let mut context = head.sums::<W>();
    let (first, end) = layout.tiles(&head);
    for tile in first..end {
        let other = tile * TILE;
        let mut weights = head.products::<T, W>(query, key, other, &mut memory);
        let attended = layout.score::<W>(&mut weights, &head, other, false);
        let of_tile = max(max(weights[0], weights[1]), max(weights[2], weights[3]));
        let now = max(largest, memory.reduced(of_tile, true));
        // What was added up so far is of a smaller maximum.
        let rescale = (largest - now).exp();
        largest = now;
        sum *= rescale;
        #[unroll]
        for i in 0..comptime!(4 * head.columns.div_ceil(TILE)) {
            context[i] *= rescale;
        }
        let factors = layout.factors::<W>(&head, other, false);
        #[unroll]
        for i in 0..4usize {
            let weight = (weights[i] - largest).exp() * attended[i];
            sum += weight;
            weights[i] = weight * factors[i];
        }
        memory.set_weights(&weights);
        head.add_weighted::<T, W>(value, other, &mut memory, &mut context);
    }
    let inverse_sum = Four::<W>::new(W::new(1.0)) / memory.reduced(sum, false);
    head.store_rows::<T, W>(&context, inverse_sum, output);
    head.store_statistics::<W>(largest, maxima);
    head.store_statistics::<W>(inverse_sum, inverse_sums);
}

/// For queries, which are then `own` with ∂L/∂O, and keys with V the `others`: ∂L/∂Q, the gradient of the bias, and of each row of
/// logits Σ P · ∂L/∂P, which is O · ∂L/∂O. For keys, which are `own` with V, and read these sums: ∂L/∂K and ∂L/∂V.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward<T: Float, W: Float>(
    own: &[T],
    own_beside: &[T],
    others: &[T],
    others_beside: &[T],
    output: &ComptimeOption<Box<[T]>>,
    layout: &Heads<T>,
    maxima: &[W],
    inverse_sums: &[W],
    dots: &mut [W],
    own_grad: &mut [T],
    mut value_grad: ComptimeOption<Box<[T]>>,
    mut bias_grad: ComptimeOption<Box<[T]>>,
    #[comptime] of_keys: bool,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let head = layout.head();
    if !head.exists() {
        terminate!();
    }
    let mut memory = Memory::<W>::new();
    let mut largest = head.statistics::<W>(maxima, head.own + y());
    let mut inverse_sum = head.statistics::<W>(inverse_sums, head.own + y());
    let mut dot = Four::<W>::new(W::new(0.0));
    #[comptime]
    match output {
        ComptimeOption::Some(output) => {
            for i in 0..comptime!(head.columns.div_ceil(16)) {
                #[unroll]
                for j in 0..4usize {
                    let (token, column) = (head.own_token(j), 16 * i + x());
                    let of_output = head.value::<T, W>(output, token, column);
                    let product = of_output * head.value::<T, W>(own_beside, token, column);
                    dot.insert(j, dot.extract(j) + product);
                }
            }
            dot = memory.reduced(dot, false);
            head.store_statistics::<W>(dot, dots);
        }
        ComptimeOption::None => {}
    }
    let mut sums = head.sums::<W>();
    let mut value_sums = head.sums::<W>();
    let (first, end) = layout.tiles(&head);
    for tile in first..end {
        let other = tile * TILE;
        let mut weights = head.products::<T, W>(own, others, other, &mut memory);
        let attended = layout.score::<W>(&mut weights, &head, other, of_keys);
        let mut of_logits = head.products::<T, W>(own_beside, others_beside, other, &mut memory);
        let factors = layout.factors::<W>(&head, other, of_keys);
        if comptime!(of_keys) {
            largest = head.statistics::<W>(maxima, other + x());
            inverse_sum = head.statistics::<W>(inverse_sums, other + x());
            dot = head.statistics::<W>(&*dots, other + x());
        }
        #[unroll]
        for i in 0..4usize {
            let exponent = weights[i] - of_queries::<W>(largest, i, of_keys);
            let weight = exponent.exp() * of_queries::<W>(inverse_sum, i, of_keys) * attended[i];
            of_logits[i] = weight * (of_logits[i] * factors[i] - of_queries::<W>(dot, i, of_keys));
            weights[i] = weight * factors[i];
            #[unroll]
            for j in 0..4usize {
                let (query, key) = layout.pair(&head, other, i, j, of_keys);
                if query < head.length && key < head.length {
                    let place = (head.logits + query) * layout.longest + key;
                    store::<T, W>(&mut bias_grad, place, of_logits[i].extract(j));
                }
            }
        }
        if comptime!(of_keys) {
            memory.set_weights(&weights);
            head.add_weighted::<T, W>(others_beside, other, &mut memory, &mut value_sums);
        }
        memory.set_weights(&of_logits);
        head.add_weighted::<T, W>(others, other, &mut memory, &mut sums);
    }
    head.store_rows::<T, W>(&sums, Four::<W>::new(layout.scale.get::<W>()), own_grad);
    #[comptime]
    match &mut value_grad {
        ComptimeOption::Some(grad) => head.store_rows::<T, W>(&value_sums, Four::<W>::new(W::new(1.0)), grad),
        ComptimeOption::None => {}
    }
}

/// Statistics beside vector `i`, whose lanes are queries, or keys of one query.
#[cube]
fn of_queries<W: Float>(statistics: Four<W>, #[comptime] i: usize, #[comptime] of_keys: bool) -> Four<W> {
    if comptime!(of_keys) { Four::<W>::new(statistics.extract(i)) } else { statistics }
}
