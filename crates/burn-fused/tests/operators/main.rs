//! What is promised of every operator, on every device that is compiled in: against plain loops, against the reference made
//! of Burn's operations, by central differences, in 16 bits, on any number of threads, twice, and computed again.

#[path = "../../../../tests/support/devices/mod.rs"]
mod devices;
mod extremes;
#[path = "../../../../tests/support/refusals/mod.rs"]
mod panics;
mod promises;
mod refusals;
mod table;
#[path = "../../../../tests/support/tolerance/mod.rs"]
mod tolerance;
mod values;

use crate::devices::{all, flex, supported};
use crate::table::{Sample, table};
use crate::tolerance::{Tolerance, assert_all_close, operator_tolerance, values};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::on_reference_path;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A device has one generator for all threads: what draws from it waits for its turn.
fn turn() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Values that f64, f32, f16 and bf16 all hold exactly: the oracle in f64 gets the inputs of every dtype.
fn draw(count: usize, seed: u64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| f64::from(random.random_range(-128..=128i32)) / 64.0).collect()
}

fn tensor(values: &[f64], device: &Device, dtype: DType) -> Tensor<1> {
    Tensor::from_data(TensorData::from(values), (device, dtype))
}

fn leaves(sample: &Sample) -> Vec<Vec<f64>> {
    (0..).zip(&sample.leaves).map(|(i, &count)| draw(count, i)).collect()
}

const SEED: u64 = 5;

/// The output on leaves of which some are trained, and their gradients of a sum with random weights; the leaves must stay
/// what they are. Empty leaves have no gradient on every path.
fn run(sample: &Sample, leaves: &[Vec<f64>], trained: usize, device: &Device, dtype: DType) -> Vec<Vec<f64>> {
    let _turn = (sample.dropout > 0.0).then(|| {
        let turn = turn();
        device.seed(SEED);
        turn
    });
    let tensor = |values: &[f64]| tensor(values, device, dtype);
    let is_trained = |i: usize| trained >> i & 1 == 1 && !leaves[i].is_empty();
    let tensors: Vec<Tensor<1>> = leaves
        .iter()
        .enumerate()
        .map(|(i, leaf)| if is_trained(i) { tensor(leaf).require_grad() } else { tensor(leaf) })
        .collect();
    let y = (sample.forward)(&tensors);
    assert_eq!(y.dtype(), dtype, "{}", sample.name);
    let mut found = vec![values(y.clone())];
    if (0..leaves.len()).any(is_trained) {
        let weights = tensor(&draw(found[0].len(), 99));
        let gradients = (y * weights).sum().backward();
        for i in (0..leaves.len()).filter(|&i| is_trained(i)) {
            let gradient = tensors[i]
                .grad(&gradients)
                .unwrap_or_else(|| panic!("{}: leaf {i} has no gradient", sample.name));
            assert_eq!(gradient.dtype(), dtype, "{}", sample.name);
            found.push(values(gradient));
        }
    }
    for (leaf, tensor) in leaves.iter().zip(tensors) {
        assert!(values(tensor) == *leaf, "{}: a leaf changed", sample.name);
    }
    found
}

const EVERY_LEAF: usize = usize::MAX;

/// Asserts that each list is near the expected one, relative to its largest value.
#[track_caller]
fn assert_near(what: &str, found: &[Vec<f64>], expected: &[Vec<f64>], limit: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (which, (found, expected)) in found.iter().zip(expected).enumerate() {
        let scale = expected.iter().fold(1.0, |scale: f64, value| scale.max(value.abs()));
        let tolerance = Tolerance { absolute: limit * scale, relative: 0.0 };
        assert_all_close(&format!("{what}: result {which}"), found, expected, tolerance);
    }
}

#[test]
fn forward_equals_plain_loops() {
    for sample in table() {
        let Some(naive) = &sample.naive else { continue };
        let leaves = leaves(&sample);
        let expected = [naive(&leaves)];
        let run = || run(&sample, &leaves, 0, &flex().autodiff(), DType::F64);
        for found in [run(), on_reference_path(run)] {
            assert_near(&sample.name, &found, &expected, 1e-12);
        }
    }
}

#[test]
fn output_and_gradients_equal_the_reference_in_every_dtype() {
    assert_equal_to_reference(|_| EVERY_LEAF);
}

#[test]
fn output_and_gradients_of_some_leaves_equal_the_reference_in_every_dtype() {
    assert_equal_to_reference(|number| number + 1);
}

/// Fused and reference, in every dtype, against the reference in f64 on Flex; with dropout, whose seeds each device draws
/// itself, against the reference in f32 on the device. `trained` says which leaves of a sample have a gradient.
fn assert_equal_to_reference(trained: fn(usize) -> usize) {
    for device in all() {
        let is_flex = device == flex();
        let device = device.autodiff();
        for (number, sample) in table().iter().enumerate() {
            let (leaves, trained) = (leaves(sample), trained(number));
            let exact =
                |device: &Device, dtype| on_reference_path(|| run(sample, &leaves, trained, device, dtype));
            let expected = match is_flex || sample.dropout == 0.0 {
                true => exact(&flex().autodiff(), DType::F64),
                false => exact(&device, DType::F32),
            };
            // Shaders have no exponential of f64.
            let dtypes = supported(&device, if is_flex { sample.dtypes } else { &sample.dtypes[1..] });
            for dtype in dtypes {
                let what = format!("{}, {device:?}, {dtype:?}", sample.name);
                let limit = sample.roundings * operator_tolerance(dtype);
                assert_near(&what, &run(sample, &leaves, trained, &device, dtype), &expected, limit);
                assert_near(&format!("{what}, reference"), &exact(&device, dtype), &expected, limit);
            }
        }
    }
}

/// (L(θ + εd) − L(θ − εd)) / 2ε against Σ ∂L/∂θ · d for a random direction d of each leaf, dropout with the same mask.
#[test]
fn gradients_pass_central_differences_along_a_direction_of_each_leaf() {
    let device = flex().autodiff();
    for sample in table().iter().filter(|sample| sample.is_smooth) {
        let leaves = leaves(sample);
        let check = || {
            let found = run(sample, &leaves, EVERY_LEAF, &device, DType::F64);
            let weights = draw(found[0].len(), 99);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let trained = (0..leaves.len()).filter(|&i| !leaves[i].is_empty());
            for (i, gradient) in trained.zip(&found[1..]) {
                let direction = draw(leaves[i].len(), 77);
                let [above, below] = [1e-5, -1e-5].map(|step| {
                    let mut moved = leaves.clone();
                    moved[i].iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
                    dot(&run(sample, &moved, 0, &device, DType::F64)[0], &weights)
                });
                let (numeric, analytic) = ((above - below) / 2e-5, dot(gradient, &direction));
                let scale = gradient.iter().zip(&direction).map(|(a, b)| (a * b).abs()).sum::<f64>().max(1.0);
                let error = (numeric - analytic).abs() / scale;
                assert!(error < 1e-6, "{}: leaf {i}: {analytic}, by differences {numeric}", sample.name);
            }
        };
        check();
        on_reference_path(check);
    }
}

#[test]
fn two_runs_are_equal_bit_for_bit_and_so_is_one_with_gradient_checkpointing() {
    for sample in table() {
        let run = |device: &Device| run(&sample, &leaves(&sample), EVERY_LEAF, device, DType::F32);
        for device in all().into_iter().map(Device::autodiff) {
            assert!(run(&device) == run(&device), "{}, {device:?}", sample.name);
        }
        let again = run(&flex().autodiff().gradient_checkpointing());
        assert!(again == run(&flex().autodiff()), "{}", sample.name);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let pools =
        [1, 2, 3, 8].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    for sample in table() {
        for dtype in [DType::F32, DType::BF16] {
            let run = || run(&sample, &leaves(&sample), EVERY_LEAF, &flex().autodiff(), dtype);
            let [alone, rest @ ..] = pools.each_ref().map(|pool| pool.install(run));
            assert!(rest.iter().all(|found| *found == alone), "{}, {dtype:?}", sample.name);
        }
    }
}

/// A view into a longer tensor that something else holds, too: the output is that of a copy, and both keep their values.
#[test]
fn parts_of_tensors_that_are_held_give_what_copies_give() {
    let device = flex();
    for sample in table() {
        let leaves = leaves(&sample);
        let expected = run(&sample, &leaves, 0, &device, DType::F32);
        let longer = |leaf: &Vec<f64>| {
            let all: Vec<f64> = [&[7.0; 3][..], leaf, &[9.0; 5]].concat();
            tensor(&all, &device, DType::F32)
        };
        let held: Vec<_> = leaves.iter().map(longer).collect();
        // Burn has no empty part.
        let part = |(held, leaf): (&Tensor<1>, &Vec<f64>)| match leaf.len() {
            0 => Tensor::zeros([0], (&device, DType::F32)),
            count => held.clone().narrow(0, 3, count),
        };
        let parts = held.iter().zip(&leaves).map(part);
        let found = values((sample.forward)(&parts.collect::<Vec<_>>()));
        assert!(found == expected[0], "{}", sample.name);
        for (held, leaf) in held.into_iter().zip(&leaves) {
            assert!(values(held)[3..3 + leaf.len()] == leaf[..], "{}: what is held changed", sample.name);
        }
    }
}

/// Outside autodiff whatever the probability and the seed.
#[test]
fn nothing_is_dropped_on_a_plain_device() {
    let _turn = turn();
    for sample in table().iter().filter(|sample| sample.dropout > 0.0) {
        for device in all() {
            let run = |seed| {
                device.seed(seed);
                let tensor = |leaf: &Vec<f64>| tensor(leaf, &device, DType::F32);
                values((sample.forward)(&leaves(sample).iter().map(tensor).collect::<Vec<_>>()))
            };
            assert!(run(1) == run(2), "{}, {device:?}", sample.name);
        }
    }
}
