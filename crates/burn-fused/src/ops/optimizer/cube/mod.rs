//! CubeCL's devices. A launch takes as many tensors as the device can bind.

mod adam;
mod clip;

pub(super) use adam::{adam, fused, takes_step};
pub(super) use clip::{scaled, scales, take};

use crate::cube::launch::{RowLaunch, buffer, is_computed};
use crate::engine::call::Path;
use crate::engine::deferred::{register, uninit};
use crate::engine::operator::Spec;
use crate::engine::run::plain;
use burn::backend::ir::TensorIr;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    BackendTensor, Cube, DispatchKindConversion, DispatchTensor, DispatchTensorKind, TensorMetadata,
};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

fn takes(tensor: &DispatchTensor) -> bool {
    Path::current() == Path::Fused
        && matches!(tensor.kind, DispatchTensorKind::Cube(_))
        && is_computed(tensor.dtype())
}

fn dispatched(tensor: FloatTensor<Cube>) -> DispatchTensor {
    DispatchTensor::from_backend(BackendTensor::<Cube>::Float(tensor))
}

/// `items` in groups of one `key`.
fn grouped<T, K: PartialEq>(mut items: Vec<T>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut groups = Vec::new();
    while let Some(first) = items.first().map(&key) {
        let (alike, others) = items.into_iter().partition(|item| key(item) == first);
        groups.push(alike);
        items = others;
    }
    groups
}

/// Queues what `run` computes from `tensors`, which are on one device.
fn queued(
    id: &'static str,
    tensors: Vec<DispatchTensor>,
    results: Vec<Spec>,
    run: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<DispatchTensor> {
    let tensors: Vec<_> = tensors.into_iter().map(|tensor| plain::<Cube>(tensor).float()).collect();
    let outputs = uninit(&tensors[0].client, results);
    computed(id, tensors, outputs, run).into_iter().map(dispatched).collect()
}

fn computed(
    id: &'static str,
    tensors: Vec<FloatTensor<Cube>>,
    outputs: Vec<TensorIr>,
    run: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<FloatTensor<Cube>> {
    let client = tensors[0].client.clone();
    let inputs: Vec<_> = tensors.into_iter().map(|tensor| tensor.into_ir()).collect();
    let tensors = inputs.clone();
    register(&client, id, &inputs, outputs, move |handles| {
        run(tensors.iter().map(|tensor| handles.get_float_tensor::<CubeBackend>(tensor)).collect())
    })
}

/// The most buffers that a launch binds besides [`OTHERS`].
// CUDA takes 4 KB of arguments: here a pointer and a length for each buffer, and the numbers of a step for every fourth.
const BUFFERS: usize = 192;

/// Buffers that a launch binds besides the tensors, CubeCL's own for sizes included.
const OTHERS: usize = 3;

/// How many tensors a launch takes that binds `buffers` for each.
fn per_launch(on: &RowLaunch, buffers: usize) -> usize {
    let bindings = on.client.properties().hardware.max_bindings as usize;
    (BUFFERS.min(bindings.saturating_sub(OTHERS)) / buffers).max(1)
}

/// The most cubes of a launch.
const CUBES: usize = 1024;

/// The fewest values of the largest tensor that a unit takes.
const VALUES: usize = 4;

/// A tensor that a kernel reads, and what it writes instead.
struct Written {
    from: CubeTensor,
    to: CubeTensor,
    /// Whether both are the same memory, each value of which is read and written by one unit.
    is_in_place: bool,
}

impl Written {
    fn new(from: CubeTensor, on: &RowLaunch) -> Self {
        let from = into_contiguous(from);
        // Whoever else holds it keeps what it is. Gradients of γ, β and a bias may be parts of one buffer.
        let is_in_place = from.can_mut();
        let to = if is_in_place { from.clone() } else { on.empty(from.meta.shape().clone(), from.dtype) };
        Self { from, to, is_in_place }
    }

    /// The output, where the input is the argument at `place`.
    fn output(&self, place: usize) -> BufferArg {
        let output = buffer(self.to.clone());
        if self.is_in_place { BufferArg::alias(place, output.len()) } else { output }
    }
}

/// Which tensors each launch takes, if it binds so many `others` with each. A kernel is compiled for each number of tensors, in place
/// and not: for the most, and for what is left over.
fn launches(on: &RowLaunch, tensors: &[Written], others: usize) -> Vec<Vec<usize>> {
    let alike = |is_in_place: bool, buffers: usize| {
        let is_one =
            |tensor: &Written| tensor.is_in_place == is_in_place && !tensor.from.meta.shape().contains(&0);
        let all: Vec<usize> = (0..tensors.len()).filter(|&i| is_one(&tensors[i])).collect();
        all.chunks(per_launch(on, buffers)).map(<[usize]>::to_vec).collect::<Vec<_>>()
    };
    [alike(true, others + 1), alike(false, others + 2)].concat()
}

fn largest(tensors: &[CubeTensor]) -> usize {
    tensors.iter().map(|tensor| tensor.meta.shape().num_elements()).max().unwrap_or(0)
}

/// The first value of tensor `i` that a unit changes; the next is `cubes * units` further. Small tensors, which a few cubes hold,
/// begin in different ones.
#[cube]
fn first_index(#[comptime] i: usize, cubes: usize, #[comptime] units: usize) -> usize {
    (CUBE_POS + i * 61) % cubes * units + UNIT_POS as usize
}
