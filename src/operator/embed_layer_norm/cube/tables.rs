//! Launches that turn the sum's gradient into a table's.

use super::scatter;
use super::setup::Setup;
use crate::operator::cube::launch::address_type;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::tensor::CubeTensor;

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
        let tokens = self.batch * self.seq;
        let rows = table.meta.shape()[0] as u32;
        let pad = padding_idx.map_or(u32::MAX, |pad| pad as u32);
        let places = self.sorted(ids, rows, pad);
        let gradient = self.on.zeros_like(table);
        let per_segment = tokens.isqrt().max(SEGMENT);
        let segments = tokens.div_ceil(per_segment);
        let partials = self.on.empty([segments, 2, self.on.hidden], self.on.wide);
        let units = COLUMNS.min(self.on.max_units).min(self.on.hidden);
        let cubes = segments * self.on.hidden.div_ceil(units);
        let addresses = address_type([&places, &sum, &partials, &gradient]);
        let dtypes = self.on.floats();
        scatter::add_runs::launch(
            &self.on.client,
            self.on.cubes(cubes),
            CubeDim::new_1d(units as u32),
            addresses,
            places.clone().into_buffer_arg(),
            sum.into_buffer_arg(),
            gradient.clone().into_tensor_arg(),
            partials.clone().into_buffer_arg(),
            tokens,
            per_segment,
            rows,
            self.on.hidden,
            units,
            dtypes,
        );
        if segments > 1 {
            scatter::join::launch(
                &self.on.client,
                self.on.cubes(cubes),
                CubeDim::new_1d(units as u32),
                addresses,
                places.into_buffer_arg(),
                partials.into_buffer_arg(),
                gradient.clone().into_tensor_arg(),
                tokens,
                per_segment,
                rows,
                self.on.hidden,
                units,
                dtypes,
            );
        }
        gradient
    }

    /// The gradient of a table whose rows from `first` on every sequence reads, given that of the sum, [B, S, H].
    pub(super) fn add_batch(&self, sum: CubeTensor, table: &CubeTensor, first: usize) -> CubeTensor {
        let rows = table.meta.shape()[0];
        let gradient = self.on.empty([rows, self.on.hidden], self.on.float);
        scatter::add_batch::launch(
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
