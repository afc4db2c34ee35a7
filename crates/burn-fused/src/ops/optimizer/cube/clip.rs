//! The norm of gradients and their scaling: a launch takes the squares of as many tensors as the device can bind, which one more adds up.

use super::{
    CUBES, VALUES, Written, dispatched, first_index, grouped, largest, launches, per_launch, queued, takes,
};
use crate::cube::launch::{RowLaunch, buffer};
use crate::cube::row::{cube_sum, scratch_values};
use crate::engine::operator::Spec;
use crate::engine::run::plain;
use crate::numerics::precision::{computed_in, narrow};
use burn::backend::{Cube, DispatchTensor, TensorMetadata};
use burn::tensor::Shape;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// Adds the sums of those tensors that the kernel takes, and returns the others.
pub(in super::super) fn take(
    tensors: Vec<DispatchTensor>,
    sums: &mut Vec<DispatchTensor>,
) -> Vec<DispatchTensor> {
    let (ours, others): (Vec<_>, Vec<_>) = tensors.into_iter().partition(takes);
    for alike in grouped(ours, |tensor| (tensor.device(), tensor.dtype())) {
        let sum = vec![Spec::statistic([1], alike[0].dtype())];
        let run = |tensors| vec![sum_of_squares(tensors)];
        sums.extend(queued("burn_fused::sum_of_squares", alike, sum, run));
    }
    others
}

/// Σ x² over all values of `tensors`, of one dtype, `[1]`.
fn sum_of_squares(tensors: Vec<CubeTensor>) -> CubeTensor {
    let largest = largest(&tensors);
    let on = RowLaunch::new(&tensors[0], [1, largest.max(1)]);
    let tensors: Vec<_> = tensors.into_iter().filter(|tensor| !tensor.meta.shape().contains(&0)).collect();
    let per_launch = per_launch(&on, 1);
    // From the largest alone: each tensor is read by all cubes.
    let cubes = largest.div_ceil(VALUES * on.max_units).clamp(1, CUBES);
    let parts = on.empty([tensors.len().div_ceil(per_launch).max(1) * cubes], on.wide);
    for (i, some) in tensors.chunks(per_launch).enumerate() {
        squares::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(on.max_units as u32),
            AddressType::from_len(largest + cubes * on.max_units),
            some.iter().cloned().map(buffer).collect(),
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
    let mut scratch = Shared::<[W]>::new_slice(comptime!(scratch_values(units)));
    let mut sum = W::new(0.0);
    #[unroll]
    for i in 0..tensors.len() {
        let mut index = CUBE_POS * units + UNIT_POS as usize;
        while index < tensors[i].len() {
            let x = W::cast_from(tensors[i][index]);
            sum += x * x;
            index += cubes * units;
        }
    }
    let sum = cube_sum::<W>(sum, &mut scratch, units);
    if UNIT_POS == 0 {
        parts[first + CUBE_POS] = sum;
    }
}

/// Whether [`scaled`] takes these: of one dtype on the device of `factor`.
pub(in super::super) fn scales(tensors: &[DispatchTensor], factor: &DispatchTensor) -> bool {
    let is_alike = |tensor: &DispatchTensor| {
        tensor.device() == factor.device() && tensor.dtype() == tensors[0].dtype() && takes(tensor)
    };
    !tensors.is_empty() && takes(factor) && tensors.iter().all(is_alike)
}

/// `tensors` times `factor`.
pub(in super::super) fn scaled(
    mut tensors: Vec<DispatchTensor>,
    factor: DispatchTensor,
) -> Vec<DispatchTensor> {
    let factor = narrow::<Cube>(plain::<Cube>(factor).float(), computed_in(tensors[0].dtype()));
    let results = tensors.iter().map(Spec::of).collect();
    tensors.push(dispatched(factor));
    queued("burn_fused::scaled", tensors, results, |mut tensors| {
        let factor = tensors.pop().expect("the factor");
        products(tensors, factor)
    })
}

fn products(tensors: Vec<CubeTensor>, factor: CubeTensor) -> Vec<CubeTensor> {
    let on = RowLaunch::new(&tensors[0], [1, largest(&tensors).max(1)]);
    let tensors: Vec<_> = tensors.into_iter().map(|tensor| Written::new(tensor, &on)).collect();
    let cubes = on.hidden.div_ceil(VALUES * on.max_units).clamp(1, CUBES);
    for some in launches(&on, &tensors, 0) {
        scale_kernel::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(on.max_units as u32),
            AddressType::from_len(on.hidden + cubes * on.max_units),
            some.iter().map(|&i| buffer(tensors[i].from.clone())).collect(),
            some.iter().enumerate().map(|(place, &i)| tensors[i].output(place)).collect(),
            buffer(factor.clone()),
            cubes,
            on.max_units,
            on.floats(),
        );
    }
    tensors.into_iter().map(|tensor| tensor.to).collect()
}

#[cube(launch, address_type = "dynamic")]
fn scale_kernel<T: Float, W: Float>(
    tensors: &Sequence<Box<[T]>>,
    outputs: &mut Sequence<Box<[T]>>,
    factor: &[W],
    cubes: usize,
    #[comptime] units: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    // A device may launch more cubes than were asked for.
    if CUBE_POS >= cubes {
        terminate!();
    }
    let factor = factor[0];
    #[unroll]
    for i in 0..tensors.len() {
        let mut index = first_index(i, cubes, units);
        let output = outputs.index_mut(i);
        while index < tensors[i].len() {
            output[index] = T::cast_from(W::cast_from(tensors[i][index]) * factor);
            index += cubes * units;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::try_read_sync;
    use burn::tensor::TensorData;
    use burn_cubecl::CubeBackend;

    fn tensor(values: &[f32]) -> CubeTensor {
        CubeBackend::float_from_data(TensorData::from(values), &Default::default())
    }

    fn read(tensor: CubeTensor) -> Vec<f32> {
        let data = try_read_sync(CubeBackend::float_into_data(tensor)).unwrap().unwrap();
        data.try_into_vec().unwrap()
    }

    /// As CUDA and ROCm allocate rows: values of something else lie behind the last one.
    #[test]
    fn what_lies_behind_the_last_value_is_not_added() {
        let CubeTensor { client, device, handle, dtype, .. } = tensor(&[2.0; 1000]);
        let padded = CubeTensor::new_contiguous(client, device, Shape::new([1, 300]), handle, dtype);
        assert_eq!(read(sum_of_squares(vec![padded, tensor(&[2.0; 5])])), [4.0 * 305.0]);
    }

    #[test]
    fn tensors_without_values_are_scaled_beside_others_and_add_up_to_nothing() {
        assert_eq!(read(sum_of_squares(vec![tensor(&[])])), [0.0]);
        let halves = |tensors| products(tensors, tensor(&[0.5])).into_iter().map(read).collect::<Vec<_>>();
        assert_eq!(halves(vec![tensor(&[])]), [Vec::<f32>::new()]);
        let values: Vec<f32> = (0..3000).map(|i| i as f32).collect();
        let expected: [Vec<f32>; 3] = [values.iter().map(|value| value / 2.0).collect(), vec![], vec![1.5]];
        assert_eq!(halves(vec![tensor(&values), tensor(&[]), tensor(&[3.0])]), expected);
    }
}
