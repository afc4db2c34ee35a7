//! One token, worked on by the units of one cube.
//!
//! Unit u takes the columns that share a Philox counter with it: for each counter c = u, u + U, … the four columns
//! 64 ⌊c / 16⌋ + 16 i + c mod 16. Sixteen units side by side read sixteen values side by side, and no word of the
//! generator is drawn twice or for nothing.

use crate::cube::mask::Mask;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::cubecl::{self};

/// Columns that one unit takes at most, of `hidden` for `units`.
pub(crate) fn slots(hidden: usize, units: usize) -> usize {
    4 * (16 * hidden.div_ceil(64)).div_ceil(units)
}

/// The column of a unit's `slot`; it may lie past the last one.
#[cube]
pub(crate) fn column(slot: usize, #[comptime] units: usize) -> usize {
    column_of(UNIT_POS as usize + slot / 4 * units, slot % 4)
}

/// The column of word `i` at a counter.
#[cube]
pub(crate) fn column_of(counter: usize, i: usize) -> usize {
    counter / 16 * 64 + i * 16 + counter % 16
}

/// What a row without dropout is multiplied by.
#[cube]
pub(crate) fn ones<W: Float>(#[comptime] slots: usize) -> Array<W> {
    let mut values = Array::<W>::new(slots);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        values[i] = W::new(1.0);
    }
    values
}

/// What dropout multiplies each of a unit's columns by.
#[cube]
pub(crate) fn factors<W: Float, I: Int>(
    mask: &ComptimeOption<Mask<I>>,
    token: usize,
    #[comptime] slots: usize,
    #[comptime] units: usize,
) -> Array<W> {
    let mut factors = ones::<W>(slots);
    #[comptime]
    match mask {
        ComptimeOption::Some(mask) =>
        {
            #[unroll(slots <= 16)]
            for i in 0..comptime!(slots / 4) {
                let four = mask.factors::<W>(token, UNIT_POS as usize + i * units);
                #[unroll]
                for j in 0..4usize {
                    factors[i * 4 + j] = four[j];
                }
            }
        }
        ComptimeOption::None => {}
    }
    factors
}

/// Σ `value` over the cube's units, for all of them, in an order that depends on their number alone.
///
/// `scratch` has a place for each unit and sixteen more.
#[cube]
pub(crate) fn cube_sum<W: Float>(value: W, scratch: &mut Shared<[W]>, #[comptime] units: usize) -> W {
    cube_reduce::<W>(value, scratch, units, false)
}

/// The largest `value` of the cube's units, for all of them; `scratch` as for [`cube_sum`].
#[cube]
pub(crate) fn cube_max<W: Float>(value: W, scratch: &mut Shared<[W]>, #[comptime] units: usize) -> W {
    cube_reduce::<W>(value, scratch, units, true)
}

#[cube]
fn cube_reduce<W: Float>(
    value: W,
    scratch: &mut Shared<[W]>,
    #[comptime] units: usize,
    #[comptime] is_max: bool,
) -> W {
    let stride = comptime!(units.min(16));
    let unit = UNIT_POS as usize;
    scratch[unit] = value;
    sync_cube();
    if unit < stride {
        let mut found = scratch[unit];
        #[unroll]
        for i in 1..comptime!(units.div_ceil(stride)) {
            if comptime!((i + 1) * stride <= units) || unit + i * stride < units {
                found = either::<W>(found, scratch[unit + i * stride], is_max);
            }
        }
        scratch[units + unit] = found;
    }
    sync_cube();
    let mut found = scratch[units];
    #[unroll]
    for i in 1..stride {
        found = either::<W>(found, scratch[units + i], is_max);
    }
    found
}

#[cube]
fn either<W: Float>(a: W, b: W, #[comptime] is_max: bool) -> W {
    if comptime!(is_max) { max(a, b) } else { a + b }
}

/// `y = factors · ((x − mean) · rstd · γ + β)` of a row, whose x is 0 past the last column; mean and rstd are stored too.
#[cube]
pub(crate) fn layer_norm<T: Float, W: Float>(
    x: &mut Array<W>,
    factors: &Array<W>,
    gamma: &[T],
    beta: &[T],
    epsilon: W,
    y: &mut [T],
    means: &mut [W],
    rstds: &mut [W],
    row: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
) {
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let length = W::cast_from(comptime!(hidden as u32));
    let mut sum = W::new(0.0);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        sum += x[i];
    }
    let mean = cube_sum::<W>(sum, &mut scratch, units) / length;

    let mut squares = W::new(0.0);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        if column(i, units) < hidden {
            x[i] -= mean;
            squares += x[i] * x[i];
        }
    }
    let variance = cube_sum::<W>(squares, &mut scratch, units) / length;
    let rstd = W::new(1.0) / (variance + epsilon).sqrt();

    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        if column < hidden {
            let value = x[i] * rstd * W::cast_from(gamma[column]) + W::cast_from(beta[column]);
            y[row * hidden + column] = T::cast_from(value * factors[i]);
        }
    }
    if UNIT_POS == 0 {
        means[row] = mean;
        rstds[row] = rstd;
    }
}

/// The gradient of a row's x, given x̂ and that of y before dropout, both 0 past the last column.
#[cube]
pub(crate) fn layer_norm_backward<T: Float, W: Float>(
    grad: &Array<W>,
    normalized: &Array<W>,
    gamma: &[T],
    rstd: W,
    scratch: &mut Shared<[W]>,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
) -> Array<W> {
    let length = W::cast_from(comptime!(hidden as u32));
    let mut dx = Array::<W>::new(slots);
    let mut average = W::new(0.0);
    let mut along = W::new(0.0);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        dx[i] = W::new(0.0);
        if column < hidden {
            dx[i] = grad[i] * W::cast_from(gamma[column]);
            average += dx[i];
            along += dx[i] * normalized[i];
        }
    }
    let average = cube_sum::<W>(average, scratch, units) / length;
    let along = cube_sum::<W>(along, scratch, units) / length;
    #[unroll(slots <= 16)]
    for i in 0..slots {
        dx[i] = rstd * (dx[i] - average - normalized[i] * along);
    }
    dx
}

/// A unit's share of a total over rows, of none so far.
#[cube]
pub(crate) fn zeros<W: Float>(#[comptime] slots: usize) -> Array<W> {
    let mut values = Array::<W>::new(slots);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        values[i] = W::new(0.0);
    }
    values
}

/// The id of `token`, moved to the nearest row that the table has.
#[cube]
pub(crate) fn nearest_row<I: Int>(ids: &OwnedTensor<I>, token: usize, last: u32) -> u32 {
    let mut id = ids[token % ids.len()];
    if id < I::cast_from(0u32) {
        id = I::cast_from(0u32);
    }
    if id > I::cast_from(last) {
        id = I::cast_from(last);
    }
    u32::cast_from(id)
}
