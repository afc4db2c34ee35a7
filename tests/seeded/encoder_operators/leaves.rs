//! An operator as a function of flat leaves, so that one harness serves all.

use crate::devices::supported;
use crate::tolerance::values;
use burn::module::{Module, Param};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_bert::functional::on_reference_path;
use burn_gradcheck::GradCheck;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Values that f64, f32, f16 and bf16 all hold exactly: the oracle in f64 gets the inputs of every dtype.
pub fn draw(count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..count).map(|_| f64::from(rng.random_range(-128..=128i32)) / 64.0).collect()
}

/// An operator, its leaves and which of them are trained.
pub struct Operator<F> {
    pub leaves: Vec<Vec<f64>>,
    pub trained: Vec<bool>,
    /// From the leaves, flat, to the output.
    pub forward: F,
    /// Seeds the device before each run.
    pub seed: u64,
}

impl<F: Fn(&[Tensor<1>]) -> Tensor<2> + Sync> Operator<F> {
    pub fn new(counts: &[usize], seed: u64, forward: F) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let leaves: Vec<_> = counts.iter().map(|&count| draw(count, &mut rng)).collect();
        Self { trained: vec![true; leaves.len()], leaves, forward, seed }
    }

    /// The output, and the gradients of the trained leaves of a sum with random weights.
    pub fn run(&self, device: &Device, dtype: DType) -> Vec<Vec<f64>> {
        device.seed(self.seed);
        let leaves: Vec<Tensor<1>> = self
            .leaves
            .iter()
            .zip(&self.trained)
            .map(|(leaf, &trained)| {
                let leaf = Tensor::from_data(TensorData::from(leaf.as_slice()), (device, dtype));
                if trained { leaf.require_grad() } else { leaf }
            })
            .collect();
        let y = (self.forward)(&leaves);
        assert_eq!(y.dtype(), dtype);
        let weights = draw(y.shape().num_elements(), &mut ChaCha8Rng::seed_from_u64(self.seed ^ 1));
        let weights = TensorData::new(weights, y.dims());
        let mut found = vec![values(y.clone())];
        if self.trained.contains(&true) {
            let gradients = (y * Tensor::from_data(weights, (device, dtype))).sum().backward();
            for (leaf, _) in leaves.iter().zip(&self.trained).filter(|(_, trained)| **trained) {
                let gradient = leaf.grad(&gradients).unwrap();
                assert_eq!(gradient.dtype(), dtype);
                found.push(values(gradient));
            }
        }
        found
    }

    /// Asserts that the kernel in every dtype is near the reference in f64, and as near as the reference in its own.
    pub fn assert_kernel_equals_reference(&self, device: &Device) {
        let expected = on_reference_path(|| self.run(device, DType::F64));
        self.assert_near_on(device, &expected, &[DType::F64, DType::F32, DType::F16, DType::BF16]);
    }

    /// Asserts that kernel and reference on a device are near `expected`, in those of `dtypes` that it computes in.
    pub fn assert_near_on(&self, device: &Device, expected: &[Vec<f64>], dtypes: &[DType]) {
        for dtype in supported(device, dtypes) {
            let limit = match dtype {
                DType::F64 => 1e-13,
                DType::F32 => 1e-5,
                DType::F16 => 4e-3,
                _ => 3e-2,
            };
            assert_near(&self.run(device, dtype), expected, limit, dtype);
            assert_near(&on_reference_path(|| self.run(device, dtype)), expected, limit, dtype);
        }
    }

    /// Asserts that two runs are the same bit for bit.
    pub fn assert_runs_are_equal(&self, device: &Device) {
        let first = self.run(device, DType::F32);
        assert!(self.run(device, DType::F32) == first, "{device:?}");
    }

    /// Checks all gradients by central differences in f64, on both paths.
    pub fn assert_gradients(&self, device: &Device) {
        let module = Leaves {
            leaves: self
                .leaves
                .iter()
                .map(|leaf| {
                    let leaf = TensorData::from(leaf.as_slice());
                    Param::from_tensor(Tensor::from_data(leaf, (device, DType::F64)))
                })
                .collect(),
        };
        let check = || {
            let report = GradCheck::new().dtype(FloatDType::F64).run(&module, |module, probe| {
                device.seed(self.seed);
                let leaves: Vec<_> = module.leaves.iter().map(|leaf| leaf.val()).collect();
                probe.weighted_sum((self.forward)(&leaves))
            });
            report.unwrap().assert_passes();
        };
        check();
        on_reference_path(check);
    }

    /// Asserts that the results are the same bit for bit on any number of threads.
    pub fn assert_thread_count_changes_no_bit(&self, device: &Device) {
        for dtype in [DType::F32, DType::BF16] {
            let run = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| self.run(device, dtype))
            };
            let alone = run(1);
            for threads in [2, 3, 8] {
                assert!(run(threads) == alone, "{threads} threads, {dtype:?}");
            }
        }
    }
}

#[derive(Module, Debug)]
struct Leaves {
    leaves: Vec<Param<Tensor<1>>>,
}

/// Asserts that each list is near the expected one, relative to its largest value.
#[track_caller]
pub fn assert_near(found: &[Vec<f64>], expected: &[Vec<f64>], limit: f64, dtype: DType) {
    assert_eq!(found.len(), expected.len());
    for (which, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "result {which}");
        let scale = expected.iter().fold(1.0, |scale: f64, value| scale.max(value.abs()));
        for (i, (a, b)) in found.iter().zip(expected).enumerate() {
            let near = (a - b).abs() <= limit * scale;
            assert!(
                near,
                "{dtype:?}: value {i} of result {which} is {a}, expected {b}; the largest is {scale}"
            );
        }
    }
}
