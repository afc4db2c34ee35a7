//! The kernels of attention: which pairs of tokens attend to each other, and what they do with a tile of them.

use super::tile::{Four, Head, Memory, TILE, filled, x, y};
use crate::cube::mask::Mask;
use crate::cube::totals::store;
use crate::numerics::philox::{GROUP, LANES};
use burn_cubecl::cubecl::{self, prelude::*};

/// The sequences of a batch, its heads, and what turns products Q · Kᵀ into weights.
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
    /// [B, A, L, L] or [1, A, L, L].
    bias: ComptimeOption<Box<[T]>>,
    mask: ComptimeOption<Mask>,
    #[cube(comptime)]
    columns: usize,
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

    /// What dropout multiplies the weights by.
    fn factors<W: Float>(&self, head: &Head, other: usize, #[comptime] of_keys: bool) -> Array<Four<W>> {
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

/// The backward of one side. For queries, which are then `own` with ∂L/∂O, and keys with V the `others`: ∂L/∂Q, the gradient of the
/// bias, and of each row of logits Σ P · ∂L/∂P, which is O · ∂L/∂O. For keys, which are `own` with V, and read these sums: ∂L/∂K and
/// ∂L/∂V.
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
            let exponent = weights[i] - query_statistics::<W>(largest, i, of_keys);
            let weight = exponent.exp() * query_statistics::<W>(inverse_sum, i, of_keys) * attended[i];
            of_logits[i] = weight * (of_logits[i] * factors[i] - query_statistics::<W>(dot, i, of_keys));
            weights[i] = weight * factors[i];
            #[unroll]
            for j in 0..4usize {
                let (query, key) = layout.pair(&head, other, i, j, of_keys);
                if query < head.length && key < head.length {
                    let index = (head.logits + query) * layout.longest + key;
                    store::<T, W>(&mut bias_grad, index, of_logits[i].extract(j));
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
fn query_statistics<W: Float>(
    statistics: Four<W>,
    #[comptime] i: usize,
    #[comptime] of_keys: bool,
) -> Four<W> {
    if comptime!(of_keys) { Four::<W>::new(statistics.extract(i)) } else { statistics }
}
