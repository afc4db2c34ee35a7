//! The forward pass: one kernel, one cube per token.

use super::mask::Mask;
use super::row::{column, cube_sum, factors};
use super::source::Sources;
use burn_cubecl::cubecl::{self, prelude::*};

#[cube(launch, address_type = "dynamic")]
pub(super) fn forward<T: Float, W: Float, I: Int>(
    sources: &Sources<T, I>,
    gamma: &[T],
    beta: &[T],
    epsilon: InputScalar,
    mask: &ComptimeOption<Mask<I>>,
    y: &mut [T],
    mean_out: &mut [W],
    rstd_out: &mut [W],
    tokens: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    let token = CUBE_POS;
    if token >= tokens {
        terminate!();
    }
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let length = W::cast_from(comptime!(hidden as u32));

    let starts = sources.starts(token);
    let mut x = Array::<W>::new(slots);
    let mut sum = W::new(0.0);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        x[i] = W::new(0.0);
        if column < hidden {
            x[i] = sources.sum::<W>(&starts, column);
        }
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
    let rstd = W::new(1.0) / (variance + epsilon.get::<W>()).sqrt();

    let factors = factors::<W, I>(mask, token, slots, units);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        if column < hidden {
            let value = x[i] * rstd * W::cast_from(gamma[column]) + W::cast_from(beta[column]);
            y[token * hidden + column] = T::cast_from(value * factors[i]);
        }
    }
    if UNIT_POS == 0 {
        mean_out[token] = mean;
        rstd_out[token] = rstd;
    }
}
