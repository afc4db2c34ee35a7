//! Mean cross-entropy over rows.

use super::leaves::{Operator, assert_near};
use crate::devices::{flex, with_kernels};
use crate::tolerance::values;
use crate::turn;
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::functional::{cross_entropy, on_reference_path};

fn labels([rows, classes]: [usize; 2]) -> Vec<i32> {
    (0..rows).map(|row| ((row * 7919 + 3) % classes) as i32).collect()
}

/// The sum over rows of scores within ±2 · `spread`.
fn operator(
    shape @ [rows, _]: [usize; 2],
    spread: f64,
) -> Operator<impl Fn(&[Tensor<1>]) -> Tensor<2> + Sync> {
    let forward = move |leaves: &[Tensor<1>]| {
        let logits = leaves[0].clone().mul_scalar(spread).reshape(shape);
        let labels = Tensor::from_ints(labels(shape).as_slice(), &logits.device());
        cross_entropy(logits, labels).mul_scalar(rows as f64).reshape([1, 1])
    };
    Operator::new(&[shape.iter().product()], 1, forward)
}

#[test]
fn forward_equals_naive_loops() {
    let _turn = turn();
    for shape @ [_, classes] in [[1, 2], [5, 31], [3, 600]] {
        let operator = operator(shape, 8.0);
        let rows = operator.leaves[0].chunks(classes).zip(labels(shape));
        let loss = rows.map(|(row, label)| {
            let sum: f64 = row.iter().map(|x| (8.0 * x).exp()).sum();
            sum.ln() - 8.0 * row[label as usize]
        });
        let expected = [vec![loss.sum::<f64>()]];
        let run = || operator.run(&flex().autodiff(), DType::F64).remove(0);
        for found in [run(), on_reference_path(run)] {
            assert_near(&[found], &expected, 1e-13, DType::F64);
        }
    }
}

#[test]
fn kernels_equal_the_reference_in_every_dtype() {
    let _turn = turn();
    for shape in [[1, 1], [1, 2], [3, 31], [2, 257], [5, 1023], [40, 1000], [300, 3]] {
        for spread in [0.125, 1.0, 16.0] {
            let operator = operator(shape, spread);
            operator.assert_kernel_equals_reference(&flex().autodiff());
            let expected = operator.run(&flex().autodiff(), DType::F64);
            for device in with_kernels() {
                // Shaders have no exponential of f64.
                operator.assert_near_on(
                    &device.autodiff(),
                    &expected,
                    &[DType::F32, DType::F16, DType::BF16],
                );
            }
        }
    }
}

#[test]
fn gradients_pass_central_differences() {
    let _turn = turn();
    operator([4, 9], 2.0).assert_gradients(&flex().autodiff());
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    let _turn = turn();
    let operator = operator([301, 1000], 2.0);
    with_kernels().into_iter().for_each(|device| operator.assert_runs_are_equal(&device.autodiff()));
}

#[test]
fn thread_count_changes_no_bit() {
    let _turn = turn();
    operator([64, 2000], 2.0).assert_thread_count_changes_no_bit(&flex().autodiff());
}

/// Loss and gradient of scores that are held.
fn run(logits: &Tensor<2>, labels: &[i32]) -> (f64, Vec<f64>) {
    let logits = logits.clone().require_grad();
    let loss = cross_entropy(logits.clone(), Tensor::from_ints(labels, &logits.device()));
    let gradient = logits.grad(&loss.backward()).unwrap();
    (loss.into_scalar::<f64>(), values(gradient))
}

#[test]
fn extreme_scores_neither_overflow_nor_lose_the_label() {
    for device in with_kernels().into_iter().map(Device::autodiff) {
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
    for device in with_kernels().into_iter().map(Device::autodiff) {
        let logits = (0..600).map(|class| if class == 550 { 300.0 } else { 0.0 }).collect();
        let logits = Tensor::<2>::from_data(TensorData::new::<f32, _>(logits, [1, 600]), &device);
        let (loss, gradient) = run(&logits, &[0]);
        assert_eq!((loss, gradient[0], gradient[550]), (300.0, -1.0, 1.0));
    }
}

/// Scores become their gradient where nothing holds them.
#[test]
fn scores_that_are_held_stay_and_those_that_are_not_have_the_same_gradient() {
    for device in with_kernels().into_iter().map(Device::autodiff) {
        let shape = [40, 1000];
        let data = TensorData::new((0..40_000).map(|i| (i % 977) as f32 / 99.0).collect(), shape);
        let logits = Tensor::<2>::from_data(data.clone(), &device);
        let (_, expected) = run(&logits, &labels(shape));
        logits.clone().into_data().assert_eq(&data, true);
        let leaf = logits.require_grad();
        let loss = cross_entropy(leaf.clone() * 1.0, Tensor::from_ints(labels(shape).as_slice(), &device));
        assert!(values(leaf.grad(&loss.backward()).unwrap()) == expected, "{device:?}");
    }
}

#[test]
fn a_label_out_of_range_is_the_nearest_class_but_on_flex() {
    for device in with_kernels().into_iter().filter(|device| *device != flex()) {
        let logits = Tensor::<2>::from_floats([[0.0, 1.0, 2.0, 3.0, 4.0]; 2], &device.autodiff());
        assert!(run(&logits, &[-3, 5]) == run(&logits, &[0, 4]));
    }
}

#[test]
#[should_panic(expected = "labels[1] is 5, but there are 5 classes (valid labels: 0..=4)")]
fn a_label_out_of_range_is_named() {
    run(&Tensor::zeros([2, 5], &flex().autodiff()), &[4, 5]);
}

#[test]
#[should_panic(expected = "logits are [2, 5] and labels [3]")]
fn shapes_that_do_not_fit_are_named() {
    run(&Tensor::zeros([2, 5], &flex().autodiff()), &[1, 2, 3]);
}
