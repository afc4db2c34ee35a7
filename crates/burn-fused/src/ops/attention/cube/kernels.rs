//! Attention by tiles of 64 queries and 64 keys, one cube for each tile of queries, or of keys: a tile's products and weights
//! are in registers and shared memory alone, so that what a launch reads and writes grows with N and not with L².
//!
//! A cube has 16 × 16 units. Unit (x, y) has the products of queries 4y to 4y + 3 with keys x, x + 16, x + 32 and x + 48, which
//! share a Philox counter, in four vectors: one for each key, of its queries, or one for each query, of its keys.

use crate::cube::mask::Mask;
use burn_cubecl::cubecl::{self, prelude::*};

/// Queries, and keys, of a tile.
pub(super) const TILE: usize = 64;
/// Units of a cube.
pub(super) const UNITS: usize = 256;
/// Values along K that are in shared memory at a time.
const DEPTH: usize = 16;
/// Vectors of a row in shared memory, and one more: sixteen rows then begin in different banks.
const ROW: usize = TILE / 4 + 1;
/// Values of a cube's shared memory: parts of two operands, and weights.
pub(super) const SHARED: usize = (2 * DEPTH + TILE) * ROW * 4;

type Four<W> = Vector<W, Const<4>>;

/// Where the rows of a batch's sequences begin, what a head is, and what turns products Q · Kᵀ into logits and weights.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Heads<W: Float> {
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
    bias: ComptimeOption<Box<[W]>>,
    mask: ComptimeOption<Mask>,
    #[cube(comptime)]
    columns: usize,
}

/// A head of a sequence, and a cube's tile of it.
#[derive(CubeType)]
struct Head {
    /// Its first row of [N, H].
    start: usize,
    length: usize,
    /// Its first column of [N, H].
    column: usize,
    /// H.
    hidden: usize,
    #[cube(comptime)]
    columns: usize,
    /// Its first row of logits [B · A · L, L].
    logits: usize,
    /// Of the sequence's tokens, the tile's.
    tile: usize,
}

/// The pairs of a unit in the tiles that begin with a query and a key.
#[derive(CubeType)]
struct Pairs {
    query: usize,
    key: usize,
}

#[cube]
impl Pairs {
    fn query(&self, #[comptime] i: usize) -> usize {
        self.query + token(y(), i, false)
    }

    fn key(&self, #[comptime] i: usize) -> usize {
        self.key + token(x(), i, true)
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

/// Of a tile of queries, or keys, token `i` of a vector.
#[cube]
fn token(vector: usize, #[comptime] i: usize, #[comptime] of_keys: bool) -> usize {
    if comptime!(of_keys) { vector + 16 * i } else { 4 * vector + i }
}

#[cube]
fn filled<W: Float>(#[comptime] value: f32, #[comptime] count: usize) -> Array<Four<W>> {
    let mut vectors = Array::<Four<W>>::new(count);
    #[unroll]
    for i in 0..count {
        vectors[i] = Four::<W>::new(W::new(value));
    }
    vectors
}

#[cube]
impl Head {
    /// The place in [N, H] of a token's value in one of the head's columns.
    fn place(&self, token: usize, column: usize) -> usize {
        (self.start + token) * self.hidden + self.column + column
    }

    /// That value; 0 where there is none.
    fn value<T: Float, W: Float>(&self, rows: &[T], token: usize, column: usize) -> W {
        let mut value = W::new(0.0);
        if token < self.length && column < self.columns {
            value = W::cast_from(rows[self.place(token, column)]);
        }
        value
    }

    /// What there is of each query of a unit.
    fn of_queries<W: Float>(&self, values: &[W], pairs: &Pairs) -> Four<W> {
        let mut four = Four::<W>::new(W::new(0.0));
        #[unroll]
        for i in 0..4usize {
            if pairs.query(i) < self.length {
                four.insert(i, values[self.logits + pairs.query(i)]);
            }
        }
        four
    }

    fn store_of_queries<W: Float>(&self, four: Four<W>, pairs: &Pairs, values: &mut [W]) {
        #[unroll]
        for i in 0..4usize {
            if x() == 0 && pairs.query(i) < self.length {
                values[self.logits + pairs.query(i)] = four.extract(i);
            }
        }
    }

    /// Sixteen columns of a tile's tokens: a row for each column.
    fn fetch_columns<T: Float, W: Float>(
        &self,
        rows: &[T],
        first: usize,
        column: usize,
        part: &mut Shared<[Four<W>]>,
        #[comptime] of_keys: bool,
    ) {
        let mut four = Four::<W>::new(W::new(0.0));
        #[unroll]
        for i in 0..4usize {
            four.insert(i, self.value::<T, W>(rows, first + token(y(), i, of_keys), column + x()));
        }
        part[x() * ROW + y()] = four;
    }

    /// 64 columns of sixteen tokens: a row for each token.
    fn fetch_tokens<T: Float, W: Float>(
        &self,
        rows: &[T],
        first: usize,
        column: usize,
        part: &mut Shared<[Four<W>]>,
    ) {
        let mut four = Four::<W>::new(W::new(0.0));
        #[unroll]
        for i in 0..4usize {
            four.insert(i, self.value::<T, W>(rows, first + y(), column + 4 * x() + i));
        }
        part[y() * ROW + x()] = four;
    }

    /// A unit's products of queries and keys.
    fn products<T: Float, W: Float>(
        &self,
        queries: &[T],
        keys: &[T],
        pairs: &Pairs,
        parts: &mut Parts<W>,
        #[comptime] of_keys: bool,
    ) -> Array<Four<W>> {
        let mut sums = filled::<W>(0.0, 4usize);
        for part in 0..comptime!(self.columns.div_ceil(DEPTH)) {
            self.fetch_columns::<T, W>(queries, pairs.query, part * DEPTH, &mut parts.left, false);
            self.fetch_columns::<T, W>(keys, pairs.key, part * DEPTH, &mut parts.right, true);
            sync_cube();
            if comptime!(of_keys) {
                multiply::<W>(&parts.right, x(), &parts.left, y(), &mut sums, 0usize);
            } else {
                multiply::<W>(&parts.left, y(), &parts.right, x(), &mut sums, 0usize);
            }
            sync_cube();
        }
        sums
    }

    /// Adds to `sums`, [column, four tokens], the products of a tile of weights and the rows of the tokens from `first` on.
    fn add_weighted<T: Float, W: Float>(
        &self,
        rows: &[T],
        first: usize,
        parts: &mut Parts<W>,
        sums: &mut Array<Four<W>>,
    ) {
        #[unroll]
        for block in 0..comptime!(self.columns.div_ceil(TILE)) {
            for part in 0..comptime!(TILE / DEPTH) {
                self.fetch_tokens::<T, W>(rows, first + part * DEPTH, block * TILE, &mut parts.left);
                sync_cube();
                let weights = part * comptime!(DEPTH * ROW) + y();
                multiply::<W>(&parts.left, x(), &parts.weights, weights, sums, comptime!(4 * block));
                sync_cube();
            }
        }
    }

    /// Writes `sums`, [column, four tokens], times the factors of these tokens.
    fn store<T: Float, W: Float>(
        &self,
        sums: &Array<Four<W>>,
        factors: Four<W>,
        output: &mut [T],
        #[comptime] of_keys: bool,
    ) {
        #[unroll]
        for i in 0..comptime!(4 * self.columns.div_ceil(TILE)) {
            let column = comptime!(i / 4 * TILE + i % 4) + 4 * x();
            let values = sums[i] * factors;
            #[unroll]
            for j in 0..4usize {
                let token = self.tile + token(y(), j, of_keys);
                if token < self.length && column < self.columns {
                    output[self.place(token, column)] = T::cast_from(values.extract(j));
                }
            }
        }
    }
}

/// What the units of a cube share.
#[derive(CubeType)]
struct Parts<W: Float> {
    left: Shared<[Four<W>]>,
    right: Shared<[Four<W>]>,
    weights: Shared<[Four<W>]>,
}

#[cube]
impl<W: Float> Parts<W> {
    fn new() -> Self {
        Parts::<W> {
            left: Shared::new_slice(comptime!(DEPTH * ROW)),
            right: Shared::new_slice(comptime!(DEPTH * ROW)),
            weights: Shared::new_slice(comptime!(TILE * ROW)),
        }
    }

    /// Sum or maximum of what the sixteen units have that share queries, for all of them.
    fn reduced(&mut self, four: Four<W>, #[comptime] is_max: bool) -> Four<W> {
        self.weights[x() * ROW + y()] = four;
        sync_cube();
        let mut found = self.weights[y()];
        for i in 1..16usize {
            let other = self.weights[i * ROW + y()];
            found = if comptime!(is_max) { max(found, other) } else { found + other };
        }
        sync_cube();
        found
    }
}

/// Adds sixteen outer products, of which each value on the left gives a vector.
#[cube]
fn multiply<W: Float>(
    left: &Shared<[Four<W>]>,
    left_at: usize,
    right: &Shared<[Four<W>]>,
    right_at: usize,
    sums: &mut Array<Four<W>>,
    #[comptime] to: usize,
) {
    for k in 0..DEPTH {
        let values = left[left_at + k * ROW];
        let vector = right[right_at + k * ROW];
        #[unroll]
        for i in 0..4usize {
            sums[comptime!(to + i)] += Four::<W>::new(values.extract(i)) * vector;
        }
    }
}

#[cube]
impl<W: Float> Heads<W> {
    fn head(&self) -> Head {
        let tiles = self.longest.div_ceil(TILE);
        let head = CUBE_POS / tiles;
        let sequence = head / self.heads;
        let start = u32::cast_from(self.starts[sequence]) as usize;
        Head {
            start,
            length: u32::cast_from(self.starts[sequence + 1]) as usize - start,
            column: head % self.heads * self.columns,
            hidden: self.heads * self.columns,
            columns: self.columns,
            logits: head * self.longest,
            tile: CUBE_POS % tiles * TILE,
        }
    }

    /// The tiles that have tokens which see one of the head's tile: the first, and the one after the last.
    fn tiles(&self, head: &Head) -> (usize, usize) {
        let first = select(head.tile > self.window, head.tile - self.window, 0usize);
        // No sum is above 2 L + 64.
        let end = clamp_max(head.tile + TILE + self.window, head.length);
        (first / TILE, end.div_ceil(TILE))
    }

    /// Turns a unit's products into logits, the lowest value where a query does not attend to a key. Returns 1 for each pair
    /// where it does, and 0 for the others.
    fn score(
        &self,
        products: &mut Array<Four<W>>,
        head: &Head,
        pairs: &Pairs,
        #[comptime] of_keys: bool,
    ) -> Array<Four<W>> {
        let mut attended = filled::<W>(0.0, 4usize);
        #[unroll]
        for i in 0..4usize {
            let mut scores = products[i];
            let mut exist = attended[i];
            #[unroll]
            for j in 0..4usize {
                let query = pairs.query(comptime!(if of_keys { j } else { i }));
                let key = pairs.key(comptime!(if of_keys { i } else { j }));
                let is_near = key <= query + self.window && query <= key + self.window;
                let mut score = W::min_value();
                if query < head.length && key < head.length && is_near {
                    score = scores.extract(j) * self.scale.get::<W>();
                    #[comptime]
                    match &self.bias {
                        ComptimeOption::Some(bias) => {
                            score += bias[(head.logits + query) * self.longest + key];
                        }
                        ComptimeOption::None => {}
                    }
                    exist.insert(j, W::new(1.0));
                }
                scores.insert(j, score);
            }
            products[i] = scores;
            attended[i] = exist;
        }
        attended
    }

    /// What dropout multiplies a unit's weights by.
    fn factors(&self, head: &Head, pairs: &Pairs, #[comptime] of_keys: bool) -> Array<Four<W>> {
        let mut factors = filled::<W>(1.0, 4usize);
        #[comptime]
        match &self.mask {
            ComptimeOption::Some(mask) =>
            {
                #[unroll]
                for query in 0..4usize {
                    let counter = pairs.key / TILE * 16 + x();
                    let of_query = mask.factors::<W>(head.logits + pairs.query(query), counter);
                    #[unroll]
                    for key in 0..4usize {
                        let vector = comptime!(if of_keys { key } else { query });
                        let mut found = factors[vector];
                        found.insert(comptime!(if of_keys { query } else { key }), of_query[key]);
                        factors[vector] = found;
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
    layout: &Heads<W>,
    output: &mut [T],
    maxima: &mut [W],
    inverse_sums: &mut [W],
    cubes: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let head = layout.head();
    if CUBE_POS >= cubes || head.tile >= head.length {
        terminate!();
    }
    let mut parts = Parts::<W>::new();
    let mut largest = Four::<W>::new(W::min_value());
    let mut sum = Four::<W>::new(W::new(0.0));
    let mut context = filled::<W>(0.0, comptime!(4 * head.columns.div_ceil(TILE)));
    let (first, end) = layout.tiles(&head);
    for tile in first..end {
        let pairs = Pairs { query: head.tile, key: tile * TILE };
        let mut scores = head.products::<T, W>(query, key, &pairs, &mut parts, true);
        let attended = layout.score(&mut scores, &head, &pairs, true);
        let found = max(max(scores[0], scores[1]), max(scores[2], scores[3]));
        let found = max(largest, parts.reduced(found, true));
        // What was added up so far is of a smaller maximum.
        let before = (largest - found).exp();
        largest = found;
        sum *= before;
        #[unroll]
        for i in 0..comptime!(4 * head.columns.div_ceil(TILE)) {
            context[i] *= before;
        }
        let factors = layout.factors(&head, &pairs, true);
        #[unroll]
        for i in 0..4usize {
            let weight = (scores[i] - largest).exp() * attended[i];
            sum += weight;
            parts.weights[token(x(), i, true) * ROW + y()] = weight * factors[i];
        }
        head.add_weighted::<T, W>(value, pairs.key, &mut parts, &mut context);
    }
    let pairs = Pairs { query: head.tile, key: 0 };
    let inverse_sum = Four::<W>::new(W::new(1.0)) / parts.reduced(sum, false);
    head.store::<T, W>(&context, inverse_sum, output, false);
    head.store_of_queries::<W>(largest, &pairs, maxima);
    head.store_of_queries::<W>(inverse_sum, &pairs, inverse_sums);
}

/// ∂L/∂Q, the gradient of the bias, and for each row of logits Σ P · ∂L/∂P, which is the product of its rows of O and
/// ∂L/∂O.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward_of_queries<T: Float, W: Float>(
    query: &[T],
    key: &[T],
    value: &[T],
    output: &[T],
    grad: &[T],
    layout: &Heads<W>,
    maxima: &[W],
    inverse_sums: &[W],
    query_grad: &mut [T],
    mut bias_grad: ComptimeOption<Box<[W]>>,
    along: &mut [W],
    cubes: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let head = layout.head();
    if CUBE_POS >= cubes || head.tile >= head.length {
        terminate!();
    }
    let mut parts = Parts::<W>::new();
    let pairs = Pairs { query: head.tile, key: 0 };
    let largest = head.of_queries::<W>(maxima, &pairs);
    let inverse_sum = head.of_queries::<W>(inverse_sums, &pairs);
    let mut dot = Four::<W>::new(W::new(0.0));
    for i in 0..comptime!(head.columns.div_ceil(16)) {
        #[unroll]
        for j in 0..4usize {
            let (token, column) = (pairs.query(j), i * 16 + x());
            let value = head.value::<T, W>(output, token, column) * head.value::<T, W>(grad, token, column);
            dot.insert(j, dot.extract(j) + value);
        }
    }
    let dot = parts.reduced(dot, false);
    head.store_of_queries::<W>(dot, &pairs, along);
    let mut sums = filled::<W>(0.0, comptime!(4 * head.columns.div_ceil(TILE)));
    let (first, end) = layout.tiles(&head);
    for tile in first..end {
        let pairs = Pairs { query: head.tile, key: tile * TILE };
        let mut scores = head.products::<T, W>(query, key, &pairs, &mut parts, true);
        let attended = layout.score(&mut scores, &head, &pairs, true);
        let of_weights = head.products::<T, W>(grad, value, &pairs, &mut parts, true);
        let factors = layout.factors(&head, &pairs, true);
        #[unroll]
        for i in 0..4usize {
            let weight = (scores[i] - largest).exp() * inverse_sum * attended[i];
            let of_logits = weight * (of_weights[i] * factors[i] - dot);
            parts.weights[token(x(), i, true) * ROW + y()] = of_logits;
            #[comptime]
            match &mut bias_grad {
                ComptimeOption::Some(bias_grad) =>
                {
                    #[unroll]
                    for j in 0..4usize {
                        if pairs.query(j) < head.length && pairs.key(i) < head.length {
                            let row = head.logits + pairs.query(j);
                            bias_grad[row * layout.longest + pairs.key(i)] = of_logits.extract(j);
                        }
                    }
                }
                ComptimeOption::None => {}
            }
        }
        head.add_weighted::<T, W>(key, pairs.key, &mut parts, &mut sums);
    }
    head.store::<T, W>(&sums, Four::<W>::new(layout.scale.get::<W>()), query_grad, false);
}

/// ∂L/∂K and ∂L/∂V.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward_of_keys<T: Float, W: Float>(
    query: &[T],
    key: &[T],
    value: &[T],
    grad: &[T],
    layout: &Heads<W>,
    maxima: &[W],
    inverse_sums: &[W],
    along: &[W],
    key_grad: &mut [T],
    value_grad: &mut [T],
    cubes: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let head = layout.head();
    if CUBE_POS >= cubes || head.tile >= head.length {
        terminate!();
    }
    let mut parts = Parts::<W>::new();
    let mut of_keys = filled::<W>(0.0, comptime!(4 * head.columns.div_ceil(TILE)));
    let mut of_values = filled::<W>(0.0, comptime!(4 * head.columns.div_ceil(TILE)));
    let (first, end) = layout.tiles(&head);
    for tile in first..end {
        let pairs = Pairs { query: tile * TILE, key: head.tile };
        let mut scores = head.products::<T, W>(query, key, &pairs, &mut parts, false);
        let attended = layout.score(&mut scores, &head, &pairs, false);
        let mut of_weights = head.products::<T, W>(grad, value, &pairs, &mut parts, false);
        let factors = layout.factors(&head, &pairs, false);
        let largest = head.of_queries::<W>(maxima, &pairs);
        let inverse_sum = head.of_queries::<W>(inverse_sums, &pairs);
        let dot = head.of_queries::<W>(along, &pairs);
        #[unroll]
        for i in 0..4usize {
            let exponent = scores[i] - Four::<W>::new(largest.extract(i));
            let weight = exponent.exp() * Four::<W>::new(inverse_sum.extract(i)) * attended[i];
            of_weights[i] = weight * (of_weights[i] * factors[i] - Four::<W>::new(dot.extract(i)));
            parts.weights[token(y(), i, false) * ROW + x()] = weight * factors[i];
        }
        head.add_weighted::<T, W>(grad, pairs.query, &mut parts, &mut of_values);
        #[unroll]
        for i in 0..4usize {
            parts.weights[token(y(), i, false) * ROW + x()] = of_weights[i];
        }
        head.add_weighted::<T, W>(query, pairs.query, &mut parts, &mut of_keys);
    }
    head.store::<T, W>(&of_keys, Four::<W>::new(layout.scale.get::<W>()), key_grad, true);
    head.store::<T, W>(&of_values, Four::<W>::new(W::new(1.0)), value_grad, true);
}
