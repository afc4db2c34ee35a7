//! Tokens sorted by the row that they train: a stable merge sort, without atomics and in any number of launches.
//!
//! [`sort`] sorts runs of [`RUN`] tokens, and each launch of [`merge`] makes one run of [`WAYS`]. Both find an entry's
//! place by counting the entries that come before it, so that every entry is written once, by one unit, and equal rows
//! keep the order of their tokens. 1,024 tokens are one launch, 65,536 are three.

use super::Setup;
use crate::cube::row::nearest_row;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// Tokens that are sorted by comparing all with all: as many comparisons a token, in fast memory.
pub(super) const RUN: usize = 1024;

/// Sorted runs that one launch merges. Each token does a binary search in all but its own.
pub(super) const WAYS: usize = 8;

impl Setup {
    /// [tokens, 2]: row and token, by row and then by token. Tokens of the row `pad` come last, with `rows` as row.
    pub(super) fn sorted(&self, ids: &CubeTensor, rows: u32, pad: u32) -> CubeTensor {
        let tokens = self.on.rows;
        let units = self.on.max_units;
        let cubes = self.on.cubes(tokens.div_ceil(units));
        let dim = CubeDim::new_1d(units as u32);
        let addresses = AddressType::from_len(2 * tokens);
        let mut run = RUN.next_multiple_of(units);
        let mut places = self.on.empty([tokens, 2], DType::U32);
        sort::launch(
            &self.on.client,
            cubes.clone(),
            dim,
            addresses,
            self.ids(ids).into_tensor_arg(),
            places.clone().into_buffer_arg(),
            tokens,
            run,
            rows,
            pad,
            units,
            dtype_to_elem_type(self.ids),
        );
        while run < tokens {
            let merged = self.on.empty([tokens, 2], DType::U32);
            merge::launch(
                &self.on.client,
                cubes.clone(),
                dim,
                addresses,
                places.into_buffer_arg(),
                merged.clone().into_buffer_arg(),
                tokens,
                run,
                WAYS,
            );
            places = merged;
            run *= WAYS;
        }
        places
    }
}

/// The row of `token`; `rows`, which sorts behind all of them, if it trains none.
#[cube]
fn trained_row<I: Int>(ids: &OwnedTensor<I>, token: usize, rows: u32, pad: u32) -> u32 {
    let row = nearest_row(ids, token, rows - 1);
    if row == pad { rows } else { row }
}

/// Sorts each `run` of tokens, a multiple of `units`. A unit counts the tokens of the run that come before its own.
#[cube(launch, address_type = "dynamic")]
fn sort<I: Int>(
    ids: &OwnedTensor<I>,
    places: &mut [u32],
    tokens: usize,
    run: usize,
    rows: u32,
    pad: u32,
    #[comptime] units: usize,
    #[define(I)] _dtype: ElemType,
) {
    let unit = UNIT_POS as usize;
    let of_cube = CUBE_POS * units;
    if of_cube >= tokens {
        terminate!();
    }
    let token = of_cube + unit;
    let first = of_cube / run * run;
    let end = clamp_max(first + run, tokens);
    let mut own = rows;
    if token < end {
        own = trained_row(ids, token, rows, pad);
    }
    let mut tile = Shared::<[u32]>::new_slice(units);
    let mut place = first;
    for i in 0..(end - first).div_ceil(units) {
        let start = first + i * units;
        // Behind the last token lie rows that sort behind every row.
        tile[unit] = u32::MAX.runtime();
        if start + unit < end {
            tile[unit] = trained_row(ids, start + unit, rows, pad);
        }
        sync_cube();
        for j in 0..units {
            let other = tile[j];
            if other < own || (other == own && start + j < token) {
                place += 1;
            }
        }
        sync_cube();
    }
    if token < end {
        places[2 * place] = own;
        places[2 * place + 1] = token as u32;
    }
}

/// Merges each `ways` sorted runs that lie side by side.
#[cube(launch, address_type = "dynamic")]
fn merge(from: &[u32], to: &mut [u32], tokens: usize, run: usize, #[comptime] ways: usize) {
    if ABSOLUTE_POS >= tokens {
        terminate!();
    }
    let row = from[2 * ABSOLUTE_POS];
    let own = ABSOLUTE_POS / run;
    let first = own / ways * ways;
    let mut place = first * run + ABSOLUTE_POS % run;
    for i in 0..ways {
        let other = first + i;
        if other < own {
            // Equal rows of earlier runs come first: the sort is stable.
            place += count_below(from, other * run, run, tokens, row + 1);
        } else if other > own {
            place += count_below(from, other * run, run, tokens, row);
        }
    }
    to[2 * place] = row;
    to[2 * place + 1] = from[2 * ABSOLUTE_POS + 1];
}

/// The entries of the sorted run from `first` on whose row is below `row`. The run ends with the tokens.
#[cube]
fn count_below(places: &[u32], first: usize, run: usize, tokens: usize, row: u32) -> usize {
    let start = clamp_max(first, tokens);
    let mut low = start;
    let mut high = clamp_max(first + run, tokens);
    while low < high {
        let middle = low + (high - low) / 2;
        if places[2 * middle] < row {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low - start
}
