//! Steps of Adam: a launch takes as many parameters as the device can bind.

use super::super::AdamStep;
use super::{CUBES, VALUES, Written, computed, dispatched, first_index, grouped, largest, launches, takes};
use crate::cube::launch::{RowLaunch, buffer};
use crate::engine::deferred::{array, promise, uninit};
use crate::engine::operator::Spec;
use crate::engine::run::plain;
use crate::numerics::precision::computed_in;
use burn::backend::ir::TensorIr;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DispatchTensor, TensorMetadata};
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Whether [`adam`] takes these values, moments and gradient.
pub(in super::super) fn takes_step(tensors: &[DispatchTensor; 4]) -> bool {
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
pub(in super::super) fn fused<T>(f: impl FnOnce() -> T) -> T {
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
pub(in super::super) fn adam(step: AdamStep, tensors: [DispatchTensor; 4]) -> [DispatchTensor; 3] {
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
