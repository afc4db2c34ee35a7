//! Launches: the forward, and the backward as far as it is the same for all summands.

use super::backward::{self, LANES, Totals};
use super::forward;
use super::row::slots;
use super::setup::{Input, Setup, UNITS, address_type};
use crate::operator::embed_layer_norm::EmbedLayerNormOp;
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::kernels::Output;
use burn::backend::cubecl::dtype_to_elem_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;

/// Partial sums of what is summed over all tokens, at most.
const PARTIALS: usize = 1024;

impl Setup {
    /// y [B, S, H], mean and rstd [B, S, 1].
    pub(super) fn forward(&self, input: &Input) -> Output<EmbedLayerNormOp, CubeBackend> {
        let tokens = self.batch * self.seq;
        let y = self.empty([self.batch, self.seq, self.hidden], self.dtypes.float);
        let [mean, rstd] = [(); 2].map(|()| self.empty([self.batch, self.seq, 1], self.dtypes.wide));
        forward::forward::launch(
            &self.client,
            self.cubes(tokens),
            CubeDim::new_1d(self.units as u32),
            self.address_type,
            self.sources(input),
            into_contiguous(input.gamma.clone()).into_buffer_arg(),
            into_contiguous(input.beta.clone()).into_buffer_arg(),
            self.scalar(input.epsilon),
            self.mask(input).into(),
            y.clone().into_buffer_arg(),
            mean.clone().into_buffer_arg(),
            rstd.clone().into_buffer_arg(),
            tokens,
            self.hidden,
            self.units,
            slots(self.hidden, self.units),
            [self.dtypes.float, self.dtypes.wide, self.dtypes.ids].map(dtype_to_elem_type),
        );
        (y, [mean, rstd])
    }

    /// The gradients that are asked for.
    pub(super) fn backward(
        &self,
        input: &Input,
        mean: CubeTensor,
        rstd: CubeTensor,
        grad: CubeTensor,
        [words, token_types, positions, gamma, beta]: [bool; 5],
    ) -> Vec<Option<CubeTensor>> {
        let tokens = self.batch * self.seq;
        let rows = [(words, &input.words), (token_types, &input.token_types), (positions, &input.positions)];
        let needed = || rows.iter().filter(|(needed, _)| *needed).map(|(_, rows)| *rows);
        let is_total = |rows: &Rows<_>| matches!(rows, Rows::Row { .. });
        let totals = Totals { gamma, beta, sum: needed().any(is_total) };
        let planes = [totals.gamma, totals.beta, totals.sum].into_iter().filter(|&needed| needed).count();
        let stores = needed().any(|rows| !is_total(rows) && !matches!(rows, Rows::Absent));
        if planes == 0 && !stores {
            return vec![None; 5];
        }

        // At least four, so that the partial sums are few beside the gradient itself.
        let per_cube = tokens.div_ceil(PARTIALS).max(4);
        let cubes = tokens.div_ceil(per_cube);
        let sum = stores.then(|| self.empty([self.batch, self.seq, self.hidden], self.dtypes.wide));
        let partials = (planes > 0).then(|| self.empty([planes, cubes, self.hidden], self.dtypes.wide));
        backward::backward::launch(
            &self.client,
            self.cubes(cubes),
            CubeDim::new_1d(self.units as u32),
            self.address_type,
            self.sources(input),
            into_contiguous(input.gamma.clone()).into_buffer_arg(),
            self.mask(input).into(),
            into_contiguous(mean).into_buffer_arg(),
            into_contiguous(rstd).into_buffer_arg(),
            into_contiguous(grad).into_buffer_arg(),
            sum.clone().map(CubeTensor::into_buffer_arg).into(),
            partials.clone().map(CubeTensor::into_buffer_arg).into(),
            tokens,
            per_cube,
            totals,
            self.hidden,
            self.units,
            slots(self.hidden, self.units),
            [self.dtypes.float, self.dtypes.wide, self.dtypes.ids].map(dtype_to_elem_type),
        );

        let total = |plane: usize, output: CubeTensor, row: usize| {
            let start = if row > 0 { row * output.meta.strides()[0] } else { 0 };
            self.total(partials.clone()?, plane * cubes * self.hidden, cubes, output, start)
        };
        let vector = |plane| total(plane, self.empty([self.hidden], self.dtypes.float), 0);
        let [words, token_types, positions] = rows.map(|(needed, rows)| {
            if !needed {
                return None;
            }
            match rows {
                Rows::Absent => None,
                Rows::Values(_) => Some(cast(sum.clone()?, self.dtypes.float)),
                Rows::Range { table, first } => Some(self.add_batch(sum.clone()?, table, *first)),
                Rows::Row { table, row } => total(planes - 1, self.zeros_like(table), *row),
                Rows::Lookup { table, ids, padding_idx } => {
                    Some(self.scatter(sum.clone()?, table, ids, *padding_idx))
                }
            }
        });
        let gamma = gamma.then(|| vector(0)).flatten();
        let beta = beta.then(|| vector(usize::from(totals.gamma))).flatten();
        vec![words, token_types, positions, gamma, beta]
    }

    /// Adds `rows` rows of `partials` up into `output` from `start` on.
    fn total(
        &self,
        partials: CubeTensor,
        first: usize,
        rows: usize,
        output: CubeTensor,
        start: usize,
    ) -> Option<CubeTensor> {
        let units = self.max_units;
        let lanes = if units == UNITS { LANES } else { 1 };
        backward::total::launch(
            &self.client,
            self.cubes(self.hidden.div_ceil(units / lanes)),
            CubeDim::new_1d(units as u32),
            address_type([&partials, &output]),
            partials.into_buffer_arg(),
            output.clone().into_tensor_arg(),
            first,
            rows,
            start,
            self.hidden,
            units,
            lanes,
            [self.dtypes.float, self.dtypes.wide].map(dtype_to_elem_type),
        );
        Some(output)
    }
}
