//! The kernels of attention: one forward, one for each side of the backward, and one for vectors of distances.

use super::distances::{add_by_distance, store_distances};
use super::heads::{Heads, Statistics, differentiate};
use super::tile::{Four, Memory, TILE, x, y};
use crate::cube::totals::store;
use burn_cubecl::cubecl::{self, prelude::*};

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
    let (first, end) = layout.near(&head);
    for tile in first..end {
        let other = tile * TILE;
        let mut weights = layout.products::<W>(&head, query, key, other, &mut memory, comptime!(Some(false)));
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
    let largest = head.statistics::<W>(maxima, head.own + y());
    let inverse_sum = head.statistics::<W>(inverse_sums, head.own + y());
    let mut sums = head.sums::<W>();
    let mut value_sums = head.sums::<W>();
    let (first, end) = layout.near(&head);
    for tile in first..end {
        let other = tile * TILE;
        let statistics = if comptime!(of_keys) {
            Statistics::<W>::read(&head, maxima, inverse_sums, &*dots, other + x())
        } else {
            Statistics::<W> { largest, inverse_sum, dot }
        };
        let mut weights =
            layout.products::<W>(&head, own, others, other, &mut memory, comptime!(Some(of_keys)));
        let attended = layout.score::<W>(&mut weights, &head, other, of_keys);
        let mut of_logits =
            layout.products::<W>(&head, own_beside, others_beside, other, &mut memory, comptime!(None));
        let factors = layout.factors::<W>(&head, other, of_keys);
        differentiate::<W>(&mut weights, &mut of_logits, &attended, &factors, &statistics, of_keys);
        #[unroll]
        for i in 0..4usize {
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
        layout.distances.add_weighted::<W>(&head, other, &mut memory, &mut sums, of_keys);
    }
    head.store_rows::<T, W>(&sums, Four::<W>::new(layout.scale.get::<W>()), own_grad);
    #[comptime]
    match &mut value_grad {
        ComptimeOption::Some(grad) => head.store_rows::<T, W>(&value_sums, Four::<W>::new(W::new(1.0)), grad),
        ComptimeOption::None => {}
    }
}

/// The shares that a sequence has in the gradients of vectors of distances, [B, 2L − 1, H] each. A cube has 64 distances of one of its
/// heads, from a multiple of 64 on.
#[cube(launch, address_type = "dynamic")]
pub(super) fn distances<T: Float, W: Float>(
    query: &[T],
    key: &[T],
    value: &[T],
    grad: &[T],
    layout: &Heads<T>,
    maxima: &[W],
    inverse_sums: &[W],
    dots: &[W],
    by_query: &mut ComptimeOption<Box<[W]>>,
    by_key: &mut ComptimeOption<Box<[W]>>,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let tiles = layout.tiles();
    let (index, tile) = (CUBE_POS / (2 * tiles), CUBE_POS % (2 * tiles));
    let mut memory = Memory::<W>::new();
    let first = layout.tile(index, 0usize);
    let mut of_queries = first.sums::<W>();
    let mut of_keys = first.sums::<W>();
    for own in 0..first.length.div_ceil(TILE) {
        let head = layout.tile(index, own);
        let statistics = Statistics::<W>::read(&head, maxima, inverse_sums, dots, head.own + y());
        // From a tile of queries the distances lead to two tiles of keys.
        for further in 0..2usize {
            let other = own + tile + further;
            if other >= tiles && (other - tiles) * TILE < head.length {
                let other = (other - tiles) * TILE;
                let mut weights =
                    layout.products::<W>(&head, query, key, other, &mut memory, comptime!(Some(false)));
                let attended = layout.score::<W>(&mut weights, &head, other, false);
                let mut of_logits =
                    layout.products::<W>(&head, grad, value, other, &mut memory, comptime!(None));
                let factors = layout.factors::<W>(&head, other, false);
                differentiate::<W>(&mut weights, &mut of_logits, &attended, &factors, &statistics, false);
                if by_query.is_some() {
                    memory.set_weights(&of_logits);
                    add_by_distance::<T, W>(
                        &head,
                        query,
                        head.own,
                        &mut memory,
                        &mut of_queries,
                        further,
                        false,
                    );
                }
                if by_key.is_some() {
                    memory.set_transposed(&of_logits);
                    add_by_distance::<T, W>(&head, key, other, &mut memory, &mut of_keys, further, true);
                }
            }
        }
    }
    // A device may launch more cubes than were asked for.
    if index < (layout.starts.len() - 1) * layout.heads {
        let scale = layout.scale.get::<W>();
        let sequence = index / layout.heads;
        store_distances::<W>(&first, &of_queries, scale, sequence, tile * TILE, by_query);
        store_distances::<W>(&first, &of_keys, scale, sequence, tile * TILE, by_key);
    }
}
