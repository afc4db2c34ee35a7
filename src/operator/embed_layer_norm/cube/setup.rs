//! What the launches of one call have in common: sizes, dtypes, arguments.

use super::source::{SourceLaunch, SourcesLaunch};
use crate::operator::cube::launch::{RowLaunch, address_type};
use crate::operator::dropout::Dropout;
use crate::operator::embed_layer_norm::check::{assert_fits, summands};
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use crate::operator::inputs::Fields;
use burn::tensor::{DType, Shape};
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
    ///
    /// # Panics
    ///
    /// If the shapes do not fit.
    pub(super) fn new(input: &Input) -> Option<Self> {
        assert_fits(input);
        let ids = common_ids_dtype(input)?;
        let [batch, seq] = input.shape;
        let shape = [batch * seq, input.gamma.meta.shape()[0]];
        let floats: Vec<_> = EmbedLayerNormOp::operands::<CubeBackend>(input).into_iter().flatten().collect();
        if floats.iter().any(|float| float.meta.shape()[0] == 0) {
            return None;
        }
        let mut on = RowLaunch::of(input.path, &floats, shape, bindings(input))?;
        on.address_type = on.address_type.max(address_type(floats));
        Some(Self { on, ids, batch, seq })
    }

    pub(super) fn sources<T: Float, I: Int>(&self, input: &Input) -> SourcesLaunch<T, I> {
        let [words, token_types, positions] = summands(input).map(|(_, rows)| self.source(rows).into());
        SourcesLaunch::new(words, token_types, positions)
    }

    fn source<T: Float, I: Int>(&self, rows: &Rows<CubeBackend>) -> Option<SourceLaunch<T, I>> {
        let (table, ids, first, period) = match rows {
            Rows::Absent => return None,
            Rows::Lookup { table, ids, .. } => (with_contiguous_rows(table), Some(self.ids(ids)), 0, 1),
            Rows::Range { table, first } => (with_contiguous_rows(table), None, *first, self.seq),
            Rows::Row { table, row } => (with_contiguous_rows(table), None, *row, 1),
            Rows::Values(values) => {
                let values = into_contiguous(values.clone());
                let tokens = self.batch * self.seq;
                let shape = Shape::new([tokens, self.on.hidden]);
                let CubeTensor { client, device, handle, dtype, .. } = values;
                (CubeTensor::new_contiguous(client, device, shape, handle, dtype), None, 0, tokens)
            }
        };
        let last = table.meta.shape()[0] - 1;
        let ids = ids.map(CubeTensor::into_tensor_arg).into();
        Some(SourceLaunch::new(table.into_tensor_arg(), ids, first, period, last as u32))
    }

    /// Ids in the dtype that they all share.
    pub(super) fn ids(&self, ids: &CubeTensor) -> CubeTensor {
        into_contiguous(cast(ids.clone(), self.ids))
    }
}

/// The dtype that all ids share, small ones widened.
fn common_ids_dtype(input: &Input) -> Option<DType> {
    let mut dtypes = summands(input).into_iter().filter_map(|(_, rows)| match rows {
        Rows::Lookup { ids, .. } => Some(match ids.dtype {
            dtype @ (DType::I64 | DType::U32 | DType::U64) => dtype,
            _ => DType::I32,
        }),
        _ => None,
    });
    let first = dtypes.next().unwrap_or(DType::I32);
    dtypes.all(|dtype| dtype == first).then_some(first)
}

/// Buffers that the backward binds at most; the forward binds fewer.
fn bindings(input: &Input) -> u32 {
    let sources: u32 = summands(input)
        .map(|(_, rows)| match rows {
            Rows::Absent => 0,
            Rows::Lookup { .. } => 2,
            Rows::Range { .. } | Rows::Row { .. } | Rows::Values(_) => 1,
        })
        .into_iter()
        .sum();
    let mask = u32::from(matches!(input.dropout, Dropout::Philox { .. }));
    // gamma, mean, rstd, grad, two outputs, and CubeCL's own for sizes and scalars
    sources + mask + 7
}

/// The table, with the values of each row side by side.
fn with_contiguous_rows(table: &CubeTensor) -> CubeTensor {
    match table.meta.strides()[1] {
        1 => table.clone(),
        _ => into_contiguous(table.clone()),
    }
}
