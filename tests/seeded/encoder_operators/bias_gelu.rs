//! Bias and exact GELU in one.

use super::leaves::{Operator, assert_near};
use crate::devices::{flex, with_kernels};
use crate::turn;
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::functional::{bias_gelu, on_reference_path};
use proptest::prelude::*;

fn operator(rows: usize, columns: usize, seed: u64) -> Operator<impl Fn(&[Tensor<1>]) -> Tensor<2> + Sync> {
    let forward = move |leaves: &[Tensor<1>]| {
        let [x, bias] = leaves else { panic!("two leaves") };
        bias_gelu(x.clone().reshape([rows, columns]), bias.clone())
    };
    Operator::new(&[rows * columns, columns], seed, forward)
}

/// x and `torch.nn.functional.gelu(x, approximate="none")` and its derivative, PyTorch 2.15.0 in f64.
const TORCH: [[f64; 3]; 16] = [
    [-14.0, -0.0, -1.53524918314456e-42],
    [-6.0, -5.919525869479969e-09, -3.546870945402639e-08],
    [-3.5, -0.0008142017766243903, -0.0028217603536246205],
    [-2.0, -0.04550026389635842, -0.08523180107819692],
    [-1.0, -0.15865525393145702, -0.08331547058768635],
    [-0.75, -0.16997051428265111, 0.0007742782607648296],
    [-0.125, -0.056282721896235885, 0.4007820643017934],
    [0.0, 0.0, 0.5],
    [0.001, 0.000500398942213911, 0.5007978842948414],
    [0.5, 0.34573123063700656, 0.8674951246561629],
    [1.0, 0.841344746068543, 1.0833154705876864],
    [1.75, 1.67989647548832, 1.110926151082578],
    [2.5, 2.4844758366855597, 1.037611085908145],
    [4.0, 3.9998733150326675, 1.0005036496612265],
    [6.0, 5.999999994080474, 1.0000000354687093],
    [14.0, 14.0, 1.0],
];

#[test]
fn value_and_derivative_are_those_of_pytorch() {
    let _turn = turn();
    let mut operator = operator(TORCH.len(), 1, 0);
    operator.leaves = vec![TORCH.iter().map(|row| row[0]).collect(), vec![0.0]];
    for column in [1, 2] {
        let expected: Vec<f64> = TORCH.iter().map(|row| row[column]).collect();
        let device = flex().autodiff();
        let run = |dtype| {
            let x = Tensor::<1>::from_data(TensorData::from(operator.leaves[0].as_slice()), (&device, dtype));
            let x = x.reshape([TORCH.len(), 1]).require_grad();
            let y = bias_gelu(x.clone(), Tensor::zeros([1], (&device, dtype)));
            match column {
                1 => crate::tolerance::values(y),
                _ => crate::tolerance::values(x.grad(&y.sum().backward()).unwrap()),
            }
        };
        for (dtype, limit) in [(DType::F64, 1e-15), (DType::F32, 3e-7)] {
            for found in [run(dtype), on_reference_path(|| run(dtype))] {
                assert_near(&[found], std::slice::from_ref(&expected), limit, dtype);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn kernel_equals_the_reference(
        (rows, columns) in prop::sample::select(vec![(1usize, 1usize), (70, 3), (300, 127), (65, 3072), (3, 1023)]),
        trained in any::<[bool; 2]>(),
        seed in any::<u64>(),
    ) {
        let _turn = turn();
        let operator = Operator { trained: trained.to_vec(), ..operator(rows, columns, seed) };
        operator.assert_kernel_equals_reference(&flex().autodiff());
        let expected = operator.run(&flex().autodiff(), DType::F64);
        for device in with_kernels() {
            operator.assert_near_on(&device.autodiff(), &expected, &[DType::F32, DType::F16, DType::BF16]);
        }
    }
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    let _turn = turn();
    with_kernels()
        .into_iter()
        .for_each(|device| operator(4101, 127, 3).assert_runs_are_equal(&device.autodiff()));
}

#[test]
fn gradients_pass_central_differences() {
    let _turn = turn();
    operator(5, 7, 5).assert_gradients(&flex().autodiff());
}

#[test]
fn thread_count_changes_no_bit() {
    let _turn = turn();
    operator(301, 257, 3).assert_thread_count_changes_no_bit(&flex().autodiff());
}

#[test]
fn gradients_are_the_same_under_checkpointing() {
    let _turn = turn();
    let operator = operator(5, 9, 3);
    let plain = operator.run(&flex().autodiff(), DType::F32);
    assert_eq!(plain, operator.run(&flex().autodiff().gradient_checkpointing(), DType::F32));
}

#[test]
fn what_is_not_a_number_stays_so_and_infinity_has_its_limit() {
    let device = flex();
    let x = Tensor::<2>::from_floats([[f32::NAN, f32::INFINITY, -1e30, 1e30]], &device);
    let y: Vec<f32> = bias_gelu(x.clone(), Tensor::zeros([4], &device)).into_data().try_into_vec().unwrap();
    assert!(y[0].is_nan());
    assert_eq!(y[1..], [f32::INFINITY, -0.0, 1e30]);
}

#[test]
#[should_panic(expected = "bias must be as long as a row of x")]
fn bias_of_another_length_panics() {
    let device = flex();
    bias_gelu(Tensor::zeros([3, 8], &device), Tensor::zeros([1], &device));
}
