//! CubeCL's devices. A launch takes as many tensors as the device can bind: their squares, which one more launch adds up, their
//! scaling, and steps of Adam.

use super::AdamStep;
use crate::cube::launch::{RowLaunch, buffer, is_computed};
use crate::cube::row::cube_sum;
use crate::engine::call::Path;
use crate::engine::deferred::{array, promise, register, uninit};
use crate::engine::operator::Spec;
use crate::engine::run::plain;
use crate::numerics::precision::{computed_in, narrow};
use burn::backend::ir::TensorIr;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    BackendTensor, Cube, DispatchKindConversion, DispatchTensor, DispatchTensorKind, TensorMetadata,
};
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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
    let (ours, others): (Vec<_>, Vec<_>) = tensors.into_iter().partition(takes);
    for alike in grouped(ours, |tensor| (tensor.device(), tensor.dtype())) {
        let sum = vec![Spec::statistic([1], alike[0].dtype())];
        let run = |tensors| vec![sum_of_squares(tensors)];
        sums.extend(queued("burn_fused::sum_of_squares", alike, sum, run));
    }
    others
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

/// `tensors` times `factor`.
pub(super) fn scaled(mut tensors: Vec<DispatchTensor>, factor: DispatchTensor) -> Vec<DispatchTensor> {
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

/// The first value of tensor `i` that a unit changes; the next is `cubes * units` further. Small tensors, which a few cubes hold,
/// begin in different ones.
#[cube]
fn first_index(#[comptime] i: usize, cubes: usize, #[comptime] units: usize) -> usize {
    (CUBE_POS + i * 61) % cubes * units + UNIT_POS as usize
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

/// A step whose results were promised, and what it reads.
type Waiting = (AdamStep, [FloatTensor<Cube>; 4], Vec<TensorIr>);

thread_local! {
    /// The steps that wait on this thread for the end of [`fused`], if it runs.
    static WAITING: RefCell<Option<Vec<Waiting>>> = const { RefCell::new(None) };
}

/// What `f` returns. Its steps of [`adam`] are queued together at the end.
pub(super) fn fused<T>(f: impl FnOnce() -> T) -> T {
    let others = WAITING.replace(Some(Vec::new()));
    // Also if it panics: optimizers hold what was promised.
    let result = catch_unwind(AssertUnwindSafe(f));
    let waiting = WAITING.replace(others).expect("the steps of `f`");
    for alike in grouped(waiting, |(_, [values, ..], _)| (values.device(), values.dtype())) {
        let (steps, inputs, outputs): (Vec<_>, Vec<_>, Vec<_>) = alike.into_iter().collect();
        let run = move |tensors| stepped(&steps, tensors);
        for tensor in
            computed("burn_fused::adam", inputs.into_iter().flatten().collect(), outputs.concat(), run)
        {
            // Whoever holds the promised tensor drops it; to drop another of its number would free its memory.
            let _ = tensor.into_ir();
        }
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The new values and moments of `[values, mean, square, gradient]`.
pub(super) fn adam(step: AdamStep, tensors: [DispatchTensor; 4]) -> [DispatchTensor; 3] {
    let tensors = tensors.map(|tensor| plain::<Cube>(tensor).float());
    let results = uninit(&tensors[0].client, tensors[..3].iter().map(Spec::of).collect());
    let stepped = WAITING.with_borrow_mut(|waiting| {
        let Some(waiting) = waiting else {
            let run = move |tensors| stepped(&[step], tensors);
            return computed("burn_fused::adam", tensors.into(), results, run);
        };
        let reason = "a value that `fuse_adam` computes at its end was read before";
        let promised = promise(&tensors[0].client, &results, reason);
        waiting.push((step, tensors, results));
        promised
    });
    array(stepped.into_iter().map(dispatched))
}

/// The new values and moments of each step, of which `tensors` has the values, moments and gradient.
fn stepped(steps: &[AdamStep], tensors: Vec<CubeTensor>) -> Vec<CubeTensor> {
    let on = RowLaunch::new(&tensors[0], [1, largest(&tensors)]);
    let (mut gradients, mut others) = (Vec::new(), Vec::new());
    let mut tensors = tensors.into_iter();
    for _ in steps {
        let [values, mean, square, gradient] = array(tensors.by_ref().take(4));
        // The new values are in the gradient's memory.
        gradients.push(Written::new(gradient, &on));
        others.push([values, owned(mean), owned(square)]);
    }
    let cubes = on.hidden.div_ceil(VALUES * on.max_units).clamp(1, CUBES);
    let constants = |&i: &usize| {
        let AdamStep { beta_1, beta_2, epsilon, keep, root, size } = steps[i];
        // 1 − β in f64: of an f32 β near 1 few digits would be left.
        let [toward_1, toward_2, epsilon, keep, root, size] =
            [1.0 - beta_1, 1.0 - beta_2, epsilon, keep, root, size].map(|value| on.scalar(value));
        ConstantsLaunch::new(toward_1, toward_2, epsilon, keep, root, size)
    };
    let all = &others;
    for some in launches(&on, &gradients, 3) {
        let other = |which: usize| some.iter().map(move |&i| buffer(all[i][which].clone()));
        adam_kernel::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(on.max_units as u32),
            AddressType::from_len(on.hidden + cubes * on.max_units),
            some.iter().map(|&i| buffer(gradients[i].from.clone())).collect(),
            other(0).collect(),
            some.iter().enumerate().map(|(place, &i)| gradients[i].output(place)).collect(),
            other(1).collect(),
            other(2).collect(),
            some.iter().map(constants).collect(),
            cubes,
            on.max_units,
            on.floats(),
        );
    }
    gradients.into_iter().zip(others).flat_map(|(g, [_, mean, square])| [g.to, mean, square]).collect()
}

/// A tensor in memory that may be written, its values side by side: whoever else holds it keeps what it is.
fn owned(tensor: CubeTensor) -> CubeTensor {
    // In this order: CUDA and ROCm begin each row of a copy at an aligned address.
    into_contiguous(if tensor.can_mut() { tensor } else { tensor.copy() })
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
    gradients: &Sequence<Box<[T]>>,
    values: &Sequence<Box<[T]>>,
    outputs: &mut Sequence<Box<[T]>>,
    means: &mut Sequence<Box<[W]>>,
    squares: &mut Sequence<Box<[W]>>,
    constants: &Sequence<Constants>,
    cubes: usize,
    #[comptime] units: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    // A device may launch more cubes than were asked for.
    if CUBE_POS >= cubes {
        terminate!();
    }
    #[unroll]
    for i in 0..gradients.len() {
        let mut index = first_index(i, cubes, units);
        let (output, mean, square) = (outputs.index_mut(i), means.index_mut(i), squares.index_mut(i));
        let constants = constants.index(i);
        while index < gradients[i].len() {
            let g = W::cast_from(gradients[i][index]);
            let m = (g - mean[index]) * constants.toward_1.get::<W>() + mean[index];
            let v = (g * g - square[index]) * constants.toward_2.get::<W>() + square[index];
            mean[index] = m;
            square[index] = v;
            let step = m / (v.sqrt() * constants.root.get::<W>() + constants.epsilon.get::<W>());
            let kept = W::cast_from(values[i][index]) * constants.keep.get::<W>();
            output[index] = T::cast_from(kept - step * constants.size.get::<W>());
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
