//! The forward pass: one kernel, one cube per token.

use crate::cube::mask::Mask;
use crate::cube::row::nearest_row;
use crate::cube::row::{column, factors, layer_norm, layer_norm_backward, zeros};
use crate::cube::totals::store_share;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::cubecl::{self};

#[cube(launch, address_type = "dynamic")]
pub(super) fn forward<T: Float, W: Float, I: Int>(
    sources: &Sources<T, I>,
    gamma: &[T],
    beta: &[T],
    epsilon: InputScalar,
    mask: &ComptimeOption<Mask<I>>,
    y: &mut [T],
    mean: &mut [W],
    rstd: &mut [W],
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
    let starts = sources.starts(token);
    let mut x = zeros::<W>(slots);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        if column < hidden {
            x[i] = sources.sum::<W>(&starts, column);
        }
    }
    let factors = factors::<W, I>(mask, token, slots, units);
    let epsilon = epsilon.get::<W>();
    layer_norm::<T, W>(&mut x, &factors, gamma, beta, epsilon, y, mean, rstd, token, hidden, units, slots);
}

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

/// A summand: a table, and which of its rows a token reads.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Source<T: Float, I: Int> {
    table: OwnedTensor<T>,
    /// The row by id, one for each token or one for each place of a sequence.
    ids: ComptimeOption<OwnedTensor<I>>,
    /// Without ids: the row of token 0, ...
    first: usize,
    /// ... and the number of tokens after which the rows repeat.
    period: usize,
    last: u32,
}

#[cube]
impl<T: Float, I: Int> Source<T, I> {
    /// Where in the table the row of `token` begins.
    fn start(&self, token: usize) -> usize {
        #[comptime]
        let row = match &self.ids {
            ComptimeOption::Some(ids) => nearest_row(ids, token, self.last) as usize,
            ComptimeOption::None => self.first + token % self.period,
        };
        row * self.table.stride(0)
    }
}

/// words, token_types and positions.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Sources<T: Float, I: Int> {
    words: ComptimeOption<Source<T, I>>,
    token_types: ComptimeOption<Source<T, I>>,
    positions: ComptimeOption<Source<T, I>>,
}

/// Where the rows begin that one token reads.
#[derive(CubeType)]
pub(super) struct Starts {
    words: usize,
    token_types: usize,
    positions: usize,
}

#[cube]
impl<T: Float, I: Int> Sources<T, I> {
    pub(super) fn starts(&self, token: usize) -> Starts {
        Starts {
            words: start::<T, I>(&self.words, token),
            token_types: start::<T, I>(&self.token_types, token),
            positions: start::<T, I>(&self.positions, token),
        }
    }

    /// One value of the sum, rounded to `T` after each addition.
    pub(super) fn sum<W: Float>(&self, starts: &Starts, column: usize) -> W {
        let x = W::new(0.0);
        let x = add::<T, W, I>(x, &self.words, starts.words + column);
        let x = add::<T, W, I>(x, &self.token_types, starts.token_types + column);
        add::<T, W, I>(x, &self.positions, starts.positions + column)
    }
}

#[cube]
fn start<T: Float, I: Int>(source: &ComptimeOption<Source<T, I>>, token: usize) -> usize {
    #[comptime]
    match source {
        ComptimeOption::Some(source) => source.start(token),
        ComptimeOption::None => 0usize,
    }
}

#[cube]
fn add<T: Float, W: Float, I: Int>(x: W, source: &ComptimeOption<Source<T, I>>, place: usize) -> W {
    #[comptime]
    match source {
        ComptimeOption::Some(source) => W::cast_from(T::cast_from(x + W::cast_from(source.table[place]))),
        ComptimeOption::None => x,
    }
}
