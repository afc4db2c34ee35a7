//! From the gradient of the rows that tokens read to a table's: no atomics, so each sum has one order.
//!
//! For ids, tokens are sorted by row, by a stable merge sort in any number of launches: [`sort`] sorts runs of [`RUN`]
//! tokens, and each launch of [`merge`] makes one run of [`WAYS`]. Both find an entry's place by counting the entries that
//! come before it, so that every entry is written once, by one unit, and equal rows keep the order of their tokens. 1,024
//! tokens are one launch, 65,536 are three.
//!
//! The sorted list is cut into segments, and a cube adds up the runs of equal rows in its segment. A run that lies in one
//! segment goes straight to the table; a longer one leaves a partial sum in each, which [`join`] adds up. With √N tokens a
//! segment the longest chain of additions is 2 √N, also if all N tokens read the same row.

use crate::cube::launch::{RowLaunch, address_type, int_tensor};
use crate::cube::row::nearest_row;
use burn::tensor::DType;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// What a unit adds up: a segment's tokens, in one column.
#[cube]
fn segment_and_column(#[comptime] hidden: usize, #[comptime] units: usize) -> (usize, usize) {
    let blocks = comptime!(hidden.div_ceil(units));
    (CUBE_POS / blocks, CUBE_POS % blocks * units + UNIT_POS as usize)
}

/// Adds up each segment's runs: into `table` [rows, H], or into `partials` [segments, 2, H] (a run that began in an
/// earlier segment, a run that goes on in a later one).
#[cube(launch, address_type = "dynamic")]
fn add_runs<T: Float, W: Float>(
    sorted_rows: &[u32],
    sum: &[W],
    table: &mut Tensor<T>,
    partials: &mut [W],
    tokens: usize,
    per_segment: usize,
    rows: u32,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let (segment, column) = segment_and_column(hidden, units);
    let first = segment * per_segment;
    if first >= tokens || column >= hidden {
        terminate!();
    }
    let end = clamp_max(first + per_segment, tokens);
    let mut row = sorted_rows[2 * first];
    // A run that began in an earlier segment is not this one's to write.
    let mut is_open = first > 0 && sorted_rows[2 * first - 2] == row;
    let mut total = W::new(0.0);
    for index in first..end {
        if row < rows {
            // Tokens that train no row are last, with `rows` as row.
            total += sum[sorted_rows[2 * index + 1] as usize * hidden + column];
        }
        let next = if index + 1 < tokens { sorted_rows[2 * index + 2] } else { rows };
        if row < rows && (next != row || index + 1 == end) {
            if is_open {
                partials[2 * segment * hidden + column] = total;
            } else if next == row {
                partials[(2 * segment + 1) * hidden + column] = total;
            } else {
                let start = row as usize * table.stride(0);
                table[start + column] = T::cast_from(total);
            }
            is_open = false;
            total = W::new(0.0);
        }
        row = next;
    }
}

/// Adds up the partial sums of each run that is longer than what is left of the segment it begins in.
#[cube(launch, address_type = "dynamic")]
fn join<T: Float, W: Float>(
    sorted_rows: &[u32],
    partials: &[W],
    table: &mut Tensor<T>,
    tokens: usize,
    per_segment: usize,
    rows: u32,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let (segment, column) = segment_and_column(hidden, units);
    let first = segment * per_segment;
    let end = first + per_segment;
    if end >= tokens || column >= hidden {
        terminate!();
    }
    let row = sorted_rows[2 * end];
    let mut goes_on = sorted_rows[2 * end - 2] == row && row < rows;
    if goes_on && (first == 0 || sorted_rows[2 * first - 2] != row) {
        let mut total = partials[(2 * segment + 1) * hidden + column];
        let mut next = segment + 1;
        while goes_on {
            total += partials[2 * next * hidden + column];
            next += 1;
            goes_on = next * per_segment < tokens && sorted_rows[2 * next * per_segment] == row;
        }
        let start = row as usize * table.stride(0);
        table[start + column] = T::cast_from(total);
    }
}

/// Row `first + s` of `table` is the sum over the batch at place s, every other row 0.
#[cube(launch, address_type = "dynamic")]
fn add_batch<T: Float, W: Float>(
    sum: &[W],
    table: &mut [T],
    first: usize,
    batch: usize,
    seq: usize,
    #[comptime] hidden: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS >= table.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / hidden;
    let column = ABSOLUTE_POS % hidden;
    let mut total = W::new(0.0);
    if row >= first && row < first + seq {
        for i in 0..batch {
            total += sum[(i * seq + row - first) * hidden + column];
        }
    }
    table[ABSOLUTE_POS] = T::cast_from(total);
}

/// Tokens that are sorted by comparing all with all: as many comparisons a token, of rows that a cube fetches into shared memory tile
/// by tile. Not tuned.
const RUN: usize = 1024;

/// Sorted runs that one launch merges: each token does a binary search in all but its own. Not tuned: a batch of up to 8,192 tokens
/// needs one merge.
const WAYS: usize = 8;

/// The most columns that one cube adds up. Not tuned.
const COLUMNS: usize = 64;

/// The fewest tokens of a segment. Not tuned.
const SEGMENT: usize = 16;

/// The gradient of a table that is looked up by `ids`, given that of the sum, [B, S, H].
pub(in crate::ops::embed_layer_norm) fn scatter(
    on: &RowLaunch,
    sum: CubeTensor,
    table: &CubeTensor,
    ids: &CubeTensor,
    padding_idx: Option<usize>,
) -> CubeTensor {
    let rows = table.meta.shape()[0] as u32;
    // No row has this number: without padding every token trains one.
    let pad = padding_idx.map_or(u32::MAX, |pad| pad as u32);
    let sorted_rows = sorted(on, ids, rows, pad);
    // The kernels write no row that no token reads.
    let gradient = on.zeros(table.meta.shape().clone(), on.float);
    let per_segment = on.rows.isqrt().max(SEGMENT);
    let segments = on.rows.div_ceil(per_segment);
    let partials = on.empty([segments, 2, on.hidden], on.wide);
    let units = COLUMNS.min(on.max_units).min(on.hidden);
    let cubes = segments * on.hidden.div_ceil(units);
    let addresses = address_type([&sorted_rows, &sum, &partials, &gradient]);
    add_runs::launch(
        &on.client,
        on.cubes(cubes),
        CubeDim::new_1d(units as u32),
        addresses,
        sorted_rows.clone().into_buffer_arg(),
        sum.into_buffer_arg(),
        gradient.clone().into_tensor_arg(),
        partials.clone().into_buffer_arg(),
        on.rows,
        per_segment,
        rows,
        on.hidden,
        units,
        on.floats(),
    );
    if segments > 1 {
        join::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(units as u32),
            addresses,
            sorted_rows.into_buffer_arg(),
            partials.into_buffer_arg(),
            gradient.clone().into_tensor_arg(),
            on.rows,
            per_segment,
            rows,
            on.hidden,
            units,
            on.floats(),
        );
    }
    gradient
}

/// The gradient of a table whose rows from `first` on every sequence reads, given that of the sum, [B, S, H].
pub(super) fn scatter_cyclic(
    on: &RowLaunch,
    sum: CubeTensor,
    table: &CubeTensor,
    first: usize,
    seq: usize,
) -> CubeTensor {
    let rows = table.meta.shape()[0];
    let gradient = on.empty([rows, on.hidden], on.float);
    add_batch::launch(
        &on.client,
        on.cubes((rows * on.hidden).div_ceil(on.max_units)),
        CubeDim::new_1d(on.max_units as u32),
        address_type([&sum, &gradient]),
        sum.into_buffer_arg(),
        gradient.clone().into_buffer_arg(),
        first,
        on.rows / seq,
        seq,
        on.hidden,
        on.floats(),
    );
    gradient
}

/// [tokens, 2]: row and token, by row and then by token. Tokens of the row `pad` come last, with `rows` as row.
fn sorted(on: &RowLaunch, ids: &CubeTensor, rows: u32, pad: u32) -> CubeTensor {
    let tokens = on.rows;
    let units = on.max_units;
    let cubes = on.cubes(tokens.div_ceil(units));
    let dim = CubeDim::new_1d(units as u32);
    let addresses = AddressType::from_len(2 * tokens);
    let mut run = RUN.next_multiple_of(units);
    let mut sorted_rows = on.empty([tokens, 2], DType::U32);
    sort::launch(
        &on.client,
        cubes.clone(),
        dim,
        addresses,
        int_tensor(ids.clone()),
        sorted_rows.clone().into_buffer_arg(),
        tokens,
        run,
        rows,
        pad,
        units,
    );
    while run < tokens {
        let merged = on.empty([tokens, 2], DType::U32);
        merge::launch(
            &on.client,
            cubes.clone(),
            dim,
            addresses,
            sorted_rows.into_buffer_arg(),
            merged.clone().into_buffer_arg(),
            tokens,
            run,
            WAYS,
        );
        sorted_rows = merged;
        run *= WAYS;
    }
    sorted_rows
}

/// The row of `token`; `rows`, which sorts behind all of them, if it trains none.
#[cube]
fn trained_row(ids: &OwnedTensor<i32>, token: usize, rows: u32, pad: u32) -> u32 {
    let row = nearest_row(ids, token, rows - 1);
    if row == pad { rows } else { row }
}

/// Sorts each `run` of tokens, a multiple of `units`. A unit counts the tokens of the run that come before its own.
#[cube(launch, address_type = "dynamic")]
fn sort(
    ids: &OwnedTensor<i32>,
    sorted_rows: &mut [u32],
    tokens: usize,
    run: usize,
    rows: u32,
    pad: u32,
    #[comptime] units: usize,
) {
    let unit = UNIT_POS as usize;
    let of_cube = CUBE_POS * units;
    if of_cube >= tokens {
        terminate!();
    }
    let token = of_cube + unit;
    let first = of_cube / run * run;
    let end = clamp_max(first + run, tokens);
    let own = if token < end { trained_row(ids, token, rows, pad) } else { rows };
    let mut tile = Shared::<[u32]>::new_slice(units);
    let mut index = first;
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
                index += 1;
            }
        }
        sync_cube();
    }
    if token < end {
        sorted_rows[2 * index] = own;
        sorted_rows[2 * index + 1] = token as u32;
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
    let mut index = first * run + ABSOLUTE_POS % run;
    for i in 0..ways {
        let other = first + i;
        if other < own {
            // Equal rows of earlier runs come first: the sort is stable.
            index += count_below(from, other * run, run, tokens, row + 1);
        } else if other > own {
            index += count_below(from, other * run, run, tokens, row);
        }
    }
    to[2 * index] = row;
    to[2 * index + 1] = from[2 * ABSOLUTE_POS + 1];
}

/// The entries of the sorted run from `first` on whose row is below `row`. The run ends with the tokens.
#[cube]
fn count_below(sorted_rows: &[u32], first: usize, run: usize, tokens: usize, row: u32) -> usize {
    let start = clamp_max(first, tokens);
    let mut low = start;
    let mut high = clamp_max(first + run, tokens);
    while low < high {
        let middle = low + (high - low) / 2;
        if sorted_rows[2 * middle] < row {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low - start
}
