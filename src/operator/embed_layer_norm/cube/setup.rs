//! What the launches of one call have in common: sizes, dtypes, arguments.

use super::mask::MaskLaunch;
use super::source::{SourceLaunch, SourcesLaunch};
use crate::operator::dropout::Dropout;
use crate::operator::dtype::computed_in;
use crate::operator::embed_layer_norm::EmbedLayerNorm;
use crate::operator::embed_layer_norm::check::{assert_fits, kernel_dtype, summands};
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::philox;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl::calculate_cube_count_elemwise;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, zeros_client};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};

pub(super) type Input = EmbedLayerNorm<CubeBackend>;

/// Units of a cube, at most: what every WebGPU device offers.
pub(super) const UNITS: usize = 256;

pub(super) struct Setup {
    pub(super) client: Client,
    device: CubeDevice,
    pub(super) dtypes: Dtypes,
    pub(super) batch: usize,
    pub(super) seq: usize,
    pub(super) hidden: usize,
    /// Of a cube, at most.
    pub(super) max_units: usize,
    /// Of a cube that works on a token.
    pub(super) units: usize,
    pub(super) address_type: AddressType,
}

/// What the kernels compute in.
#[derive(Clone, Copy)]
pub(super) struct Dtypes {
    /// Of the tables and of y.
    pub(super) float: DType,
    /// Of the statistics and of sums.
    pub(super) wide: DType,
    pub(super) ids: DType,
}

impl Dtypes {
    /// `None` for inputs that the kernels do not take, or that the device has too few bindings for.
    ///
    /// # Panics
    ///
    /// If the shapes do not fit.
    pub(super) fn of<B: Backend<Device = CubeDevice>>(input: &EmbedLayerNorm<B>) -> Option<Self> {
        let float = kernel_dtype(input)?;
        assert_fits(input);
        let wide = computed_in(float);
        if !matches!(wide, DType::F32 | DType::F64) {
            return None;
        }
        let ids = common_ids_dtype(input)?;
        let client = input.gamma.device().client();
        (bindings(input) <= client.properties().hardware.max_bindings).then_some(Self { float, wide, ids })
    }
}

impl Setup {
    /// `None` where [`Dtypes::of`] is.
    pub(super) fn new(input: &Input) -> Option<Self> {
        let dtypes = Dtypes::of(input)?;
        let client = input.gamma.client.clone();
        let hardware = &client.properties().hardware;
        let hidden = input.gamma.meta.shape()[0];
        let max_units = UNITS.min(hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize);
        let [batch, seq] = input.shape;
        let values = batch * seq * hidden;
        let tables = summands(input).into_iter().filter_map(|(_, rows)| rows.source());
        Some(Self {
            dtypes,
            batch,
            seq,
            hidden,
            max_units,
            units: max_units.min(16 * hidden.div_ceil(64)),
            address_type: address_type(tables).max(AddressType::from_len(values)),
            device: input.gamma.device.clone(),
            client,
        })
    }

    /// A tensor whose values are still to be written.
    pub(super) fn empty<const D: usize>(&self, shape: [usize; D], dtype: DType) -> CubeTensor {
        empty_device_contiguous_dtype(self.client.clone(), self.device.clone(), Shape::new(shape), dtype)
    }

    pub(super) fn zeros_like(&self, table: &CubeTensor) -> CubeTensor {
        zeros_client(self.client.clone(), self.device.clone(), table.meta.shape().clone(), self.dtypes.float)
    }

    /// As many cubes, or a few more if the device needs more than one dimension for them.
    pub(super) fn cubes(&self, count: usize) -> CubeCount {
        calculate_cube_count_elemwise(&self.client, count, CubeDim::new_1d(1))
    }

    pub(super) fn scalar(&self, value: f64) -> InputScalar {
        InputScalar::new(value, dtype_to_elem_type(self.dtypes.wide))
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
                let shape = Shape::new([tokens, self.hidden]);
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
        into_contiguous(cast(ids.clone(), self.dtypes.ids))
    }

    pub(super) fn mask<I: Int>(&self, input: &Input) -> Option<MaskLaunch<I>> {
        let Dropout::Philox { seed, prob } = &input.dropout else { return None };
        let (threshold, scale) = philox::threshold_and_scale(*prob);
        Some(MaskLaunch::new(self.ids(seed).into_tensor_arg(), threshold, self.scalar(scale)))
    }
}

/// The width that addresses into the largest of the tensors need.
pub(super) fn address_type<'a>(tensors: impl IntoIterator<Item = &'a CubeTensor>) -> AddressType {
    tensors.into_iter().map(CubeTensor::required_address_type).max().unwrap_or_default()
}

/// The dtype that all ids share, small ones widened.
fn common_ids_dtype<B: Backend>(input: &EmbedLayerNorm<B>) -> Option<DType> {
    let mut dtypes = summands(input).into_iter().filter_map(|(_, rows)| match rows {
        Rows::Lookup { ids, .. } => Some(match ids.dtype() {
            dtype @ (DType::I64 | DType::U32 | DType::U64) => dtype,
            _ => DType::I32,
        }),
        _ => None,
    });
    let first = dtypes.next().unwrap_or(DType::I32);
    dtypes.all(|dtype| dtype == first).then_some(first)
}

/// Buffers that the backward binds at most; the forward binds fewer.
fn bindings<B: Backend>(input: &EmbedLayerNorm<B>) -> u32 {
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
