//! Each launch reads as many tensors as the device can bind, and one more adds up what their cubes found.

use crate::cube::launch::{RowLaunch, exact_buffer, is_computed};
use crate::cube::row::cube_sum;
use crate::engine::deferred::{Handles, register};
use crate::engine::operator::{Path, Spec};
use crate::engine::run::plain;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    BackendTensor, Cube, DispatchKindConversion, DispatchTensor, DispatchTensorKind, TensorMetadata,
};
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// Adds the sums of those tensors that the kernel takes, and returns the others.
pub(super) fn take(tensors: Vec<DispatchTensor>, sums: &mut Vec<DispatchTensor>) -> Vec<DispatchTensor> {
    let takes = |tensor: &DispatchTensor| {
        Path::current() == Path::Fused
            && matches!(tensor.kind, DispatchTensorKind::Cube(_))
            && is_computed(tensor.dtype())
    };
    let (ours, others): (Vec<_>, Vec<_>) = tensors.into_iter().partition(takes);
    let mut ours: Vec<_> = ours.into_iter().map(|tensor| plain::<Cube>(tensor).float()).collect();
    // A launch reads one dtype on one device.
    while let Some(first) = ours.first() {
        let kind = (first.device(), first.dtype());
        let (alike, rest) = ours.into_iter().partition(|other| (other.device(), other.dtype()) == kind);
        ours = rest;
        sums.push(DispatchTensor::from_backend(BackendTensor::<Cube>::Float(queue(alike))));
    }
    others
}

/// Σ x² over all values of `tensors`, which are on one device and of one dtype, `[1]`.
fn queue(tensors: Vec<FloatTensor<Cube>>) -> FloatTensor<Cube> {
    let (client, dtype) = (tensors[0].client.clone(), tensors[0].dtype());
    let inputs: Vec<_> = tensors.into_iter().map(|tensor| tensor.into_ir()).collect();
    let tensors = inputs.clone();
    let run = move |handles: &mut Handles| {
        let tensors = tensors.iter().map(|tensor| handles.get_float_tensor::<CubeBackend>(tensor));
        vec![sum_of_squares(tensors.collect())]
    };
    register(&client, "burn_fused::sum_of_squares", &inputs, vec![Spec::statistic([1], dtype)], run).remove(0)
}

/// Tensors of a launch, at most.
// A kernel is compiled for each number of them.
const TENSORS: usize = 16;

/// Buffers that a launch binds beside the tensors, with CubeCL's own for sizes.
const OTHERS: usize = 3;

/// Cubes of a launch, at most.
const CUBES: usize = 512;

/// Values of the largest tensor that a unit takes, at least.
const VALUES: usize = 4;

/// Σ x² over all values of `tensors`, of one dtype, `[1]`.
fn sum_of_squares(tensors: Vec<CubeTensor>) -> CubeTensor {
    let size = |tensor: &CubeTensor| tensor.meta.shape().num_elements();
    let largest = tensors.iter().map(size).max().unwrap_or(0);
    let on = RowLaunch::new(&tensors[0], [1, largest]);
    let tensors: Vec<_> = tensors.into_iter().filter(|tensor| size(tensor) > 0).collect();
    let bindings = on.client.properties().hardware.max_bindings as usize;
    let per_launch = TENSORS.min(bindings.saturating_sub(OTHERS)).max(1);
    // From the largest alone: each tensor is read by all cubes.
    let cubes = largest.div_ceil(VALUES * on.max_units).clamp(1, CUBES);
    let parts = on.empty([tensors.len().div_ceil(per_launch).max(1) * cubes], on.wide);
    for (i, some) in tensors.chunks(per_launch).enumerate() {
        squares::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(on.max_units as u32),
            AddressType::from_len(largest + cubes * on.max_units),
            some.iter().cloned().map(exact_buffer).collect(),
            parts.clone().into_buffer_arg(),
            i * cubes,
            cubes,
            on.max_units,
            on.floats(),
        );
    }
    on.sum(if tensors.is_empty() { on.zeros(Shape::new([1]), on.wide) } else { parts }, 1.0, on.wide)
}

/// `parts[first + c]` = Σ x² over every `cubes`-th cube's width of each tensor, from cube c on.
#[cube(launch, address_type = "dynamic")]
fn squares<T: Float, W: Float>(
    tensors: &Sequence<Box<[T]>>,
    parts: &mut [W],
    first: usize,
    cubes: usize,
    #[comptime] units: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    // A device may launch more cubes than were asked for.
    if CUBE_POS >= cubes {
        terminate!();
    }
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let mut sum = W::new(0.0);
    #[unroll]
    for i in 0..tensors.len() {
        let mut place = CUBE_POS * units + UNIT_POS as usize;
        while place < tensors[i].len() {
            let x = W::cast_from(tensors[i][place]);
            sum += x * x;
            place += cubes * units;
        }
    }
    let sum = cube_sum::<W>(sum, &mut scratch, units);
    if UNIT_POS == 0 {
        parts[first + CUBE_POS] = sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::try_read_sync;
    use burn::tensor::TensorData;

    /// As CUDA and ROCm allocate rows: values of something else lie behind the last one.
    #[test]
    fn what_lies_behind_the_last_value_is_not_added() {
        let tensor = |count| {
            CubeBackend::float_from_data(TensorData::from(&vec![2f32; count][..]), &Default::default())
        };
        let CubeTensor { client, device, handle, dtype, .. } = tensor(1000);
        let padded = CubeTensor::new_contiguous(client, device, Shape::new([1, 300]), handle, dtype);
        let sum = CubeBackend::float_into_data(sum_of_squares(vec![padded, tensor(5)]));
        assert_eq!(try_read_sync(sum).unwrap().unwrap().iter::<f64>().next(), Some(4.0 * 305.0));
    }
}
