//! The backward pass up to the sum's gradient, and what is summed over all tokens.

use super::mask::Mask;
use super::row::{column, cube_sum, factors};
use super::source::Sources;
use burn_cubecl::cubecl::{self, prelude::*};

/// Which totals over all tokens are asked for. They lie in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Totals {
    pub(super) gamma: bool,
    pub(super) beta: bool,
    /// Of ∂L/∂x.
    pub(super) sum: bool,
}

/// Each cube takes `tokens_per_cube` tokens in turn. It stores ∂L/∂x and its share of each total.
///
/// `sum` is [tokens, H], `partials` [totals, cubes, H].
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
    #[comptime] totals: Totals,
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
    let sources_needed = comptime!(sum.is_some() || totals.sum);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let length = W::cast_from(comptime!(hidden as u32));
    let mut gamma_total = Array::<W>::new(slots);
    let mut beta_total = Array::<W>::new(slots);
    let mut sum_total = Array::<W>::new(slots);
    let mut normalized = Array::<W>::new(slots);
    let mut scaled = Array::<W>::new(slots);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        gamma_total[i] = W::new(0.0);
        beta_total[i] = W::new(0.0);
        sum_total[i] = W::new(0.0);
    }

    for token in first..end {
        let starts = sources.starts(token);
        let mean = mean[token];
        let rstd = rstd[token];
        let factors = factors::<W, I>(mask, token, slots, units);
        let mut average = W::new(0.0);
        let mut along = W::new(0.0);
        #[unroll(slots <= 16)]
        for i in 0..slots {
            let column = column(i, units);
            if column < hidden {
                let d = W::cast_from(grad[token * hidden + column]) * factors[i];
                beta_total[i] += d;
                if comptime!(sources_needed || totals.gamma) {
                    normalized[i] = (sources.sum::<W>(&starts, column) - mean) * rstd;
                    gamma_total[i] += d * normalized[i];
                    scaled[i] = d * W::cast_from(gamma[column]);
                    average += scaled[i];
                    along += scaled[i] * normalized[i];
                }
            }
        }
        if comptime!(sources_needed) {
            let average = cube_sum::<W>(average, &mut scratch, units) / length;
            let along = cube_sum::<W>(along, &mut scratch, units) / length;
            #[unroll(slots <= 16)]
            for i in 0..slots {
                let column = column(i, units);
                if column < hidden {
                    let dx = rstd * (scaled[i] - average - normalized[i] * along);
                    sum_total[i] += dx;
                    #[comptime]
                    match &mut sum {
                        ComptimeOption::Some(sum) => sum[token * hidden + column] = dx,
                        ComptimeOption::None => {}
                    }
                }
            }
        }
    }

    #[comptime]
    match &mut partials {
        ComptimeOption::Some(partials) => {
            let cubes = tokens.div_ceil(tokens_per_cube);
            #[unroll(slots <= 16)]
            for i in 0..slots {
                let column = column(i, units);
                if column < hidden {
                    let place = CUBE_POS * hidden + column;
                    if comptime!(totals.gamma) {
                        partials[place] = gamma_total[i];
                    }
                    if comptime!(totals.beta) {
                        partials[comptime!(totals.gamma as usize) * cubes * hidden + place] = beta_total[i];
                    }
                    if comptime!(totals.sum) {
                        partials[comptime!(totals.gamma as usize + totals.beta as usize) * cubes * hidden
                            + place] = sum_total[i];
                    }
                }
            }
        }
        ComptimeOption::None => {}
    }
}

/// Units that add up one column between them.
pub(super) const LANES: usize = 8;

/// `output[start ..][column]` = Σ over `rows` of `partials[first ..][row, column]`.
#[cube(launch, address_type = "dynamic")]
pub(super) fn total<T: Float, W: Float>(
    partials: &[W],
    output: &mut Tensor<T>,
    first: usize,
    rows: usize,
    start: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] lanes: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let columns = comptime!(units / lanes);
    let unit = UNIT_POS as usize;
    let column = CUBE_POS * columns + unit % columns;
    let mut scratch = Shared::<[W]>::new_slice(units);
    let mut sum = W::new(0.0);
    if column < hidden {
        let mut row = unit / columns;
        while row < rows {
            sum += partials[first + row * hidden + column];
            row += lanes;
        }
    }
    scratch[unit] = sum;
    sync_cube();
    if unit < columns && column < hidden {
        let mut sum = W::new(0.0);
        #[unroll]
        for lane in 0..lanes {
            sum += scratch[unit + lane * columns];
        }
        output[start + column] = T::cast_from(sum);
    }
}
