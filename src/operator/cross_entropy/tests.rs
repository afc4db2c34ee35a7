//! The kernel against the reference, both against naive loops, and the gradient against differences.

use super::functional::cross_entropy;
use crate::operator::path::on_reference_path;
use burn::prelude::*;
use burn::tensor::{DType, Distribution, FloatDType};
use burn_gradcheck::GradCheck;

/// The devices that have kernels.
fn devices() -> Vec<Device> {
    vec![
        Device::flex().autodiff(),
        #[cfg(feature = "wgpu")]
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff(),
    ]
}

fn scores(shape: [usize; 2], spread: f64, dtype: DType) -> Tensor<2> {
    let device = Device::flex().autodiff();
    Tensor::<2>::random(shape, Distribution::Normal(0.0, spread), &device).cast(FloatDType::from(dtype))
}

/// The same scores elsewhere.
fn on(device: &Device, scores: &Tensor<2>) -> Tensor<2> {
    Tensor::from_data(scores.to_data(), (device, scores.dtype()))
}

fn labels([rows, classes]: [usize; 2]) -> Vec<i32> {
    (0..rows).map(|row| ((row * 7919 + 3) % classes) as i32).collect()
}

/// Loss and gradient under an upstream gradient of 3.
fn run(logits: &Tensor<2>, labels: &[i32]) -> (f64, Vec<f64>) {
    let logits = logits.clone().detach().require_grad();
    let loss = cross_entropy(logits.clone(), Tensor::from_ints(labels, &logits.device()));
    let gradient = logits.grad(&(loss.clone() * 3.0).backward()).unwrap();
    assert_eq!((gradient.dtype(), loss.dtype()), (logits.dtype(), logits.dtype()));
    (loss.into_scalar::<f64>(), gradient.into_data().iter().collect())
}

/// The definition, in f64.
fn naive(logits: &Tensor<2>, labels: &[i32]) -> (f64, Vec<f64>) {
    let [rows, classes] = logits.dims();
    let x: Vec<f64> = logits.to_data().iter().collect();
    let mut gradient = vec![0.0; x.len()];
    let mut loss = 0.0;
    for (row, &label) in labels.iter().enumerate() {
        let x = &x[row * classes..][..classes];
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
        loss += most + sum.ln() - x[label as usize];
        for (class, x) in x.iter().enumerate() {
            let one = if class == label as usize { 1.0 } else { 0.0 };
            gradient[row * classes + class] = 3.0 * ((x - most).exp() / sum - one) / rows as f64;
        }
    }
    (loss / rows as f64, gradient)
}

#[test]
fn kernel_and_reference_equal_the_definition_in_every_dtype() {
    let tolerances = [(DType::F64, 1e-13), (DType::F32, 2e-6), (DType::F16, 2e-3), (DType::BF16, 2e-2)];
    for device in devices() {
        let is_flex = device.clone().inner() == Device::flex();
        for (dtype, tolerance) in tolerances {
            // Shaders have no exponential of f64.
            if dtype != DType::F32 && !is_flex && (dtype == DType::F64 || !device.supports_dtype(dtype)) {
                continue;
            }
            for shape in [[1, 1], [1, 2], [3, 31], [2, 257], [5, 1023], [40, 1000], [300, 3]] {
                for spread in [0.1, 3.0, 30.0] {
                    let (logits, labels) = (on(&device, &scores(shape, spread, dtype)), labels(shape));
                    let (loss, gradient) = naive(&logits, &labels);
                    for (what, found) in [
                        ("kernel", run(&logits, &labels)),
                        ("reference", on_reference_path(|| run(&logits, &labels))),
                    ] {
                        let case = format!("{what}, {device:?}, {dtype:?}, {shape:?}, spread {spread}");
                        assert!(
                            (found.0 - loss).abs() <= tolerance * (1.0 + loss),
                            "{case}: {} for {loss}",
                            found.0
                        );
                        for (found, expected) in found.1.iter().zip(&gradient) {
                            assert!((found - expected).abs() <= tolerance, "{case}: {found} for {expected}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn extreme_scores_neither_overflow_nor_lose_the_label() {
    for device in devices() {
        let logits = Tensor::<2>::from_floats(
            [[1e30, -1e30, 0.0], [-500.0, -500.0, -500.0], [f32::NEG_INFINITY, 0.0, 1.0]],
            &device,
        );
        for path in [run(&logits, &[0, 1, 2]), on_reference_path(|| run(&logits, &[0, 1, 2]))] {
            let expected = (3f64.ln() + (1.0 + (-1f64).exp()).ln()) / 3.0;
            assert!((path.0 - expected).abs() < 1e-6, "{path:?}");
            assert!(path.1.iter().all(|g| g.is_finite()), "{path:?}");
            assert!(path.1[..3].iter().all(|g| g.abs() < 1e-6), "{path:?}: the first is certain");
        }
        let with_nan = Tensor::<2>::from_floats([[0.0, f32::NAN], [1.0, 2.0]], &device);
        let (loss, gradient) = run(&with_nan, &[0, 1]);
        assert!(loss.is_nan() && gradient[0].is_nan() && gradient[2].is_finite());
    }
}

/// The kernels read a row in pieces.
#[test]
fn a_row_whose_largest_score_comes_late_does_not_overflow() {
    for device in devices() {
        let logits = (0..600).map(|class| if class == 550 { 300.0 } else { 0.0 }).collect();
        let logits = Tensor::<2>::from_data(TensorData::new::<f32, _>(logits, [1, 600]), &device);
        let (loss, gradient) = run(&logits, &[0]);
        assert_eq!((loss, gradient[0], gradient[550]), (300.0, -3.0, 3.0));
    }
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    for device in devices() {
        let (logits, labels) = (on(&device, &scores([301, 1000], 3.0, DType::F32)), labels([301, 1000]));
        assert!(run(&logits, &labels) == run(&logits, &labels), "{device:?}");
    }
}

/// They become their gradient.
#[test]
fn scores_that_nothing_holds_have_the_gradient_of_scores_that_are_held() {
    for device in devices() {
        let (logits, labels) = (on(&device, &scores([40, 1000], 3.0, DType::F32)), labels([40, 1000]));
        let leaf = logits.clone().require_grad();
        let of_labels = Tensor::from_ints(labels.as_slice(), &device);
        let gradients = (cross_entropy(leaf.clone() * 1.0, of_labels) * 3.0).backward();
        let found: Vec<f64> = leaf.grad(&gradients).unwrap().into_data().iter().collect();
        assert!(found == run(&logits, &labels).1, "{device:?}");
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn a_label_out_of_range_is_the_nearest_class_on_a_gpu() {
    let device = devices().remove(1);
    let logits = on(&device, &scores([2, 5], 1.0, DType::F32));
    assert!(run(&logits, &[-3, 5]) == run(&logits, &[0, 4]));
}

#[test]
fn gradients_equal_central_differences() {
    let logits = scores([4, 9], 2.0, DType::F64);
    let module = Scores { logits: burn::module::Param::from_tensor(logits.detach().require_grad()) };
    let labels = labels([4, 9]);
    let report = GradCheck::new().run(&module, |module, _| {
        let logits = module.logits.val();
        let labels = Tensor::from_ints(labels.as_slice(), &logits.device());
        cross_entropy(logits, labels)
    });
    report.unwrap().assert_passes();
}

#[derive(Module, Debug)]
struct Scores {
    logits: burn::module::Param<Tensor<2>>,
}

#[test]
fn results_do_not_depend_on_the_number_of_threads_and_scores_that_are_held_stay() {
    let shape = [64, 2000];
    let (logits, labels) = (scores(shape, 2.0, DType::F32), labels(shape));
    let before = logits.to_data();
    let runs = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&logits, &labels))
    });
    assert!(runs[0] == runs[1] && runs[0] == runs[2]);
    logits.to_data().assert_eq(&before, true);
    for device in devices() {
        let logits = on(&device, &logits);
        run(&logits, &labels);
        logits.to_data().assert_eq(&before, true);
    }
}

#[test]
#[should_panic(expected = "labels[1] is 5, but there are 5 classes (valid labels: 0..=4)")]
fn a_label_out_of_range_is_named() {
    run(&scores([2, 5], 1.0, DType::F32), &[4, 5]);
}

#[test]
#[should_panic(expected = "logits are [2, 5] and labels [3]")]
fn shapes_that_do_not_fit_are_named() {
    run(&scores([2, 5], 1.0, DType::F32), &[1, 2, 3]);
}
