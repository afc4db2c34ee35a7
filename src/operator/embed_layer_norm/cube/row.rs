//! One token, worked on by the units of one cube.
//!
//! Unit u takes the columns that share a Philox counter with it: for each counter c = u, u + U, … the four columns
//! 64 ⌊c / 16⌋ + 16 i + c mod 16. Sixteen units side by side read sixteen values side by side, and no word of the
//! generator is drawn twice or for nothing.

use super::mask::Mask;
use burn_cubecl::cubecl::{self, prelude::*};

/// Columns that one unit takes at most, of `hidden` for `units`.
pub(super) fn slots(hidden: usize, units: usize) -> usize {
    4 * (16 * hidden.div_ceil(64)).div_ceil(units)
}

/// The column of a unit's `slot`; it may lie past the last one.
#[cube]
pub(super) fn column(slot: usize, #[comptime] units: usize) -> usize {
    let counter = UNIT_POS as usize + slot / 4 * units;
    counter / 16 * 64 + slot % 4 * 16 + counter % 16
}

/// What dropout multiplies each of a unit's columns by.
#[cube]
pub(super) fn factors<W: Float, I: Int>(
    mask: &ComptimeOption<Mask<I>>,
    token: usize,
    #[comptime] slots: usize,
    #[comptime] units: usize,
) -> Array<W> {
    let mut factors = Array::<W>::new(slots);
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
        ComptimeOption::None =>
        {
            #[unroll(slots <= 16)]
            for i in 0..slots {
                factors[i] = W::new(1.0);
            }
        }
    }
    factors
}

/// Σ `value` over the cube's units, for all of them, in an order that depends on their number alone.
///
/// `scratch` has a place for each unit and sixteen more.
#[cube]
pub(super) fn cube_sum<W: Float>(value: W, scratch: &mut Shared<[W]>, #[comptime] units: usize) -> W {
    let stride = comptime!(units.min(16));
    let unit = UNIT_POS as usize;
    scratch[unit] = value;
    sync_cube();
    if unit < stride {
        let mut sum = W::new(0.0);
        #[unroll]
        for i in 0..comptime!(units.div_ceil(stride)) {
            if comptime!((i + 1) * stride <= units) || unit + i * stride < units {
                sum += scratch[unit + i * stride];
            }
        }
        scratch[units + unit] = sum;
    }
    sync_cube();
    let mut sum = W::new(0.0);
    #[unroll]
    for i in 0..stride {
        sum += scratch[units + i];
    }
    sum
}
