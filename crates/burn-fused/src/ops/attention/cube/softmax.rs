//! Softmax of the scores and its gradient: one cube a row, which is read once and written once.

use super::heads::Heads;
use crate::cube::mask::Mask;
use crate::cube::row::{column, cube_max, cube_sum, factors};
use burn_cubecl::cubecl::{self, prelude::*};

/// What turns products Q · Kᵀ into scores.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Scores<T: Float, I: Int> {
    scale: InputScalar,
    /// [B, A, L, L].
    bias: ComptimeOption<Box<[T]>>,
    layout: Heads<I>,
}

#[cube]
impl<T: Float, I: Int> Scores<T, I> {
    fn score<W: Float>(&self, product: W, place: usize) -> W {
        let score = product * self.scale.get::<W>();
        #[comptime]
        match &self.bias {
            ComptimeOption::Some(bias) => score + W::cast_from(bias[place]),
            ComptimeOption::None => score,
        }
    }
}

/// Of each row of scores: its maximum, and 1 / Σ exp(S − max).
#[derive(CubeType, CubeLaunch)]
pub(super) struct Statistics<W: Float> {
    max: Box<[W]>,
    inverse_sum: Box<[W]>,
}

/// Writes `value` in the place of what it was computed from, or, in 16 bits, elsewhere.
#[cube]
fn store<T: Float, W: Float>(value: W, place: usize, wide: &mut [W], narrow: &mut ComptimeOption<Box<[T]>>) {
    #[comptime]
    match narrow {
        ComptimeOption::Some(narrow) => narrow[place] = T::cast_from(value),
        ComptimeOption::None => wide[place] = value,
    }
}

/// The weights mask · P of products Q · Kᵀ [rows, L], in their place.
#[cube(launch, address_type = "dynamic")]
pub(super) fn softmax<T: Float, W: Float, I: Int>(
    products: &mut [W],
    scores: &Scores<T, I>,
    mask: &ComptimeOption<Mask<I>>,
    mut weights: ComptimeOption<Box<[T]>>,
    statistics: &mut Statistics<W>,
    rows: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let longest = scores.layout.longest();
    let keys = scores.layout.keys(row);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let mut x = Array::<W>::new(slots);
    let mut largest = W::min_value();
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        x[i] = W::new(0.0);
        if column < keys {
            let place = row * longest + column;
            x[i] = scores.score::<W>(products[place], place);
            largest = max(largest, x[i]);
        }
    }
    let largest = cube_max::<W>(largest, &mut scratch, units);
    let mut sum = W::new(0.0);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        if column(i, units) < keys {
            x[i] = (x[i] - largest).exp();
            sum += x[i];
        }
    }
    let sum = cube_sum::<W>(sum, &mut scratch, units);
    let mut inverse_sum = W::new(0.0);
    if keys > 0 {
        inverse_sum = W::new(1.0) / sum;
    }
    let factors = factors::<W, I>(mask, row, slots, units);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        if column < longest {
            let weight = x[i] * inverse_sum * factors[i];
            store::<T, W>(weight, row * longest + column, products, &mut weights);
        }
    }
    if UNIT_POS == 0 {
        statistics.max[row] = largest;
        statistics.inverse_sum[row] = inverse_sum;
    }
}

/// The weights mask · P again, in the place of products Q · Kᵀ [rows, L], and in that of ∂L/∂O · Vᵀ the scores'
/// gradient.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward<T: Float, W: Float, I: Int>(
    products: &mut [W],
    grad: &mut [W],
    scores: &Scores<T, I>,
    mask: &ComptimeOption<Mask<I>>,
    statistics: &Statistics<W>,
    mut weights: ComptimeOption<Box<[T]>>,
    mut scores_grad: ComptimeOption<Box<[T]>>,
    rows: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let longest = scores.layout.longest();
    let keys = scores.layout.keys(row);
    let largest = statistics.max[row];
    let inverse_sum = statistics.inverse_sum[row];
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let factors = factors::<W, I>(mask, row, slots, units);
    let mut x = Array::<W>::new(slots);
    let mut d = Array::<W>::new(slots);
    let mut along = W::new(0.0);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        x[i] = W::new(0.0);
        d[i] = W::new(0.0);
        if column < keys {
            let place = row * longest + column;
            x[i] = (scores.score::<W>(products[place], place) - largest).exp() * inverse_sum;
            d[i] = grad[place] * factors[i];
            along += x[i] * d[i];
        }
    }
    let along = cube_sum::<W>(along, &mut scratch, units);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        if column < longest {
            let place = row * longest + column;
            store::<T, W>(x[i] * factors[i], place, products, &mut weights);
            store::<T, W>(x[i] * (d[i] - along), place, grad, &mut scores_grad);
        }
    }
}
