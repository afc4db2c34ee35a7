//! Attention of packed sequences.

use super::leaves::{Operator, assert_near};
use crate::devices::{flex, with_kernels};
use crate::tolerance::values;
use crate::turn;
use burn::prelude::*;
use burn::tensor::{DType, Distribution};
use burn_bert::functional::{Sequences, on_reference_path};
use proptest::prelude::*;

/// The operator on sequences of these lengths.
fn attention(
    rows: [Tensor<2>; 3],
    lengths: &[usize],
    heads: usize,
    bias: Option<Tensor<4>>,
    dropout: f64,
) -> Tensor<2> {
    let sequences = Sequences::new(lengths.to_vec(), &rows[0].device());
    burn_bert::functional::attention(rows, &sequences, heads, bias, dropout)
}

#[derive(Clone, Debug)]
struct Case {
    lengths: Vec<usize>,
    heads: usize,
    columns: usize,
    bias: bool,
    dropout: f64,
}

impl Case {
    fn operator(self, seed: u64) -> Operator<impl Fn(&[Tensor<1>]) -> Tensor<2> + Sync> {
        let Self { lengths, heads, columns, bias, dropout } = self;
        let tokens: usize = lengths.iter().sum();
        let longest = lengths.iter().copied().max().unwrap();
        let hidden = heads * columns;
        let bias_dims = [lengths.len(), heads, longest, longest];
        let mut counts = vec![tokens * hidden; 3];
        counts.extend(bias.then(|| bias_dims.iter().product::<usize>()));
        let forward = move |leaves: &[Tensor<1>]| {
            let rows = [0, 1, 2].map(|i| leaves[i].clone().reshape([tokens, hidden]));
            let bias = leaves.get(3).map(|bias| bias.clone().reshape(bias_dims));
            attention(rows, &lengths, heads, bias, dropout)
        };
        Operator::new(&counts, seed, forward)
    }
}

/// Softmax of every row, then the weighted sum, by loops.
fn naive(leaves: &[Vec<f64>], lengths: &[usize], heads: usize, columns: usize) -> Vec<f64> {
    let hidden = heads * columns;
    let longest = lengths.iter().copied().max().unwrap();
    let mut output = vec![0.0; leaves[0].len()];
    let mut first = 0;
    for (sequence, &length) in lengths.iter().enumerate() {
        for head in 0..heads {
            let at = |which: usize, token: usize, column: usize| {
                leaves[which][(first + token) * hidden + head * columns + column]
            };
            for i in 0..length {
                let weights: Vec<f64> = (0..length)
                    .map(|j| {
                        let product: f64 =
                            (0..columns).map(|column| at(0, i, column) * at(1, j, column)).sum();
                        let bias = leaves.get(3).map_or(0.0, |bias| {
                            bias[((sequence * heads + head) * longest + i) * longest + j]
                        });
                        (product / (columns as f64).sqrt() + bias).exp()
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                for column in 0..columns {
                    output[(first + i) * hidden + head * columns + column] =
                        weights.iter().enumerate().map(|(j, weight)| weight / sum * at(2, j, column)).sum();
                }
            }
        }
        first += length;
    }
    output
}

#[test]
fn forward_equals_naive_loops() {
    let _turn = turn();
    for (lengths, bias) in
        [(vec![4, 4], false), (vec![3, 0, 5, 1], false), (vec![5, 2], true), (vec![200], false)]
    {
        let case = Case { lengths: lengths.clone(), heads: 3, columns: 5, bias, dropout: 0.0 };
        let operator = case.operator(7);
        let expected = naive(&operator.leaves, &lengths, 3, 5);
        let run = || operator.run(&flex().autodiff(), DType::F64).remove(0);
        for found in [run(), on_reference_path(run)] {
            assert_near(&[found], std::slice::from_ref(&expected), 1e-13, DType::F64);
        }
    }
}

fn case() -> impl Strategy<Value = Case> {
    let lengths = prop_oneof![
        Just(vec![1usize]),
        Just(vec![17, 17]),
        Just(vec![129, 3, 64]),
        Just(vec![0, 31, 1]),
        Just(vec![300]),
    ];
    let heads = prop::sample::select(vec![(1usize, 1usize), (3, 5), (2, 64), (1, 127)]);
    (lengths, heads, any::<bool>(), prop::sample::select(vec![0.0, 0.1, 0.9])).prop_map(
        |(lengths, (heads, columns), bias, dropout)| Case { lengths, heads, columns, bias, dropout },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn kernel_equals_the_reference(case in case(), trained in any::<[bool; 4]>(), seed in any::<u64>()) {
        let _turn = turn();
        let operator = case.operator(seed);
        let trained = trained[..operator.leaves.len()].to_vec();
        Operator { trained, ..operator }.assert_kernel_equals_reference(&flex().autodiff());
    }
}

/// Rows of more columns than a cube's units draw in one turn, too.
#[test]
fn kernels_of_other_devices_equal_the_reference() {
    let _turn = turn();
    let cases = [
        (vec![1], (1, 1), false, 0.0),
        (vec![17, 17], (3, 5), true, 0.1),
        (vec![129, 3, 64], (2, 64), false, 0.9),
        (vec![0, 31, 1], (1, 127), true, 0.0),
        (vec![65, 0], (3, 5), true, 0.1),
        (vec![1100, 70], (2, 24), true, 0.1),
        (vec![31, 9, 31], (2, 24), true, 0.1),
    ];
    for device in with_kernels().into_iter().filter(|device| *device != flex()) {
        let device = device.autodiff();
        for (i, (lengths, (heads, columns), bias, dropout)) in cases.clone().into_iter().enumerate() {
            let operator = Case { lengths, heads, columns, bias, dropout }.operator(3);
            let trained = (0..operator.leaves.len()).map(|leaf| (i + leaf) % 3 > 0 || i > 4).collect();
            let operator = Operator { trained, ..operator };
            let expected = on_reference_path(|| operator.run(&device, DType::F32));
            let dtypes = [DType::F32, DType::F16, DType::BF16];
            operator.assert_near_on(&device, &expected, if i == 6 { &dtypes } else { &dtypes[..1] });
        }
    }
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    let _turn = turn();
    let case = Case { lengths: vec![70, 129, 0, 33], heads: 2, columns: 24, bias: true, dropout: 0.1 };
    let operator = case.operator(3);
    with_kernels().into_iter().for_each(|device| operator.assert_runs_are_equal(&device.autodiff()));
}

#[test]
fn gradients_pass_central_differences_with_bias_and_dropout() {
    let _turn = turn();
    for (bias, dropout) in [(false, 0.0), (true, 0.0), (true, 0.4)] {
        let case = Case { lengths: vec![4, 2, 0, 5], heads: 2, columns: 3, bias, dropout };
        case.operator(5).assert_gradients(&flex().autodiff());
    }
}

#[test]
fn thread_count_changes_no_bit() {
    let _turn = turn();
    let case = Case { lengths: vec![129, 70, 129, 5], heads: 3, columns: 33, bias: true, dropout: 0.1 };
    case.operator(3).assert_thread_count_changes_no_bit(&flex().autodiff());
}

#[test]
fn gradients_are_the_same_under_checkpointing() {
    let _turn = turn();
    let case = Case { lengths: vec![9, 4], heads: 2, columns: 3, bias: true, dropout: 0.3 };
    let operator = case.operator(3);
    let plain = operator.run(&flex().autodiff(), DType::F32);
    assert_eq!(plain, operator.run(&flex().autodiff().gradient_checkpointing(), DType::F32));
}

#[test]
fn a_sequence_alone_gives_what_it_gives_in_a_batch() {
    let _turn = turn();
    let device = flex();
    let [q, k, v] = [1, 2, 3].map(|_| Tensor::<2>::random([12, 8], Distribution::Normal(0.0, 1.0), &device));
    let together = attention([&q, &k, &v].map(Tensor::clone), &[7, 5], 2, None, 0.0);
    let alone = attention([&q, &k, &v].map(|rows| rows.clone().narrow(0, 7, 5)), &[5], 2, None, 0.0);
    assert_eq!(together.narrow(0, 7, 5).into_data(), alone.into_data());
}

#[test]
fn views_of_a_joint_product_give_what_copies_give() {
    let _turn = turn();
    let device = flex();
    let joint = Tensor::<2>::random([12, 24], Distribution::Normal(0.0, 1.0), &device);
    let views = [0, 8, 16].map(|first| joint.clone().narrow(1, first, 8));
    let copies = views.clone().map(|view| Tensor::<2>::from_data(view.into_data(), &device));
    let run = |rows| attention(rows, &[7, 5], 2, None, 0.0).into_data();
    assert_eq!(run(views), run(copies));
}

/// With V the identity and zeros in Q, O is mask / ((1 − p) · L) itself, and V's gradient is its transpose times that
/// of O.
#[test]
fn backward_drops_what_the_forward_dropped() {
    let _turn = turn();
    let (length, dropout) = (200, 0.25);
    let device = flex().autodiff();
    device.seed(4);
    let zeros = Tensor::<2>::zeros([length, length], &device);
    let value = Tensor::<2>::eye(length, &device).require_grad();
    let y = attention([zeros.clone(), zeros, value.clone()], &[length], 1, None, dropout);
    let weights = Tensor::<2>::random([length, length], Distribution::Normal(0.0, 1.0), &device);
    let gradients = (y.clone() * weights.clone()).sum().backward();
    let mask = values(y.clone());
    let kept = 1.0 / (1.0 - dropout) / length as f64;
    assert!(mask.iter().all(|&weight| weight == 0.0 || (weight - kept).abs() < 1e-7));
    let dropped = mask.iter().filter(|&&weight| weight == 0.0).count() as f64 / mask.len() as f64;
    let deviation = (dropout * (1.0 - dropout) / mask.len() as f64).sqrt();
    assert!((dropped - dropout).abs() < 4.0 * deviation, "{dropped} dropped");
    let expected = values(y.inner().transpose().matmul(weights.inner()));
    let found = values(value.grad(&gradients).unwrap());
    assert_near(&[found], &[expected], 1e-6, DType::F32);
}

#[test]
fn large_scores_do_not_overflow() {
    let device = flex();
    let rows = Tensor::<2>::from_floats([[1e4], [-1e4], [1.0]], &device);
    let y = attention([rows.clone(), rows.clone(), rows], &[3], 1, None, 0.0);
    let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
    assert_eq!(y, [1e4, -1e4, 1e4]);
}

#[test]
#[should_panic(expected = "lengths must add up to the number of rows")]
fn lengths_that_do_not_add_up_panic() {
    let rows = Tensor::<2>::zeros([3, 8], &flex());
    attention([rows.clone(), rows.clone(), rows], &[2], 2, None, 0.0);
}

#[test]
#[should_panic(expected = "heads: 3 do not divide rows of length 8")]
fn heads_that_do_not_divide_panic() {
    let rows = Tensor::<2>::zeros([3, 8], &flex());
    attention([rows.clone(), rows.clone(), rows], &[3], 3, None, 0.0);
}
