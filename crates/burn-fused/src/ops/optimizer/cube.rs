//! CubeCL's devices. A launch takes as many tensors as the device can bind: their squares, which one more launch adds up, their
//! scaling, and steps of Adam.

use super::AdamStep;
use crate::cube::launch::{RowLaunch, buffer, is_computed};
use crate::cube::row::cube_sum;
use crate::engine::call::Path;
use crate::engine::deferred::{Handles, array, fulfil, promise, register};
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
    let client = tensors[0].client.clone();
    let inputs: Vec<_> = tensors.into_iter().map(|tensor| tensor.into_ir()).collect();
    register(&client, id, &inputs, results, on_floats(&inputs, run)).into_iter().map(dispatched).collect()
}

/// An entry of the queue that runs `run` on `inputs`.
fn on_floats<F: Fn(Vec<CubeTensor>) -> Vec<CubeTensor>>(
    inputs: &[TensorIr],
    run: F,
) -> impl Fn(&mut Handles) -> Vec<CubeTensor> + use<F> {
    let inputs = inputs.to_vec();
    move |handles| run(inputs.iter().map(|input| handles.get_float_tensor::<CubeBackend>(input)).collect())
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

/// The most cubes of a launch that adds up, each of which leaves a sum.
const CUBES: usize = 512;

/// The most cubes of a launch that changes values.
const MANY_CUBES: usize = 2048;

/// The fewest values of the largest tensor that a unit takes.
const VALUES: usize = 4;

/// Σ x² over all values of `tensors`, of one dtype, `[1]`.
fn sum_of_squares(tensors: Vec<CubeTensor>) -> CubeTensor {
    let size = |tensor: &CubeTensor| tensor.meta.shape().num_elements();
    let largest = tensors.iter().map(size).max().unwrap_or(0);
    let on = RowLaunch::new(&tensors[0], [1, largest.max(1)]);
    let tensors: Vec<_> = tensors.into_iter().filter(|tensor| size(tensor) > 0).collect();
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
    let written: Vec<_> = tensors.into_iter().map(|tensor| Written::new(tensor, &on)).collect();
    let cubes = on.hidden.div_ceil(VALUES * on.max_units).clamp(1, MANY_CUBES);
    for (some, _) in launches(&on, 0, written.iter().map(|tensor| (tensor, ())).collect()) {
        scale_kernel::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(on.max_units as u32),
            AddressType::from_len(on.hidden + cubes * on.max_units),
            some.iter().map(|tensor| tensor.input()).collect(),
            some.iter().enumerate().map(|(i, tensor)| tensor.output(i)).collect(),
            buffer(factor.clone()),
            cubes,
            on.max_units,
            on.floats(),
        );
    }
    written.into_iter().map(|tensor| tensor.to).collect()
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

    fn input(&self) -> BufferArg {
        buffer(self.from.clone())
    }

    /// The output, where the input is the `i`-th argument.
    fn output(&self, i: usize) -> BufferArg {
        let output = buffer(self.to.clone());
        if self.is_in_place { BufferArg::alias(i, output.len()) } else { output }
    }
}

/// The tensors of each launch, which binds so many `others` with each, and what belongs to them; those without values are left out. A
/// kernel is compiled for each number of tensors that are written in place, and of others: for the most, and for what is left over.
fn launches<'a, T>(
    on: &RowLaunch,
    others: usize,
    tensors: Vec<(&'a Written, T)>,
) -> Vec<(Vec<&'a Written>, Vec<T>)> {
    let has_values = |(tensor, _): &(&Written, T)| tensor.from.meta.shape().num_elements() > 0;
    let (in_place, apart): (Vec<_>, Vec<_>) =
        tensors.into_iter().filter(has_values).partition(|(tensor, _)| tensor.is_in_place);
    let mut launches = Vec::new();
    for (tensors, buffers) in [(in_place, 1 + others), (apart, 2 + others)] {
        let mut tensors = tensors.into_iter().peekable();
        while tensors.peek().is_some() {
            launches.push(tensors.by_ref().take(per_launch(on, buffers)).unzip());
        }
    }
    launches
}

/// The number of values of the largest tensor.
fn largest<'a>(tensors: impl IntoIterator<Item = &'a CubeTensor>) -> usize {
    tensors.into_iter().map(|tensor| tensor.meta.shape().num_elements()).max().unwrap_or(0)
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

/// A step whose results were promised.
struct Waiting {
    step: AdamStep,
    tensors: [FloatTensor<Cube>; 4],
    results: Vec<TensorIr>,
}

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
    let key = |Waiting { step, tensors: [values, ..], .. }: &Waiting| {
        (values.device(), values.dtype(), [step.beta_1, step.beta_2, step.epsilon])
    };
    for alike in grouped(waiting, key) {
        let client = alike[0].tensors[0].client.clone();
        let (mut steps, mut inputs, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for waiting in alike {
            steps.push(waiting.step);
            inputs.extend(waiting.tensors.map(|tensor| tensor.into_ir()));
            results.extend(waiting.results);
        }
        let run = on_floats(&inputs, move |tensors| stepped(&steps, tensors));
        fulfil(&client, "burn_fused::adam", &inputs, results, run);
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The new values and moments of `[values, mean, square, gradient]`.
pub(super) fn adam(step: AdamStep, tensors: [DispatchTensor; 4]) -> [DispatchTensor; 3] {
    let specs = tensors[..3].iter().map(Spec::of).collect();
    WAITING.with_borrow_mut(|waiting| {
        let Some(waiting) = waiting else {
            let run = move |tensors| stepped(&[step], tensors);
            return array(queued("burn_fused::adam", tensors.into(), specs, run));
        };
        let tensors = tensors.map(|tensor| plain::<Cube>(tensor).float());
        let reason = "a value that `fuse_adam` computes at its end was read before";
        let (results, promised) = promise(&tensors[0].client, specs, reason);
        waiting.push(Waiting { step, tensors, results });
        array(promised.into_iter().map(dispatched))
    })
}

/// The new values and moments of each step, of which `tensors` has the values, moments and gradient. The β and ε of all are equal.
fn stepped(steps: &[AdamStep], tensors: Vec<CubeTensor>) -> Vec<CubeTensor> {
    let on = RowLaunch::new(&tensors[0], [1, largest(&tensors)]);
    let mut tensors = tensors.into_iter();
    let tensors: Vec<_> = steps
        .iter()
        .map(|_| {
            let [values, mean, square, gradient] = array(tensors.by_ref().take(4));
            (Written::new(gradient, &on), values, [mean, square].map(owned))
        })
        .collect();
    let cubes = on.hidden.div_ceil(VALUES * on.max_units).clamp(1, MANY_CUBES);
    // 1 − β in f64: of an f32 β near 1 few digits would be left.
    let AdamStep { beta_1, beta_2, epsilon, .. } = steps[0];
    let constants =
        || ConstantsLaunch::new(on.scalar(1.0 - beta_1), on.scalar(1.0 - beta_2), on.scalar(epsilon));
    let rates = |&AdamStep { keep, root, size, .. }: &AdamStep| {
        RatesLaunch::new(on.scalar(keep), on.scalar(root), on.scalar(size))
    };
    let all = tensors
        .iter()
        .zip(steps)
        .map(|((gradient, values, moments), step)| (gradient, (values, moments, step)));
    for (gradients, others) in launches(&on, 3, all.collect()) {
        adam_kernel::launch(
            &on.client,
            on.cubes(cubes),
            CubeDim::new_1d(on.max_units as u32),
            AddressType::from_len(on.hidden + cubes * on.max_units),
            gradients.iter().map(|gradient| gradient.input()).collect(),
            others.iter().map(|(values, ..)| buffer((*values).clone())).collect(),
            // The new values are in the gradient's memory.
            gradients.iter().enumerate().map(|(i, gradient)| gradient.output(i)).collect(),
            others.iter().map(|(_, [mean, _], _)| buffer(mean.clone())).collect(),
            others.iter().map(|(_, [_, square], _)| buffer(square.clone())).collect(),
            others.iter().map(|(.., step)| rates(step)).collect(),
            constants(),
            cubes,
            on.max_units,
            on.floats(),
        );
    }
    tensors.into_iter().flat_map(|(gradient, _, [mean, square])| [gradient.to, mean, square]).collect()
}

/// A tensor in memory that may be written, its values side by side: whoever else holds it keeps what it is.
fn owned(tensor: CubeTensor) -> CubeTensor {
    // In this order: CUDA and ROCm begin each row of a copy at an aligned address.
    into_contiguous(if tensor.can_mut() { tensor } else { tensor.copy() })
}

/// The numbers of an [`AdamStep`] that all steps of a launch share, with 1 − β for β.
#[derive(CubeType, CubeLaunch)]
struct Constants {
    toward_1: InputScalar,
    toward_2: InputScalar,
    epsilon: InputScalar,
}

/// The other numbers of an [`AdamStep`].
#[derive(CubeType, CubeLaunch)]
struct Rates {
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
    rates: &Sequence<Rates>,
    constants: &Constants,
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
        let rates = rates.index(i);
        while index < gradients[i].len() {
            let g = W::cast_from(gradients[i][index]);
            let m = (g - mean[index]) * constants.toward_1.get::<W>() + mean[index];
            let v = (g * g - square[index]) * constants.toward_2.get::<W>() + square[index];
            mean[index] = m;
            square[index] = v;
            let step = m / (v.sqrt() * rates.root.get::<W>() + constants.epsilon.get::<W>());
            let kept = W::cast_from(values[i][index]) * rates.keep.get::<W>();
            output[index] = T::cast_from(kept - step * rates.size.get::<W>());
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
