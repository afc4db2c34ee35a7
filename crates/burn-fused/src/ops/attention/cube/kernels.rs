//! Between packed rows [N, H] and heads [B, A, L, d]; softmax of the logits and its gradient, one cube a row. Each value is
//! read and written once.

use crate::cube::mask::Mask;
use crate::cube::row::{Split, column, cube_max, cube_sum, factors};
use burn_cubecl::cubecl::{self, prelude::*};

/// Where the rows of a batch's sequences begin, what a head is, and what turns products Q · Kᵀ into logits.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Heads<T: Float> {
    /// [B + 1].
    starts: OwnedTensor<i32>,
    /// A.
    heads: usize,
    /// L.
    longest: usize,
    /// d.
    columns: usize,
    /// How far from its query a key is, at most.
    window: usize,
    scale: InputScalar,
    /// [B, A, L, L].
    bias: ComptimeOption<Box<[T]>>,
}

#[cube]
impl<T: Float> Heads<T> {
    fn start(&self, sequence: usize) -> usize {
        u32::cast_from(self.starts[sequence]) as usize
    }

    /// The keys of a row of logits [B, A, L, L] that its query attends to, from the first to before the second number; none past the
    /// sequence's end.
    fn keys(&self, row: usize) -> (usize, usize) {
        let sequence = row / self.longest / self.heads;
        let length = self.start(sequence + 1) - self.start(sequence);
        let query = row % self.longest;
        // No sum is above 2 L.
        let end = clamp_max(query + self.window + 1, length);
        let first = select(query > self.window, query - self.window, 0usize);
        (first, select(query < length, end, 0usize))
    }

    fn score<W: Float>(&self, product: W, place: usize) -> W {
        let score = product * self.scale.get::<W>();
        #[comptime]
        match &self.bias {
            ComptimeOption::Some(bias) => score + W::cast_from(bias[place]),
            ComptimeOption::None => score,
        }
    }
}

/// Moves each of `from` to `to`, where they are `stride` apart: rows to heads, which are 0 past a sequence's end, or heads to rows,
/// the first `scaled` of them times the scale.
#[cube(launch, address_type = "dynamic")]
pub(super) fn move_heads<T: Float, W: Float>(
    from: &Sequence<Box<[T]>>,
    layout: &Heads<T>,
    to: &mut [T],
    count: usize,
    stride: usize,
    #[comptime] to_heads: bool,
    #[comptime] scaled: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let row = ABSOLUTE_POS / layout.columns;
    let head = row / layout.longest;
    let sequence = head / layout.heads;
    let token = layout.start(sequence) + row % layout.longest;
    let exists = token < layout.start(sequence + 1);
    let of_rows =
        (token * layout.heads + head % layout.heads) * layout.columns + ABSOLUTE_POS % layout.columns;
    #[unroll]
    for i in 0..from.len() {
        if comptime!(to_heads) {
            // What lies past a sequence's end takes part in matmuls: there it must add nothing.
            let value = if exists { from[i][of_rows] } else { T::new(0.0) };
            to[i * stride + ABSOLUTE_POS] = value;
        } else if exists {
            let value = from[i][ABSOLUTE_POS];
            if comptime!(i < scaled) {
                to[i * stride + of_rows] = T::cast_from(W::cast_from(value) * layout.scale.get::<W>());
            } else {
                to[i * stride + of_rows] = value;
            }
        }
    }
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

/// The weights mask · P of products Q · Kᵀ [rows, L], in their place, and of each row of logits its maximum and
/// 1 / Σ exp(S − max).
#[cube(launch, address_type = "dynamic")]
pub(super) fn softmax<T: Float, W: Float>(
    products: &mut [W],
    layout: &Heads<T>,
    mask: &ComptimeOption<Mask>,
    mut weights: ComptimeOption<Box<[T]>>,
    maxima: &mut [W],
    inverse_sums: &mut [W],
    rows: usize,
    #[comptime] split: Split,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let longest = layout.longest;
    let (first, end) = layout.keys(row);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(split.units + 16));
    let mut x = Array::<W>::new(split.slots);
    // Subtracted below: no exponent is above 0, and nothing overflows.
    let mut largest = W::min_value();
    #[unroll(split.slots <= 16)]
    for i in 0..split.slots {
        let column = column(i, split);
        x[i] = W::new(0.0);
        if column >= first && column < end {
            let place = row * longest + column;
            x[i] = layout.score::<W>(products[place], place);
            largest = max(largest, x[i]);
        }
    }
    let largest = cube_max::<W>(largest, &mut scratch, split.units);
    let mut sum = W::new(0.0);
    #[unroll(split.slots <= 16)]
    for i in 0..split.slots {
        let column = column(i, split);
        if column >= first && column < end {
            x[i] = (x[i] - largest).exp();
            sum += x[i];
        }
    }
    let sum = cube_sum::<W>(sum, &mut scratch, split.units);
    // A row past its sequence's end has no weights: 1 / 0 would be infinite.
    let inverse_sum = if end > 0 { W::new(1.0) / sum } else { W::new(0.0) };
    let factors = factors::<W>(mask, row, split);
    #[unroll(split.slots <= 16)]
    for i in 0..split.slots {
        let column = column(i, split);
        if column < longest {
            let weight = x[i] * inverse_sum * factors[i];
            store::<T, W>(weight, row * longest + column, products, &mut weights);
        }
    }
    if UNIT_POS == 0 {
        maxima[row] = largest;
        inverse_sums[row] = inverse_sum;
    }
}

/// The weights mask · P again, in the place of products Q · Kᵀ [rows, L], and in that of ∂L/∂O · Vᵀ the logits'
/// gradient.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward<T: Float, W: Float>(
    products: &mut [W],
    grad: &mut [W],
    layout: &Heads<T>,
    mask: &ComptimeOption<Mask>,
    maxima: &[W],
    inverse_sums: &[W],
    mut weights: ComptimeOption<Box<[T]>>,
    mut scores_grad: ComptimeOption<Box<[T]>>,
    rows: usize,
    #[comptime] split: Split,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let longest = layout.longest;
    let (first, end) = layout.keys(row);
    let largest = maxima[row];
    let inverse_sum = inverse_sums[row];
    let mut scratch = Shared::<[W]>::new_slice(comptime!(split.units + 16));
    let factors = factors::<W>(mask, row, split);
    let mut x = Array::<W>::new(split.slots);
    let mut d = Array::<W>::new(split.slots);
    let mut along = W::new(0.0);
    #[unroll(split.slots <= 16)]
    for i in 0..split.slots {
        let column = column(i, split);
        x[i] = W::new(0.0);
        d[i] = W::new(0.0);
        if column >= first && column < end {
            let place = row * longest + column;
            x[i] = (layout.score::<W>(products[place], place) - largest).exp() * inverse_sum;
            d[i] = grad[place] * factors[i];
            along += x[i] * d[i];
        }
    }
    let along = cube_sum::<W>(along, &mut scratch, split.units);
    #[unroll(split.slots <= 16)]
    for i in 0..split.slots {
        let column = column(i, split);
        if column < longest {
            let place = row * longest + column;
            store::<T, W>(x[i] * factors[i], place, products, &mut weights);
            store::<T, W>(x[i] * (d[i] - along), place, grad, &mut scores_grad);
        }
    }
}
