//! Dropout, bias, residual and LayerNorm in one.

use super::leaves::{Operator, assert_near};
use crate::devices::{flex, with_kernels};
use crate::turn;
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::functional::{Norm, add_layer_norm, on_reference_path};
use proptest::prelude::*;

/// Bounds 1 / σ: three values that are nearly equal would otherwise multiply the rounding of f32 by up to 300.
const EPSILON: f64 = 1e-2;

fn operator(
    rows: usize,
    hidden: usize,
    dropout: f64,
    seed: u64,
) -> Operator<impl Fn(&[Tensor<1>]) -> Tensor<2> + Sync> {
    let forward = move |leaves: &[Tensor<1>]| {
        let [x, bias, residual, gamma, beta] = leaves else { panic!("five leaves") };
        let norm = Norm { gamma: gamma.clone(), beta: Some(beta.clone()), epsilon: EPSILON };
        let [x, residual] = [x, residual].map(|rows_of| rows_of.clone().reshape([rows, hidden]));
        add_layer_norm(x, Some(bias.clone()), residual, norm, dropout)
    };
    Operator::new(&[rows * hidden, hidden, rows * hidden, hidden, hidden], seed, forward)
}

#[test]
fn forward_equals_naive_loops() {
    let _turn = turn();
    let (rows, hidden) = (3, 5);
    let operator = operator(rows, hidden, 0.0, 1);
    let [x, bias, residual, gamma, beta] = operator.leaves.as_slice() else { panic!("five leaves") };
    let mut expected = Vec::new();
    for row in 0..rows {
        let at = |column: usize| x[row * hidden + column] + bias[column] + residual[row * hidden + column];
        let mean = (0..hidden).map(at).sum::<f64>() / hidden as f64;
        let variance = (0..hidden).map(|column| (at(column) - mean).powi(2)).sum::<f64>() / hidden as f64;
        for column in 0..hidden {
            let normalized = (at(column) - mean) / (variance + EPSILON).sqrt();
            expected.push(normalized * gamma[column] + beta[column]);
        }
    }
    let device = flex();
    let run = || operator.run(&device.clone().autodiff(), DType::F64).remove(0);
    for found in [run(), on_reference_path(run)] {
        assert_near(&[found], &[expected.clone()], 1e-13, DType::F64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn kernel_equals_the_reference(
        (rows, hidden) in prop::sample::select(vec![(1usize, 1usize), (70, 3), (129, 127), (65, 768), (3, 1023)]),
        dropout in prop::sample::select(vec![0.0, 0.1, 0.9]),
        trained in any::<[bool; 5]>(),
        seed in any::<u64>(),
    ) {
        let _turn = turn();
        let operator = Operator { trained: trained.to_vec(), ..operator(rows, hidden, dropout, seed) };
        for device in with_kernels() {
            operator.assert_kernel_equals_reference(&device.autodiff());
        }
    }
}

#[test]
fn gradients_pass_central_differences_with_and_without_dropout() {
    let _turn = turn();
    for dropout in [0.0, 0.4] {
        for device in with_kernels() {
            operator(4, 7, dropout, 5).assert_gradients(&device.autodiff());
        }
    }
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    let _turn = turn();
    with_kernels()
        .into_iter()
        .for_each(|device| operator(4101, 127, 0.1, 3).assert_runs_are_equal(&device.autodiff()));
}

#[test]
fn thread_count_changes_no_bit() {
    let _turn = turn();
    operator(301, 257, 0.1, 3).assert_thread_count_changes_no_bit(&flex().autodiff());
}

#[test]
fn gradients_are_the_same_under_checkpointing() {
    let _turn = turn();
    let operator = operator(5, 9, 0.3, 3);
    let plain = operator.run(&flex().autodiff(), DType::F32);
    assert_eq!(plain, operator.run(&flex().autodiff().gradient_checkpointing(), DType::F32));
}

/// With x = 1 and a residual of 0, y is positive where x was kept; where x's gradient is 0, it was dropped.
#[test]
fn backward_drops_what_the_forward_dropped() {
    let _turn = turn();
    with_kernels().into_iter().for_each(|device| assert_same_mask(&device.autodiff()));
}

fn assert_same_mask(device: &Device) {
    let (rows, hidden, dropout) = (64, 512, 0.25);
    device.seed(9);
    let x = Tensor::<2>::ones([rows, hidden], device).require_grad();
    let norm = Norm { gamma: Tensor::ones([hidden], device), beta: None, epsilon: 1.0 };
    let y = add_layer_norm(x.clone(), None, Tensor::zeros([rows, hidden], device), norm, dropout);
    let weights = Tensor::random([rows, hidden], burn::tensor::Distribution::Normal(0.0, 1.0), device);
    let gradients = (y.clone() * weights).sum().backward();
    let kept_forward: Vec<bool> = y.into_data().iter::<f64>().map(|y| y > 0.0).collect();
    let gradient = x.grad(&gradients).unwrap();
    let kept_backward: Vec<bool> =
        gradient.into_data().iter::<f64>().map(|gradient| gradient != 0.0).collect();
    assert_eq!(kept_forward, kept_backward);
    let dropped = kept_forward.iter().filter(|kept| !**kept).count() as f64 / (rows * hidden) as f64;
    let deviation = (dropout * (1.0 - dropout) / (rows * hidden) as f64).sqrt();
    assert!((dropped - dropout).abs() < 4.0 * deviation, "{dropped} dropped");
}

#[test]
fn nothing_is_dropped_on_a_plain_device() {
    let _turn = turn();
    let device = flex();
    let x = Tensor::<2>::random([3, 8], burn::tensor::Distribution::Default, &device);
    let run = |dropout| {
        let norm = Norm { gamma: Tensor::ones([8], &device), beta: None, epsilon: EPSILON };
        add_layer_norm(x.clone(), None, x.clone(), norm, dropout).into_data()
    };
    assert_eq!(run(0.5), run(0.0));
}

#[test]
#[should_panic(expected = "residual must have the shape of x")]
fn residual_of_another_shape_panics() {
    let device = flex();
    let norm = Norm { gamma: Tensor::ones([8], &device), beta: None, epsilon: EPSILON };
    add_layer_norm(Tensor::zeros([3, 8], &device), None, Tensor::zeros([1, 8], &device), norm, 0.0);
}

#[test]
#[should_panic(expected = "dropout: the probability is 1, but must lie in [0, 1)")]
fn dropout_of_one_panics() {
    let device = flex();
    let norm = Norm { gamma: Tensor::ones([8], &device), beta: None, epsilon: EPSILON };
    add_layer_norm(Tensor::zeros([3, 8], &device), None, Tensor::zeros([3, 8], &device), norm, 1.0);
}
