//! CubeCL's devices. A launch for squares or for scaling takes as many tensors as the device can bind; one more adds up what the
//! cubes found. A step of Adam is one launch.

use super::AdamStep;
use crate::cube::launch::{RowLaunch, buffer, is_computed};
use crate::cube::row::cube_sum;
use crate::engine::call::Path;
use crate::engine::deferred::{Handles, array, register};
use crate::engine::operator::Spec;
use crate::engine::run::plain;
use crate::numerics::precision::{computed_in, narrow};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    BackendTensor, Cube, DispatchKindConversion, DispatchTensor, DispatchTensorKind, TensorMetadata,
};
use burn::tensor::Shape;
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

/// Adds the sums of those tensors that the kernel takes, and returns the others.
pub(super) fn take(tensors: Vec<DispatchTensor>, sums: &mut Vec<DispatchTensor>) -> Vec<DispatchTensor> {
    let (mut ours, others): (Vec<_>, Vec<_>) = tensors.into_iter().partition(takes);
    // A launch reads one dtype on one device.
    while let Some(first) = ours.first() {
        let kind = (first.device(), first.dtype());
        let (alike, rest) = ours.into_iter().partition(|other| (other.device(), other.dtype()) == kind);
        ours = rest;
        let sum = vec![Spec::statistic([1], kind.1)];
        let run = |tensors| vec![sum_of_squares(tensors)];
        sums.extend(queued("burn_fused::sum_of_squares", alike, sum, run));
    }
    others
}

/// Queues what `run` computes from `tensors`, which are on one device.
fn queued(
    id: &'static str,
    tensors: Vec<DispatchTensor>,
    results: Vec<Spec>,
    run: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<DispatchTensor> {
    let tensors: Vec<_> = tensors.into_iter().map(|tensor| plain::<Cube>(tensor).float()).collect();
    let client = tensors[0].client.clone();
    let inputs: Vec<_> = tensors.into_iter().map(|tensor| tensor.into_ir()).collect();
    let tensors = inputs.clone();
    let run = move |handles: &mut Handles| {
        run(tensors.iter().map(|tensor| handles.get_float_tensor::<CubeBackend>(tensor)).collect())
    };
    register(&client, id, &inputs, results, run).into_iter().map(dispatched).collect()
}

/// The most tensors of a launch.
// A kernel is compiled for each number of them.
const TENSORS: usize = 16;

/// Buffers that a launch binds besides the tensors, CubeCL's own for sizes included.
const OTHERS: usize = 3;

/// The most cubes of a launch.
const CUBES: usize = 512;

/// The fewest values of the largest tensor that a unit takes.
const VALUES: usize = 4;

/// Σ x² over all values of `tensors`, of one dtype, `[1]`.
fn sum_of_squares(tensors: Vec<CubeTensor>) -> CubeTensor {
    let size = |tensor: &CubeTensor| tensor.meta.shape().num_elements();
    let largest = tensors.iter().map(size).max().unwrap_or(0);
    let on = RowLaunch::new(&tensors[0], [1, largest.max(1)]);
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
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
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
pub(super) fn scales(tensors: &[DispatchTensor], factor: &DispatchTensor) -> bool {
    let is_alike = |tensor: &DispatchTensor| {
        tensor.device() == factor.device() && tensor.dtype() == tensors[0].dtype() && takes(tensor)
    };
    !tensors.is_empty() && takes(factor) && tensors.iter().all(is_alike)
}

/// `tensors` times `factor`. Each launch is an entry of the queue, so that the memory of what it reads is free after it.
pub(super) fn scaled(tensors: Vec<DispatchTensor>, factor: DispatchTensor) -> Vec<DispatchTensor> {
    let factor = narrow::<Cube>(plain::<Cube>(factor).float(), computed_in(tensors[0].dtype()));
    let factor = dispatched(factor);
    let mut results = Vec::with_capacity(tensors.len());
    let mut tensors = tensors.into_iter().peekable();
    while tensors.peek().is_some() {
        let mut some: Vec<_> = tensors.by_ref().take(SCALED).collect();
        let specs = some.iter().map(Spec::of).collect();
        some.push(factor.clone());
        results.extend(queued("burn_fused::scaled", some, specs, |mut tensors| {
            let factor = tensors.pop().expect("the factor");
            products(tensors, factor)
        }));
    }
    results
}

/// The most tensors of a launch that scales; each is bound twice.
const SCALED: usize = 8;

fn products(tensors: Vec<CubeTensor>, factor: CubeTensor) -> Vec<CubeTensor> {
    let size = |tensor: &CubeTensor| tensor.meta.shape().num_elements();
    let largest = tensors.iter().map(size).max().unwrap_or(0);
    let on = RowLaunch::new(&tensors[0], [1, largest.max(1)]);
    let outputs: Vec<_> =
        tensors.iter().map(|tensor| on.empty(tensor.meta.shape().clone(), on.float)).collect();
    let pairs: Vec<_> = tensors.into_iter().zip(&outputs).filter(|(tensor, _)| size(tensor) > 0).collect();
    let bindings = on.client.properties().hardware.max_bindings as usize;
    let cubes = largest.div_ceil(VALUES * on.max_units).clamp(1, CUBES);
    for some in pairs.chunks((bindings.saturating_sub(OTHERS) / 2).clamp(1, SCALED)) {
        scale_kernel::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(on.max_units as u32),
            AddressType::from_len(largest + cubes * on.max_units),
            some.iter().map(|(tensor, _)| buffer(tensor.clone())).collect(),
            some.iter().map(|(_, output)| buffer((*output).clone())).collect(),
            buffer(factor.clone()),
            cubes,
            on.max_units,
            on.floats(),
        );
    }
    outputs
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
        let mut index = CUBE_POS * units + UNIT_POS as usize;
        let output = outputs.index_mut(i);
        while index < tensors[i].len() {
            output[index] = T::cast_from(W::cast_from(tensors[i][index]) * factor);
            index += cubes * units;
        }
    }
}

/// Whether [`adam`] takes these values, moments and gradient.
pub(super) fn takes_step(tensors: &[DispatchTensor; 4]) -> bool {
    let [values, others @ ..] = tensors;
    let (shape, wide) = (values.shape(), computed_in(values.dtype()));
    let is_alike = |(tensor, dtype): (&DispatchTensor, _)| {
        takes(tensor)
            && tensor.dtype() == dtype
            && tensor.shape() == shape
            && tensor.device() == values.device()
    };
    // No device launches zero cubes.
    shape.num_elements() > 0 && takes(values) && others.iter().zip([wide, wide, values.dtype()]).all(is_alike)
}

/// The new values and moments of `[values, mean, square, gradient]`.
pub(super) fn adam(step: AdamStep, tensors: [DispatchTensor; 4]) -> [DispatchTensor; 3] {
    let results = tensors[..3].iter().map(Spec::of).collect();
    array(queued("burn_fused::adam", tensors.into(), results, move |tensors| stepped(step, array(tensors))))
}

fn stepped(step: AdamStep, [values, mean, square, gradient]: [CubeTensor; 4]) -> Vec<CubeTensor> {
    let count = values.meta.shape().num_elements();
    let on = RowLaunch::new(&values, [1, count]);
    // Whoever else holds one keeps what it is.
    let owned = |tensor: CubeTensor| if tensor.can_mut() { tensor } else { tensor.copy() };
    // In this order: CUDA and ROCm begin each row of a copy at an aligned address.
    let [mean, square] = [mean, square].map(|tensor| into_contiguous(owned(tensor)));
    let gradient = into_contiguous(gradient);
    let (output, output_arg) = if gradient.can_mut() {
        // The first argument, of which each value is read and written by one unit.
        (gradient.clone(), gradient.as_tensor_alias(0).into_buffer_arg())
    } else {
        let output = on.empty(gradient.meta.shape().clone(), on.float);
        (output.clone(), output.into_buffer_arg())
    };
    let AdamStep { beta_1, beta_2, epsilon, keep, root, size } = step;
    // 1 − β in f64: of an f32 β near 1 few digits would be left.
    let [toward_1, toward_2, epsilon, keep, root, size] =
        [1.0 - beta_1, 1.0 - beta_2, epsilon, keep, root, size].map(|value| on.scalar(value));
    adam_kernel::launch(
        &on.client,
        on.cubes(count.div_ceil(on.max_units)),
        CubeDim::new_1d(on.max_units as u32),
        on.address_type,
        gradient.into_buffer_arg(),
        buffer(values),
        output_arg,
        mean.clone().into_buffer_arg(),
        square.clone().into_buffer_arg(),
        ConstantsLaunch::new(toward_1, toward_2, epsilon, keep, root, size),
        count,
        on.floats(),
    );
    vec![output, mean, square]
}

/// The numbers of an [`AdamStep`], with 1 − β for β.
#[derive(CubeType, CubeLaunch)]
struct Constants {
    toward_1: InputScalar,
    toward_2: InputScalar,
    epsilon: InputScalar,
    keep: InputScalar,
    root: InputScalar,
    size: InputScalar,
}

#[cube(launch, address_type = "dynamic")]
fn adam_kernel<T: Float, W: Float>(
    gradient: &[T],
    values: &[T],
    output: &mut [T],
    mean: &mut [W],
    square: &mut [W],
    constants: &Constants,
    count: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let index = ABSOLUTE_POS;
    if index >= count {
        terminate!();
    }
    let g = W::cast_from(gradient[index]);
    let m = (g - mean[index]) * constants.toward_1.get::<W>() + mean[index];
    let v = (g * g - square[index]) * constants.toward_2.get::<W>() + square[index];
    mean[index] = m;
    square[index] = v;
    let step = m / (v.sqrt() * constants.root.get::<W>() + constants.epsilon.get::<W>());
    let kept = W::cast_from(values[index]) * constants.keep.get::<W>();
    output[index] = T::cast_from(kept - step * constants.size.get::<W>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::try_read_sync;
    use burn::tensor::TensorData;

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
