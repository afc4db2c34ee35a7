//! One token, worked on by the units of one cube, which divide its columns as [`Split`] says.

use crate::cube::launch::{Split, UNROLLED, WORDS};
use crate::cube::mask::Mask;
use burn_cubecl::cubecl::{self, prelude::*};

/// The same value for each of a unit's columns.
#[cube]
pub(crate) fn filled<W: Float>(#[comptime] value: f32, #[comptime] split: Split) -> Array<W> {
    let mut values = Array::<W>::new(split.slots);
    #[unroll(split.slots <= UNROLLED)]
    for i in 0..split.slots {
        values[i] = W::new(value);
    }
    values
}

/// What dropout multiplies each of a unit's columns by; 1 without a mask.
#[cube]
pub(crate) fn factors<W: Float>(
    mask: &ComptimeOption<Mask>,
    token: usize,
    #[comptime] split: Split,
) -> Array<W> {
    let mut factors = filled::<W>(1.0, split);
    #[comptime]
    match mask {
        ComptimeOption::Some(mask) =>
        {
            #[unroll(split.slots <= UNROLLED)]
            for i in 0..comptime!(split.slots / WORDS) {
                let four = mask.factors::<W>(token, UNIT_POS as usize + i * split.units);
                #[unroll]
                for j in 0..WORDS {
                    factors[i * WORDS + j] = four[j];
                }
            }
        }
        ComptimeOption::None => {}
    }
    factors
}

/// Sums that the units of a cube have made of their values when the last step adds them up: the root of 256 units, so that both steps
/// are as long. Not tuned.
const PARTIAL_SUMS: usize = 16;

/// Values in shared memory that [`cube_sum`] needs for so many units: one of each, and the partial sums.
pub(crate) const fn scratch_values(units: usize) -> usize {
    units + PARTIAL_SUMS
}

/// Σ `value` over the cube's units, for all of them, in an order that depends on their number alone. `scratch` has
/// [`scratch_values`].
#[cube]
pub(crate) fn cube_sum<W: Float>(value: W, scratch: &mut Shared<[W]>, #[comptime] units: usize) -> W {
    let mut values = Array::<W>::new(1usize);
    values[0] = value;
    cube_reduce::<W>(&mut values, scratch, 1usize, units, false);
    values[0]
}

/// [`cube_sum`] of two values between the same two barriers; `scratch` has twice the values.
#[cube]
pub(crate) fn cube_sums<W: Float>(
    first: W,
    second: W,
    scratch: &mut Shared<[W]>,
    #[comptime] units: usize,
) -> (W, W) {
    let mut values = Array::<W>::new(2usize);
    values[0] = first;
    values[1] = second;
    cube_reduce::<W>(&mut values, scratch, 2usize, units, false);
    (values[0], values[1])
}

/// The largest `value` of the cube's units, for all of them; `scratch` as for [`cube_sum`].
#[cube]
pub(crate) fn cube_max<W: Float>(value: W, scratch: &mut Shared<[W]>, #[comptime] units: usize) -> W {
    let mut values = Array::<W>::new(1usize);
    values[0] = value;
    cube_reduce::<W>(&mut values, scratch, 1usize, units, true);
    values[0]
}

#[cube]
fn cube_reduce<W: Float>(
    values: &mut Array<W>,
    scratch: &mut Shared<[W]>,
    #[comptime] count: usize,
    #[comptime] units: usize,
    #[comptime] is_max: bool,
) {
    // Two steps and two barriers, where a tree has a barrier for each halving.
    let stride = comptime!(units.min(PARTIAL_SUMS));
    let unit = UNIT_POS as usize;
    #[unroll]
    for value in 0..count {
        scratch[comptime!(value * scratch_values(units)) + unit] = values[value];
    }
    sync_cube();
    if unit < stride {
        #[unroll]
        for value in 0..count {
            let own = comptime!(value * scratch_values(units)) + unit;
            let mut found = scratch[own];
            #[unroll]
            for i in 1..comptime!(units.div_ceil(stride)) {
                if comptime!((i + 1) * stride <= units) || unit + i * stride < units {
                    found = either::<W>(found, scratch[own + i * stride], is_max);
                }
            }
            scratch[own + units] = found;
        }
    }
    sync_cube();
    #[unroll]
    for value in 0..count {
        let first = comptime!(value * scratch_values(units) + units);
        let mut found = scratch[first];
        #[unroll]
        for i in 1..stride {
            found = either::<W>(found, scratch[first + i], is_max);
        }
        values[value] = found;
    }
}

#[cube]
fn either<W: Float>(a: W, b: W, #[comptime] is_max: bool) -> W {
    if comptime!(is_max) { max(a, b) } else { a + b }
}

/// The id of `token`, moved to the nearest row that the table has.
#[cube]
pub(crate) fn nearest_row(ids: &OwnedTensor<i32>, token: usize, last: u32) -> u32 {
    // Before the cast, which would wrap.
    let id = clamp_min(ids[token % ids.len()], 0);
    clamp_max(u32::cast_from(id), last)
}
