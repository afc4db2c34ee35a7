//! Attention whose logits never leave a cube (Dao et al. 2022, FlashAttention): softmax is computed as the keys go by, and
//! again in the backward from the maximum and the sum of each row.
//!
//! A cube takes a tile of the rows of one head, and goes over the other axis tile by tile. Its units form a square; each
//! takes four rows and four columns of a tile of logits, [`Tile::side`] apart, and as many columns of the sums of the four
//! rows. Sums are added up in the order of tiles, whatever the device.

use super::kernels::{Scores, Statistics};
use super::tile::{Tile, accumulate, dots, factors, filled, head, load, load_biased, store};
use crate::cube::mask::Mask;
use burn_cubecl::cubecl::{self, prelude::*};

/// O, and the statistics of each row.
#[cube(launch, address_type = "dynamic")]
pub(super) fn forward<T: Float, V: Float, C: Float, W: Float>(
    query: &[T],
    key: &[T],
    value: &[T],
    query_bias: &ComptimeOption<Box<[V]>>,
    key_bias: &ComptimeOption<Box<[V]>>,
    value_bias: &ComptimeOption<Box<[V]>>,
    scores: &Scores<C>,
    mask: &ComptimeOption<Mask>,
    output: &mut [T],
    statistics: &mut Statistics<W>,
    tiles: usize,
    cubes: usize,
    #[comptime] tile: Tile,
    #[define(T, V, C, W)] _dtypes: [ElemType; 4],
) {
    // A device may launch more cubes than were asked for.
    if CUBE_POS >= cubes {
        terminate!();
    }
    let head = head::<C>(scores, CUBE_POS / tiles, tile);
    let first = CUBE_POS % tiles * comptime!(tile.rows());
    if first >= head.length {
        terminate!();
    }
    let hidden = scores.layout.heads * tile.columns;
    let x = UNIT_POS as usize % tile.side;
    let y = UNIT_POS as usize / tile.side;
    let slots = comptime!(tile.slots());
    let mut queries = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut others = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut weights = Shared::<[W]>::new_slice(comptime!(tile.logits()));
    // A place for each unit's share of its four rows.
    let mut shares = Shared::<[W]>::new_slice(comptime!(tile.rows() * tile.side));
    let mut sums = filled::<W>(comptime!(4 * slots));
    let mut largest = Array::<W>::new(4usize);
    let mut totals = Array::<W>::new(4usize);
    #[unroll]
    for i in 0..4usize {
        largest[i] = W::min_value();
        totals[i] = W::new(0.0);
    }
    load_biased::<T, V, W>(query, query_bias, &mut queries, &head, first, hidden, tile);
    for step in 0..head.length.div_ceil(comptime!(tile.rows())) {
        let first_key = step * comptime!(tile.rows());
        sync_cube();
        load_biased::<T, V, W>(key, key_bias, &mut others, &head, first_key, hidden, tile);
        sync_cube();
        let mut logits = dots::<W>(&queries, &others, y, x, tile);
        #[unroll]
        for i in 0..4usize {
            let row = head.first + first + y + i * tile.side;
            let mut most = W::min_value();
            #[unroll]
            for j in 0..4usize {
                let key = first_key + x + j * tile.side;
                if key < head.length && first + y + i * tile.side < head.length {
                    logits[i * 4 + j] =
                        scores.score::<W>(logits[i * 4 + j], row * scores.layout.longest + key);
                    most = max(most, logits[i * 4 + j]);
                }
            }
            shares[(y + i * tile.side) * tile.side + x] = most;
        }
        // Behind it nothing reads keys any more.
        sync_cube();
        load_biased::<T, V, W>(value, value_bias, &mut others, &head, first_key, hidden, tile);
        #[unroll]
        for i in 0..4usize {
            let row = y + i * tile.side;
            let mut most = largest[i];
            for other in 0..tile.side {
                most = max(most, shares[row * tile.side + other]);
            }
            // What was added up so far is relative to the maximum so far.
            let scale = (largest[i] - most).exp();
            largest[i] = most;
            totals[i] *= scale;
            #[unroll]
            for slot in 0..slots {
                sums[i * slots + slot] *= scale;
            }
            let factors = factors::<W>(mask, head.first + first + row, first_key + x, tile);
            #[unroll]
            for j in 0..4usize {
                let mut weight = W::new(0.0);
                if first_key + x + j * tile.side < head.length {
                    weight = (logits[i * 4 + j] - most).exp();
                }
                totals[i] += weight;
                weights[row * comptime!(tile.stride_of_logits()) + x + j * tile.side] = weight * factors[j];
            }
        }
        sync_cube();
        accumulate::<W>(&mut sums, &weights, &others, y, x, tile);
    }
    // Read above by other units.
    sync_cube();
    #[unroll]
    for i in 0..4usize {
        shares[(y + i * tile.side) * tile.side + x] = totals[i];
    }
    sync_cube();
    #[unroll]
    for i in 0..4usize {
        let row = y + i * tile.side;
        let mut total = W::new(0.0);
        for other in 0..tile.side {
            total += shares[row * tile.side + other];
        }
        let inverse_sum = W::new(1.0) / total;
        #[unroll]
        for slot in 0..slots {
            sums[i * slots + slot] *= inverse_sum;
        }
        if x == 0 && first + row < head.length {
            statistics.max[head.first + first + row] = largest[i];
            statistics.inverse_sum[head.first + first + row] = inverse_sum;
        }
    }
    store::<T, W>(&sums, output, &head, first + y, x, hidden, tile);
}

/// ∂L/∂Q, and Σ ∂L/∂O · O of each row, which is Σ P · ∂L/∂P.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward_of_queries<T: Float, V: Float, C: Float, W: Float>(
    query: &[T],
    key: &[T],
    value: &[T],
    query_bias: &ComptimeOption<Box<[V]>>,
    key_bias: &ComptimeOption<Box<[V]>>,
    value_bias: &ComptimeOption<Box<[V]>>,
    output: &[T],
    grad: &[T],
    scores: &Scores<C>,
    mask: &ComptimeOption<Mask>,
    statistics: &Statistics<W>,
    along: &mut [W],
    query_grad: &mut [T],
    tiles: usize,
    cubes: usize,
    #[comptime] tile: Tile,
    #[define(T, V, C, W)] _dtypes: [ElemType; 4],
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let head = head::<C>(scores, CUBE_POS / tiles, tile);
    let first = CUBE_POS % tiles * comptime!(tile.rows());
    if first >= head.length {
        terminate!();
    }
    let hidden = scores.layout.heads * tile.columns;
    let x = UNIT_POS as usize % tile.side;
    let y = UNIT_POS as usize / tile.side;
    let slots = comptime!(tile.slots());
    let mut queries = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut grads = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut others = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut weights = Shared::<[W]>::new_slice(comptime!(tile.logits()));
    load_biased::<T, V, W>(query, query_bias, &mut queries, &head, first, hidden, tile);
    load::<T, W>(grad, &mut grads, &head, first, hidden, tile);
    load::<T, W>(output, &mut others, &head, first, hidden, tile);
    sync_cube();
    let mut of_rows = Array::<W>::new(4usize);
    let mut largest = Array::<W>::new(4usize);
    let mut inverse_sums = Array::<W>::new(4usize);
    #[unroll]
    for i in 0..4usize {
        let row = first + y + i * tile.side;
        let place = (y + i * tile.side) * comptime!(tile.stride());
        let mut sum = W::new(0.0);
        for column in 0..tile.columns {
            sum += grads[place + column] * others[place + column];
        }
        of_rows[i] = sum;
        largest[i] = W::new(0.0);
        inverse_sums[i] = W::new(0.0);
        if row < head.length {
            largest[i] = statistics.max[head.first + row];
            inverse_sums[i] = statistics.inverse_sum[head.first + row];
            if x == 0 {
                along[head.first + row] = sum;
            }
        }
    }
    let mut sums = filled::<W>(comptime!(4 * slots));
    for step in 0..head.length.div_ceil(comptime!(tile.rows())) {
        let first_key = step * comptime!(tile.rows());
        sync_cube();
        load_biased::<T, V, W>(value, value_bias, &mut others, &head, first_key, hidden, tile);
        sync_cube();
        let dropped = dots::<W>(&grads, &others, y, x, tile);
        sync_cube();
        load_biased::<T, V, W>(key, key_bias, &mut others, &head, first_key, hidden, tile);
        sync_cube();
        let logits = dots::<W>(&queries, &others, y, x, tile);
        #[unroll]
        for i in 0..4usize {
            let row = first + y + i * tile.side;
            let factors = factors::<W>(mask, head.first + row, first_key + x, tile);
            #[unroll]
            for j in 0..4usize {
                let key = first_key + x + j * tile.side;
                let mut found = W::new(0.0);
                if key < head.length && row < head.length {
                    let place = (head.first + row) * scores.layout.longest + key;
                    let score = scores.score::<W>(logits[i * 4 + j], place);
                    let weight = (score - largest[i]).exp() * inverse_sums[i];
                    found = weight * (dropped[i * 4 + j] * factors[j] - of_rows[i]);
                }
                weights[(y + i * tile.side) * comptime!(tile.stride_of_logits()) + x + j * tile.side] = found;
            }
        }
        sync_cube();
        accumulate::<W>(&mut sums, &weights, &others, y, x, tile);
    }
    let scale = scores.scale.get::<W>();
    #[unroll]
    for i in 0..comptime!(4 * slots) {
        sums[i] *= scale;
    }
    store::<T, W>(&sums, query_grad, &head, first + y, x, hidden, tile);
}

/// ∂L/∂K, ∂L/∂V and the gradient of the logits' bias. A cube takes a tile of keys, and goes over the queries.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward_of_keys<T: Float, V: Float, C: Float, W: Float>(
    query: &[T],
    key: &[T],
    value: &[T],
    query_bias: &ComptimeOption<Box<[V]>>,
    key_bias: &ComptimeOption<Box<[V]>>,
    value_bias: &ComptimeOption<Box<[V]>>,
    grad: &[T],
    scores: &Scores<C>,
    mask: &ComptimeOption<Mask>,
    statistics: &Statistics<W>,
    along: &[W],
    key_grad: &mut [T],
    value_grad: &mut [T],
    mut bias_grad: ComptimeOption<Box<[C]>>,
    tiles: usize,
    cubes: usize,
    #[comptime] tile: Tile,
    #[define(T, V, C, W)] _dtypes: [ElemType; 4],
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let head = head::<C>(scores, CUBE_POS / tiles, tile);
    let first = CUBE_POS % tiles * comptime!(tile.rows());
    if first >= head.length {
        terminate!();
    }
    let hidden = scores.layout.heads * tile.columns;
    let x = UNIT_POS as usize % tile.side;
    let y = UNIT_POS as usize / tile.side;
    let slots = comptime!(tile.slots());
    let mut keys = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut values = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut queries = Shared::<[W]>::new_slice(comptime!(tile.values()));
    let mut grads = Shared::<[W]>::new_slice(comptime!(tile.values()));
    // Of keys by queries.
    let mut weights = Shared::<[W]>::new_slice(comptime!(tile.logits()));
    let mut scores_grads = Shared::<[W]>::new_slice(comptime!(tile.logits()));
    load_biased::<T, V, W>(key, key_bias, &mut keys, &head, first, hidden, tile);
    load_biased::<T, V, W>(value, value_bias, &mut values, &head, first, hidden, tile);
    let mut of_keys = filled::<W>(comptime!(4 * slots));
    let mut of_values = filled::<W>(comptime!(4 * slots));
    for step in 0..head.length.div_ceil(comptime!(tile.rows())) {
        let first_query = step * comptime!(tile.rows());
        sync_cube();
        load_biased::<T, V, W>(query, query_bias, &mut queries, &head, first_query, hidden, tile);
        load::<T, W>(grad, &mut grads, &head, first_query, hidden, tile);
        sync_cube();
        // A unit's rows are queries here, so that its four keys share counters.
        let logits = dots::<W>(&queries, &keys, y, x, tile);
        let dropped = dots::<W>(&grads, &values, y, x, tile);
        #[unroll]
        for i in 0..4usize {
            let row = first_query + y + i * tile.side;
            let factors = factors::<W>(mask, head.first + row, first + x, tile);
            let mut largest = W::new(0.0);
            let mut inverse_sum = W::new(0.0);
            let mut of_row = W::new(0.0);
            if row < head.length {
                largest = statistics.max[head.first + row];
                inverse_sum = statistics.inverse_sum[head.first + row];
                of_row = along[head.first + row];
            }
            #[unroll]
            for j in 0..4usize {
                let key = first + x + j * tile.side;
                let mut weight = W::new(0.0);
                let mut found = W::new(0.0);
                if key < head.length && row < head.length {
                    let place = (head.first + row) * scores.layout.longest + key;
                    let score = scores.score::<W>(logits[i * 4 + j], place);
                    weight = (score - largest).exp() * inverse_sum;
                    found = weight * (dropped[i * 4 + j] * factors[j] - of_row);
                    crate::cube::totals::store::<C, W>(&mut bias_grad, place, found);
                }
                let place = (x + j * tile.side) * comptime!(tile.stride_of_logits()) + y + i * tile.side;
                weights[place] = weight * factors[j];
                scores_grads[place] = found;
            }
        }
        sync_cube();
        accumulate::<W>(&mut of_values, &weights, &grads, y, x, tile);
        accumulate::<W>(&mut of_keys, &scores_grads, &queries, y, x, tile);
    }
    let scale = scores.scale.get::<W>();
    #[unroll]
    for i in 0..comptime!(4 * slots) {
        of_keys[i] *= scale;
    }
    store::<T, W>(&of_keys, key_grad, &head, first + y, x, hidden, tile);
    store::<T, W>(&of_values, value_grad, &head, first + y, x, hidden, tile);
}
