//! The backward pass up to the sum's gradient, and what is summed over all tokens.

use super::source::Sources;
use crate::operator::cube::mask::Mask;
use crate::operator::cube::row::{column, factors, layer_norm_backward, zeros};
use crate::operator::cube::totals::store_share;
use burn_cubecl::cubecl::{self, prelude::*};

/// Each cube takes `tokens_per_cube` tokens in turn. It stores ∂L/∂x in `sum` [tokens, H], and its share of the totals of
/// γ, β and ∂L/∂x.
#[cube(launch, address_type = "dynamic")]
pub(super) fn backward<T: Float, W: Float, I: Int>(
    sources: &Sources<T, I>,
    gamma: &[T],
    mask: &ComptimeOption<Mask<I>>,
    mean: &[W],
    rstd: &[W],
    grad: &[T],
    mut sum: ComptimeOption<Box<[W]>>,
    mut partials: ComptimeOption<Box<[W]>>,
    tokens: usize,
    tokens_per_cube: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    let first = CUBE_POS * tokens_per_cube;
    if first >= tokens {
        terminate!();
    }
    let end = clamp_max(first + tokens_per_cube, tokens);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let mut gamma_total = zeros::<W>(slots);
    let mut beta_total = zeros::<W>(slots);
    let mut sum_total = zeros::<W>(slots);
    let mut d = zeros::<W>(slots);
    let mut normalized = zeros::<W>(slots);

    for token in first..end {
        let starts = sources.starts(token);
        let mean = mean[token];
        let rstd = rstd[token];
        let factors = factors::<W, I>(mask, token, slots, units);
        #[unroll(slots <= 16)]
        for i in 0..slots {
            let column = column(i, units);
            if column < hidden {
                d[i] = W::cast_from(grad[token * hidden + column]) * factors[i];
                normalized[i] = (sources.sum::<W>(&starts, column) - mean) * rstd;
                beta_total[i] += d[i];
                gamma_total[i] += d[i] * normalized[i];
            }
        }
        let dx =
            layer_norm_backward::<T, W>(&d, &normalized, gamma, rstd, &mut scratch, hidden, units, slots);
        #[unroll(slots <= 16)]
        for i in 0..slots {
            let column = column(i, units);
            if column < hidden {
                sum_total[i] += dx[i];
                #[comptime]
                match &mut sum {
                    ComptimeOption::Some(sum) => sum[token * hidden + column] = dx[i],
                    ComptimeOption::None => {}
                }
            }
        }
    }

    #[comptime]
    match &mut partials {
        ComptimeOption::Some(partials) => {
            let cubes = tokens.div_ceil(tokens_per_cube);
            store_share::<W>(&gamma_total, partials, 0usize, cubes, hidden, units, slots);
            store_share::<W>(&beta_total, partials, 1usize, cubes, hidden, units, slots);
            store_share::<W>(&sum_total, partials, 2usize, cubes, hidden, units, slots);
        }
        ComptimeOption::None => {}
    }
}
