//! CubeCL's devices: the kernels of [`layer_norm`], with rows of tables as summands.
//!
//! The forward is one launch. The backward is one, and one or two for each gradient that is asked for; four for a table that
//! is looked up by id, with one more for each factor of eight in tokens beyond 1,024.

mod scatter;

use crate::cube::launch::{RowLaunch, address_type, buffer, output};
use crate::cube::layer_norm::{self, SourceLaunch, SummandsArgs, TablesLaunch};
use crate::engine::operator::{Fields, Gradients, Kernels, Operator, Output, Upstream};
use crate::ops::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp, Index, Summand, summands};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;

pub(super) type Input = EmbedLayerNorm<CubeBackend>;

pub(super) struct Setup {
    pub(super) on: RowLaunch,
    pub(super) ids: DType,
    pub(super) batch: usize,
    pub(super) seq: usize,
}

impl Setup {
    /// `None` for inputs that the kernels do not take, or that the device has too few bindings for.
    fn new(input: &Input) -> Option<Self> {
        let ids = common_ids_dtype(input)?;
        let [batch, seq] = input.shape;
        let shape = [batch * seq, input.gamma.meta.shape()[0]];
        let floats: Vec<_> = EmbedLayerNormOp::operands::<CubeBackend>(input).into_iter().flatten().collect();
        // A table without rows has none that is nearest to an id.
        if floats.iter().any(|float| float.meta.shape()[0] == 0) {
            return None;
        }
        let mut on = RowLaunch::of(&floats, shape, bindings(input))?;
        on.address_type = on.address_type.max(address_type(floats));
        Some(Self { on, ids, batch, seq })
    }

    fn sources<T: Float, I: Int>(&self, input: &Input) -> SummandsArgs<T, I> {
        let [words, token_types, positions] = summands(input).map(|summand| self.source(summand).into());
        SummandsArgs::Tables(TablesLaunch::new(words, token_types, positions))
    }

    fn source<T: Float, I: Int>(&self, summand: &Summand<CubeBackend>) -> Option<SourceLaunch<T, I>> {
        let table = summand.table.clone()?;
        // Kernels know the stride of rows alone.
        let table = if table.meta.strides().last() == Some(&1) { table } else { into_contiguous(table) };
        let (ids, [first, period]) = match &summand.rows {
            Index::Ids { ids, .. } => (Some(self.ids(ids).into_tensor_arg()), [0, 1]),
            Index::Cyclic { first, period } => (None, [*first, *period]),
        };
        let last = table.meta.shape()[0] - 1;
        Some(SourceLaunch::new(table.into_tensor_arg(), ids.into(), first, period, last as u32))
    }

    /// Ids in the dtype that they all share.
    pub(super) fn ids(&self, ids: &CubeTensor) -> CubeTensor {
        into_contiguous(cast(ids.clone(), self.ids))
    }
}

/// The dtype that all ids share, small ones widened.
fn common_ids_dtype(input: &Input) -> Option<DType> {
    let mut dtypes = summands(input).into_iter().filter_map(|summand| match &summand.rows {
        Index::Ids { ids, .. } => Some(match ids.dtype {
            dtype @ (DType::I64 | DType::U32 | DType::U64) => dtype,
            _ => DType::I32,
        }),
        Index::Cyclic { .. } => None,
    });
    // A kernel is compiled for one dtype of all ids.
    let first = dtypes.next().unwrap_or(DType::I32);
    dtypes.all(|dtype| dtype == first).then_some(first)
}

/// Buffers that the backward binds at most; the forward binds fewer.
fn bindings(input: &Input) -> u32 {
    let of_source = |summand: &Summand<_>| {
        let has_ids = matches!(summand.rows, Index::Ids { .. });
        u32::from(summand.table.is_some()) + u32::from(has_ids)
    };
    let sources = summands(input).map(of_source).iter().sum::<u32>();
    let mask = u32::from(input.dropout.0.is_some());
    // gamma, mean, rstd, grad, two outputs, and CubeCL's own for sizes and scalars
    sources + mask + 7
}

impl Kernels<CubeBackend> for EmbedLayerNormOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let Some(setup) = Setup::new(&input) else { return Self::reference(input) };
        let on = &setup.on;
        let y = on.empty([setup.batch, setup.seq, on.hidden], on.float);
        let [mean, rstd] = [(); 2].map(|()| on.empty([setup.batch, setup.seq, 1], on.wide));
        layer_norm::forward::launch(
            &on.client,
            on.cubes(on.rows),
            on.cube_dim(),
            on.address_type,
            setup.sources(&input),
            buffer(input.gamma.clone()),
            buffer(input.beta.clone()),
            on.scalar(input.epsilon),
            on.mask(&input.dropout).into(),
            y.clone().into_buffer_arg(),
            mean.clone().into_buffer_arg(),
            rstd.clone().into_buffer_arg(),
            on.rows,
            on.hidden,
            on.split,
            [on.float, on.wide, setup.ids].map(dtype_to_elem_type),
        );
        (y, [mean, rstd])
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let Some(setup) = Setup::new(&input) else { return Self::reference_backward(input, upstream) };
        let on = &setup.on;
        let Upstream { statistics, grad, needs: [words, token_types, positions, gamma, beta] } = upstream;
        let [mean, rstd] = statistics.map(buffer);
        let tables = summands(&input).into_iter().zip([words, token_types, positions]);
        let tables =
            tables.map(|(summand, needed)| (summand.table.as_ref().filter(|_| needed), &summand.rows));
        let needed = || tables.clone().filter(|(table, _)| table.is_some()).map(|(_, rows)| rows);
        let is_total = |rows: &Index<_>| matches!(rows, Index::Cyclic { period: 1, .. });
        // A row that all tokens read gets the total of ∂L/∂x: nothing is stored for it.
        let totals = gamma || beta || needed().any(is_total);
        let stores = needed().any(|rows| !is_total(rows));
        if !totals && !stores {
            return vec![None; 5];
        }

        let sum = stores.then(|| on.empty([on.rows, on.hidden], on.wide));
        let partials = on.partials(if totals { 3 } else { 0 });
        layer_norm::backward::launch(
            &on.client,
            on.cubes(on.shares()),
            on.cube_dim(),
            on.address_type,
            setup.sources(&input),
            buffer(input.gamma.clone()),
            on.mask(&input.dropout).into(),
            mean,
            rstd,
            buffer(grad),
            output(&sum).into(),
            None.into(),
            output(&partials).into(),
            on.rows,
            on.rows_per_cube(),
            on.hidden,
            on.split,
            // Tables add up the gradients of many tokens, which are rounded after that.
            [on.float, on.wide, on.wide, setup.ids].map(dtype_to_elem_type),
        );

        let gradient = |(table, rows): (Option<&CubeTensor>, &Index<CubeTensor>)| {
            let table = table?;
            Some(match rows {
                Index::Cyclic { first, period: 1 } => {
                    let output = on.zeros(table.meta.shape().clone(), on.float);
                    let start = first * output.meta.strides()[0];
                    on.total(partials.clone()?, 2..3, output.clone(), start, 0);
                    output
                }
                // Each row of the table is one token's.
                Index::Cyclic { period, .. } if [*period, table.meta.shape()[0]] == [on.rows; 2] => {
                    cast(sum.clone()?, on.float)
                }
                Index::Cyclic { first, .. } => setup.add_batch(sum.clone()?, table, *first),
                Index::Ids { ids, padding_idx } => setup.scatter(sum.clone()?, table, ids, *padding_idx),
            })
        };
        let mut gradients: Vec<_> = tables.clone().map(gradient).collect();
        let vectors = partials.filter(|_| gamma || beta).map(|partials| on.totals(&partials, 2));
        let vector = |needed: bool, i: usize| vectors.as_ref().filter(|_| needed).map(|all| all[i].clone());
        gradients.extend([vector(gamma, 0), vector(beta, 1)]);
        gradients
    }
}
