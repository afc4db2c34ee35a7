//! What the launches of one call have in common: sizes, dtypes, arguments.

use crate::numerics::philox::{GROUP, LANES};
use crate::numerics::precision::computed_in;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::cubecl::{self, calculate_cube_count_elemwise};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, zeros_client};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};

/// The most units that a cube has: what every WebGPU device offers.
pub(crate) const UNITS: usize = 256;

/// Words that Philox gives for one counter, each of which decides one column.
pub(crate) const WORDS: usize = GROUP / LANES;

/// The most columns of a unit for which loops are unrolled: longer ones would make shaders that take long to compile. Not tuned.
pub(crate) const UNROLLED: usize = 16;

/// How the columns of a row are split among the units of a cube. A kernel is compiled for each.
///
/// Unit u takes the columns that share a Philox counter with it: for each counter c = u, u + U, … the four columns
/// 64 ⌊c / 16⌋ + 16 i + c mod 16. Sixteen units side by side read sixteen values side by side, and no word of the
/// generator is drawn twice or for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Split {
    pub(crate) units: usize,
    /// Columns that one unit takes at most.
    pub(crate) slots: usize,
}

impl Split {
    pub(crate) fn new(columns: usize, units: usize) -> Self {
        Self { units, slots: WORDS * Self::counters(columns).div_ceil(units) }
    }

    /// The Philox counters that the columns of a row need.
    pub(crate) fn counters(columns: usize) -> usize {
        // The last group of columns may be shorter than the others.
        LANES * columns.div_ceil(GROUP)
    }
}

/// The column of a unit's `slot`; it may lie past the last one.
#[cube]
pub(crate) fn column(slot: usize, #[comptime] split: Split) -> usize {
    column_of(UNIT_POS as usize + slot / WORDS * split.units, slot % WORDS)
}

/// The column of word `i` at a counter.
#[cube]
pub(crate) fn column_of(counter: usize, i: usize) -> usize {
    counter / LANES * GROUP + i * LANES + counter % LANES
}

/// Launches on rows of one length.
pub(crate) struct RowLaunch {
    pub(crate) client: Client,
    pub(crate) device: CubeDevice,
    pub(crate) rows: usize,
    /// Values of a row.
    pub(crate) hidden: usize,
    /// The dtype of values.
    pub(crate) float: DType,
    /// The dtype of statistics and sums.
    pub(crate) wide: DType,
    /// The most units that a cube can have.
    pub(crate) max_units: usize,
    /// The split of a row among the units of its cube.
    pub(crate) split: Split,
    pub(crate) address_type: AddressType,
}

impl RowLaunch {
    /// On the device of `like`, whose values are computed in f32 or f64.
    pub(crate) fn new(like: &CubeTensor, [rows, hidden]: [usize; 2]) -> Self {
        let client = like.client.clone();
        let hardware = &client.properties().hardware;
        let max_units = UNITS.min(hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize);
        Self {
            device: like.device.clone(),
            rows,
            hidden,
            float: like.dtype,
            wide: computed_in(like.dtype),
            max_units,
            // More units than counters would have nothing to do.
            split: Split::new(hidden, max_units.min(Split::counters(hidden))),
            address_type: AddressType::from_len(rows * hidden),
            client,
        }
    }

    /// The launch of kernels that bind at most `buffers` buffers, and whose float inputs all have one dtype; `None` for what they do
    /// not take.
    pub(crate) fn for_rows(inputs: &[&CubeTensor], shape: [usize; 2], buffers: usize) -> Option<Self> {
        let dtype = inputs[0].dtype;
        let alike = inputs.iter().all(|input| input.dtype == dtype);
        // No device launches zero cubes.
        let takes = alike && !shape.contains(&0) && is_computed(dtype);
        // WebGPU promises eight storage buffers, of which wgpu keeps one; CubeCL binds another for sizes and scalars.
        let takes = takes && buffers < inputs[0].client.properties().hardware.max_bindings as usize;
        takes.then(|| Self::new(inputs[0], shape))
    }

    /// [`for_rows`](Self::for_rows) with γ and β, which may also be in the dtype that the rows are computed in.
    pub(crate) fn for_norm(
        inputs: &[&CubeTensor],
        vectors: [&CubeTensor; 2],
        shape: [usize; 2],
        buffers: usize,
    ) -> Option<Self> {
        // Without any rows γ has their dtype.
        let inputs = if inputs.is_empty() { &vectors[..1] } else { inputs };
        let on = Self::for_rows(inputs, shape, buffers)?;
        vectors.iter().all(|vector| [on.float, on.wide].contains(&vector.dtype)).then_some(on)
    }

    /// A tensor whose values are still to be written.
    pub(crate) fn empty(&self, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
        empty_device_contiguous_dtype(self.client.clone(), self.device.clone(), shape.into(), dtype)
    }

    /// Room for tensors of one shape and dtype in one buffer, each where the device can bind it: the buffer, how far apart they
    /// begin, and the tensors.
    pub(crate) fn parts(
        &self,
        parts: usize,
        shape: Shape,
        dtype: DType,
    ) -> (CubeTensor, usize, Vec<CubeTensor>) {
        let (size, count) = (dtype.size(), shape.num_elements());
        let alignment = self.client.properties().memory.alignment as usize;
        // A buffer can be bound at aligned addresses alone.
        let stride = (count * size).next_multiple_of(alignment).div_ceil(size);
        let all = self.empty([parts * stride], dtype);
        let views = (0..parts).map(|i| part(&all, i * stride, shape.clone())).collect();
        (all, stride, views)
    }

    /// A tensor of zeros without gaps.
    pub(crate) fn zeros(&self, shape: Shape, dtype: DType) -> CubeTensor {
        // CUDA and ROCm begin each row of what has several at an aligned address.
        let flat = Shape::new([shape.num_elements()]);
        let zeros = zeros_client(self.client.clone(), self.device.clone(), flat, dtype);
        CubeBackend::float_reshape(zeros, shape)
    }

    /// `count` cubes, or a few more if the device needs more than one dimension for them.
    pub(crate) fn cubes(&self, count: usize) -> CubeCount {
        calculate_cube_count_elemwise(&self.client, count, CubeDim::new_1d(1))
    }

    /// How many cubes and units a kernel has that takes `count` values one by one, and how many of them a unit takes: as many as the
    /// device moves at once in `dtype`, the widest of the kernel, if each of `lengths` is whole in them and tensors begin at multiples.
    pub(crate) fn elementwise(
        &self,
        count: usize,
        dtype: DType,
        lengths: &[usize],
    ) -> (CubeCount, CubeDim, usize) {
        let sizes = self.client.io_optimized_vector_sizes(dtype.size());
        let alignment = self.client.properties().memory.alignment as usize;
        let is_whole = |&size: &usize| {
            size * dtype.size() <= alignment && lengths.iter().all(|length| length % size == 0)
        };
        let vector = sizes.filter(is_whole).max().unwrap_or(1);
        let cubes = self.cubes((count / vector).div_ceil(self.max_units));
        (cubes, CubeDim::new_1d(self.max_units as u32), vector)
    }

    pub(crate) fn cube_dim(&self) -> CubeDim {
        CubeDim::new_1d(self.split.units as u32)
    }

    pub(crate) fn scalar(&self, value: f64) -> InputScalar {
        InputScalar::new(value, dtype_to_elem_type(self.wide))
    }

    /// `float` and `wide` as kernels take them.
    pub(crate) fn floats(&self) -> [ElemType; 2] {
        [self.float, self.wide].map(dtype_to_elem_type)
    }
}

/// Whether there are kernels for values of `dtype`.
pub(crate) fn is_computed(dtype: DType) -> bool {
    matches!(computed_in(dtype), DType::F32 | DType::F64)
}

/// The values of a tensor of `shape` in `all`, whose values are side by side, from value `start` on, where the device can bind it.
pub(crate) fn part(all: &CubeTensor, start: usize, shape: Shape) -> CubeTensor {
    let size = all.dtype.size();
    let rest = all.meta.shape().num_elements() - start - shape.num_elements();
    let handle = all.handle.clone().offset_start((start * size) as u64).offset_end((rest * size) as u64);
    CubeTensor::new_contiguous(all.client.clone(), all.device.clone(), shape, handle, all.dtype)
}

/// A tensor as an argument: its values side by side, and nothing behind the last.
pub(crate) fn buffer(tensor: CubeTensor) -> BufferArg {
    let mut tensor = into_contiguous(tensor);
    let values = (tensor.meta.shape().num_elements() * tensor.dtype.size()) as u64;
    // CUDA and ROCm may put padding there, which kernels that read to the end would read.
    let padding = tensor.handle.size_in_used() - values;
    if padding > 0 {
        tensor.handle = tensor.handle.offset_end(padding);
    }
    tensor.into_buffer_arg()
}

/// The argument of a tensor that a kernel writes only if it is given.
pub(crate) fn output(tensor: &Option<CubeTensor>) -> Option<BufferArg> {
    tensor.clone().map(CubeTensor::into_buffer_arg)
}

/// Integers as an argument, in 32 bits. Ids and labels that those do not hold become the nearest that they do.
pub(crate) fn int_tensor(tensor: CubeTensor) -> TensorArg {
    let tensor = match tensor.dtype {
        // A cast alone would wrap.
        DType::I64 | DType::U32 | DType::U64 => {
            CubeBackend::int_clamp(tensor, 0.into(), i64::from(i32::MAX).into())
        }
        _ => tensor,
    };
    into_contiguous(cast(tensor, DType::I32)).into_tensor_arg()
}

/// The width that addresses into the largest of the tensors need.
pub(crate) fn address_type<'a>(tensors: impl IntoIterator<Item = &'a CubeTensor>) -> AddressType {
    tensors.into_iter().map(CubeTensor::required_address_type).max().unwrap_or_default()
}

/// A lock of the tests that launch kernels which one of them counts.
#[cfg(test)]
pub(crate) fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    /// The most buffers of a kernel in a source file: parameters that are slices, tensors or masks, and the three tables of summands.
    fn most_buffers(source: &str) -> usize {
        let buffers = |kernel: &str| -> usize {
            // Those that fit in one line are few.
            let Some((parameters, _)) = kernel.split_once("\n)") else { return 0 };
            let parameters =
                parameters.lines().filter(|line| line.starts_with("    ") && !line.contains("#["));
            let count = |parameter: &str| match parameter {
                _ if parameter.contains("Summands") => 3,
                _ => usize::from(["[", "Tensor<", "Mask"].iter().any(|kind| parameter.contains(kind))),
            };
            parameters.map(count).sum()
        };
        source.split("#[cube(launch").skip(1).map(buffers).max().expect("a kernel")
    }

    #[test]
    fn the_kernel_with_most_buffers_has_as_many_as_are_asked_for() {
        for source in [
            include_str!("../ops/activation/cube.rs"),
            concat!(include_str!("../ops/add_layer_norm/cube.rs"), include_str!("layer_norm.rs")),
            include_str!("../ops/cross_entropy/cube.rs"),
            concat!(
                include_str!("../ops/embed_layer_norm/lookup.rs"),
                include_str!("../ops/embed_layer_norm/cube/scatter.rs")
            ),
            include_str!("../ops/move_rows/cube.rs"),
            include_str!("../ops/rotary/cube.rs"),
        ] {
            let (_, rest) = source.split_once("const BUFFERS: usize = ").expect("a number");
            let (asked, _) = rest.split_once(';').expect("a number");
            let first_line = source.lines().next();
            assert_eq!(asked, most_buffers(source).to_string(), "{first_line:?}");
        }
    }
}
