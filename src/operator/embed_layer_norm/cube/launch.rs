//! Launches: the forward, and the backward as far as it is the same for all summands.

use super::setup::{Input, Setup};
use super::{backward, forward};
use crate::operator::cube::launch::buffer;
use crate::operator::embed_layer_norm::EmbedLayerNormOp;
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::kernels::Output;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

impl Setup {
    /// y [B, S, H], mean and rstd [B, S, 1].
    pub(super) fn forward(&self, input: &Input) -> Output<EmbedLayerNormOp, CubeBackend> {
        let on = &self.on;
        let y = on.empty([self.batch, self.seq, on.hidden], on.float);
        let [mean, rstd] = [(); 2].map(|()| on.empty([self.batch, self.seq, 1], on.wide));
        forward::forward::launch(
            &on.client,
            on.cubes(on.rows),
            on.cube_dim(),
            on.address_type,
            self.sources(input),
            buffer(input.gamma.clone()),
            buffer(input.beta.clone()),
            on.scalar(input.epsilon),
            on.mask(&input.dropout, self.ids).into(),
            y.clone().into_buffer_arg(),
            mean.clone().into_buffer_arg(),
            rstd.clone().into_buffer_arg(),
            on.rows,
            on.hidden,
            on.units,
            on.slots(),
            on.dtypes(self.ids),
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
        let on = &self.on;
        let rows = [(words, &input.words), (token_types, &input.token_types), (positions, &input.positions)];
        let needed = || rows.iter().filter(|(needed, _)| *needed).map(|(_, rows)| *rows);
        let is_total = |rows: &Rows<_>| matches!(rows, Rows::Row { .. });
        let totals = gamma || beta || needed().any(is_total);
        let stores = needed().any(|rows| !is_total(rows) && !matches!(rows, Rows::Absent));
        if !totals && !stores {
            return vec![None; 5];
        }

        let sum = stores.then(|| on.empty([self.batch, self.seq, on.hidden], on.wide));
        let partials = on.partials(if totals { 3 } else { 0 });
        backward::backward::launch(
            &on.client,
            on.cubes(on.shares()),
            on.cube_dim(),
            on.address_type,
            self.sources(input),
            buffer(input.gamma.clone()),
            on.mask(&input.dropout, self.ids).into(),
            buffer(mean),
            buffer(rstd),
            buffer(grad),
            sum.clone().map(CubeTensor::into_buffer_arg).into(),
            partials.clone().map(CubeTensor::into_buffer_arg).into(),
            on.rows,
            on.rows_per_cube(),
            on.hidden,
            on.units,
            on.slots(),
            on.dtypes(self.ids),
        );

        let of_row = |table: &CubeTensor, row: usize| {
            let output = on.zeros_like(table);
            let start = if row > 0 { row * output.meta.strides()[0] } else { 0 };
            on.total(partials.clone()?, 2..3, output.clone(), start, 0);
            Some(output)
        };
        let [words, token_types, positions] = rows.map(|(needed, rows)| {
            if !needed {
                return None;
            }
            match rows {
                Rows::Absent => None,
                Rows::Values(_) => Some(cast(sum.clone()?, on.float)),
                Rows::Range { table, first } => Some(self.add_batch(sum.clone()?, table, *first)),
                Rows::Row { table, row } => of_row(table, *row),
                Rows::Lookup { table, ids, padding_idx } => {
                    Some(self.scatter(sum.clone()?, table, ids, *padding_idx))
                }
            }
        });
        let vectors = partials.filter(|_| gamma || beta).map(|partials| on.totals(&partials, 2));
        let vector = |needed: bool, i: usize| vectors.as_ref().filter(|_| needed).map(|all| all[i].clone());
        vec![words, token_types, positions, vector(gamma, 0), vector(beta, 1)]
    }
}
