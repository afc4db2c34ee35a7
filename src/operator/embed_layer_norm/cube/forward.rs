//! The forward pass: one kernel, one cube per token.

use super::source::Sources;
use crate::operator::cube::mask::Mask;
use crate::operator::cube::row::{column, factors, layer_norm, zeros};
use burn_cubecl::cubecl::{self, prelude::*};

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
