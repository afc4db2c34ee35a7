//! From the sum's gradient to a table's: no atomics, so each sum has one order.
//!
//! For ids, tokens are [sorted](super::sort) by row. The sorted list is cut into segments, and a cube adds up the runs
//! of equal rows in its segment. A run that lies in one segment goes straight to the table; a longer one leaves a
//! partial sum in each, which [`join`] adds up. With √N tokens a segment the longest chain of additions is 2 √N, also
//! if all N tokens read the same row.

use super::Setup;
use crate::cube::launch::address_type;
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
pub(super) fn add_runs<T: Float, W: Float>(
    places: &[u32],
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
    let mut row = places[2 * first];
    let mut is_open = false;
    if first > 0 {
        // A run that began in an earlier segment is not this one's to write.
        is_open = places[2 * first - 2] == row;
    }
    let mut total = W::new(0.0);
    for place in first..end {
        let next = places[2 * place];
        if next != row {
            if is_open {
                partials[2 * segment * hidden + column] = total;
            } else {
                let start = row as usize * table.stride(0);
                table[start + column] = T::cast_from(total);
            }
            row = next;
            is_open = false;
            total = W::new(0.0);
        }
        if row < rows {
            // Tokens that train no row are last, with `rows` as row.
            total += sum[places[2 * place + 1] as usize * hidden + column];
        }
    }
    if row < rows {
        let mut goes_on = false;
        if end < tokens {
            goes_on = places[2 * end] == row;
        }
        if is_open {
            partials[2 * segment * hidden + column] = total;
        } else if goes_on {
            partials[(2 * segment + 1) * hidden + column] = total;
        } else {
            let start = row as usize * table.stride(0);
            table[start + column] = T::cast_from(total);
        }
    }
}

/// Adds up the partial sums of each run that is longer than what is left of the segment it begins in.
#[cube(launch, address_type = "dynamic")]
pub(super) fn join<T: Float, W: Float>(
    places: &[u32],
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
    let row = places[2 * end];
    let mut begins_here = places[2 * end - 2] == row && row < rows;
    if begins_here && first > 0 {
        begins_here = places[2 * first - 2] != row;
    }
    if begins_here {
        let mut total = partials[(2 * segment + 1) * hidden + column];
        let mut next = segment + 1;
        let mut goes_on = true;
        while goes_on {
            total += partials[2 * next * hidden + column];
            next += 1;
            goes_on = false;
            if next * per_segment < tokens {
                goes_on = places[2 * next * per_segment] == row;
            }
        }
        let start = row as usize * table.stride(0);
        table[start + column] = T::cast_from(total);
    }
}

/// Row `first + s` of `table` is the sum over the batch at place s, every other row 0.
#[cube(launch, address_type = "dynamic")]
pub(super) fn add_batch<T: Float, W: Float>(
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

/// Columns that one cube adds up, at most.
const COLUMNS: usize = 64;

/// Tokens of a segment, at least.
const SEGMENT: usize = 16;

impl Setup {
    /// The gradient of a table that is looked up by `ids`, given that of the sum, [B, S, H].
    pub(super) fn scatter(
        &self,
        sum: CubeTensor,
        table: &CubeTensor,
        ids: &CubeTensor,
        padding_idx: Option<usize>,
    ) -> CubeTensor {
        let on = &self.on;
        let rows = table.meta.shape()[0] as u32;
        // No row has this number: without padding every token trains one.
        let pad = padding_idx.map_or(u32::MAX, |pad| pad as u32);
        let places = self.sorted(ids, rows, pad);
        let gradient = on.zeros_like(table);
        let per_segment = on.rows.isqrt().max(SEGMENT);
        let segments = on.rows.div_ceil(per_segment);
        let partials = on.empty([segments, 2, on.hidden], on.wide);
        let units = COLUMNS.min(on.max_units).min(on.hidden);
        let cubes = segments * on.hidden.div_ceil(units);
        let addresses = address_type([&places, &sum, &partials, &gradient]);
        add_runs::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(units as u32),
            addresses,
            places.clone().into_buffer_arg(),
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
                places.into_buffer_arg(),
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
    pub(super) fn add_batch(&self, sum: CubeTensor, table: &CubeTensor, first: usize) -> CubeTensor {
        let rows = table.meta.shape()[0];
        let gradient = self.on.empty([rows, self.on.hidden], self.on.float);
        add_batch::launch(
            &self.on.client,
            self.on.cubes((rows * self.on.hidden).div_ceil(self.on.max_units)),
            CubeDim::new_1d(self.on.max_units as u32),
            address_type([&sum, &gradient]),
            sum.into_buffer_arg(),
            gradient.clone().into_buffer_arg(),
            first,
            self.batch,
            self.seq,
            self.on.hidden,
            self.on.floats(),
        );
        gradient
    }
}
