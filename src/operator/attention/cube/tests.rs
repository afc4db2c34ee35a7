//! The kernels against the reference in f64 on Flex, at the same seed.

use super::Setup;
use crate::operator::attention::input::{Attention, AttentionNeeds, ScoreBias};
use crate::operator::attention::reference;
use crate::operator::dropout::Dropout;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, TensorMetadata, try_read_sync};
use burn::tensor::{DType, TensorData};
use burn_cubecl::CubeBackend;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[derive(Clone, Debug)]
struct Case {
    lengths: Vec<usize>,
    heads: usize,
    columns: usize,
    bias: bool,
    dropout: f64,
    needs: AttentionNeeds,
}

/// Numbers that every dtype holds exactly.
fn float<B: Backend>(shape: &[usize], dtype: DType, rng: &mut ChaCha8Rng) -> FloatTensor<B> {
    let values: Vec<f32> =
        (0..shape.iter().product()).map(|_| rng.random_range(-128..=128i32) as f32 / 64.0).collect();
    B::float_from_data(TensorData::new(values, shape).convert_dtype(dtype), &Default::default())
}

fn int<B: Backend>(values: Vec<i32>) -> burn::backend::tensor::IntTensor<B> {
    let count = values.len();
    B::int_from_data(TensorData::new(values, [count]), &Default::default())
}

fn numbers<B: Backend>(tensor: &FloatTensor<B>) -> Vec<f64> {
    try_read_sync(B::float_into_data(tensor.clone())).unwrap().unwrap().iter::<f64>().collect()
}

impl Case {
    /// The input and the output's gradient.
    fn input<B: Backend>(&self, dtype: DType) -> (Attention<B>, FloatTensor<B>) {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let shape = [self.lengths.iter().sum(), self.heads * self.columns];
        let rows = [(); 3].map(|()| float::<B>(&shape, dtype, &mut rng));
        let grad = float::<B>(&shape, dtype, &mut rng);
        let mut starts = vec![0];
        starts.extend(self.lengths.iter().scan(0, |end, &length| {
            *end += length as i32;
            Some(*end)
        }));
        let mut input = Attention::new(rows, self.lengths.clone(), int::<B>(starts), self.heads);
        if self.bias {
            let shape = [self.lengths.len(), self.heads, input.longest(), input.longest()];
            input.bias = ScoreBias::Added(float::<B>(&shape, dtype, &mut rng));
        }
        if self.dropout > 0.0 {
            input.dropout = Dropout::Philox { seed: int::<B>(vec![1, 70, 7000, 65535]), prob: self.dropout };
        }
        (input, grad)
    }

    fn run(&self, dtype: DType) -> Vec<Option<FloatTensor<CubeBackend>>> {
        let (input, grad) = self.input::<CubeBackend>(dtype);
        let setup = Setup::new(&input).expect("an input for the kernels");
        let (output, statistics) = setup.forward(true);
        assert_eq!(output.dtype(), dtype);
        let alone = setup.forward(false).0;
        assert_eq!(numbers::<CubeBackend>(&alone), numbers::<CubeBackend>(&output), "without statistics");
        let mut results = vec![Some(output)];
        results.extend(setup.backward(statistics.unwrap(), grad, self.needs));
        results
    }

    /// Within `tolerance` of the largest value of each result.
    fn check(&self, dtype: DType, tolerance: f64) {
        let (input, grad) = self.input::<Flex>(DType::F64);
        let (output, max, inverse_sum) = reference::with_statistics::<Flex>(input.clone());
        let mut expected = vec![Some(output)];
        expected.extend(reference::backward::<Flex>(input, max, inverse_sum, grad, self.needs));
        let found = self.run(dtype);
        for (i, name) in ["output", "query", "key", "value", "bias"].into_iter().enumerate() {
            assert_eq!(found[i].is_some(), expected[i].is_some(), "{name}");
            let (Some(found), Some(expected)) = (&found[i], &expected[i]) else { continue };
            assert_eq!((found.shape(), found.dtype()), (expected.shape(), dtype), "{name}");
            let (found, expected) = (numbers::<CubeBackend>(found), numbers::<Flex>(expected));
            let limit = tolerance * expected.iter().fold(1.0f64, |max, x| max.max(x.abs()));
            for (i, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                let near = (found - expected).abs() <= limit;
                assert!(near, "{name}, value {i}: {found}, not {expected} ± {limit}, {self:?}");
            }
        }
    }
}

fn case() -> impl Strategy<Value = Case> {
    let lengths = prop_oneof![
        Just(vec![1usize]),
        Just(vec![17, 17]),
        Just(vec![129, 3, 64]),
        Just(vec![0, 31, 1]),
        Just(vec![65, 0]),
    ];
    let heads = prop::sample::select(vec![(1usize, 1usize), (3, 5), (2, 64), (1, 127)]);
    let dropout = prop::sample::select(vec![0.0, 0.1, 0.9]);
    (lengths, heads, any::<bool>(), dropout, any::<AttentionNeeds>()).prop_map(
        |(lengths, (heads, columns), bias, dropout, needs)| Case {
            lengths,
            heads,
            columns,
            bias,
            dropout,
            needs,
        },
    )
}

#[test]
fn random_cases_equal_the_reference() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 24, ..ProptestConfig::default() });
    let result = runner.run(&case(), |case| {
        case.check(DType::F32, 2e-5);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn case_of(lengths: &[usize]) -> Case {
    let lengths = lengths.to_vec();
    Case { lengths, heads: 2, columns: 24, bias: true, dropout: 0.1, needs: [true; 4] }
}

/// A row of more columns than a cube's units draw in one turn.
#[test]
fn a_long_sequence_equals_the_reference() {
    case_of(&[1100, 70]).check(DType::F32, 2e-5);
}

#[test]
fn sixteen_bit_floats_are_near_the_reference() {
    let mut dtypes = vec![(DType::F16, 4e-3), (DType::BF16, 3e-2)];
    dtypes.retain(|&(dtype, _)| CubeBackend::supports_dtype(&Default::default(), dtype));
    assert!(!dtypes.is_empty(), "the device has no 16-bit floats; `--skip sixteen_bit` leaves this test out");
    for (dtype, tolerance) in dtypes {
        case_of(&[31, 9, 31]).check(dtype, tolerance);
    }
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    let case = case_of(&[70, 129, 0, 33]);
    let run = || case.run(DType::F32).iter().flatten().map(numbers::<CubeBackend>).collect::<Vec<_>>();
    assert!(run() == run());
}

/// With zeros in Q and the identity in V, O is mask / ((1 − p) · L).
#[test]
fn mask_is_philox_bit_for_bit() {
    let (length, prob) = (70, 0.4);
    let run = |input: fn(usize, f64) -> Vec<f64>| input(length, prob);
    fn identity<B: Backend>(length: usize, prob: f64) -> Attention<B> {
        let rows = |diagonal: f32| {
            let mut values = vec![0.0f32; length * length];
            (0..length).for_each(|i| values[i * length + i] = diagonal);
            B::float_from_data(TensorData::new(values, [length, length]), &Default::default())
        };
        let starts = int::<B>(vec![0, length as i32]);
        let dropout = Dropout::Philox { seed: int::<B>(vec![9, 8, 7, 6]), prob };
        let input = Attention::new([rows(0.0), rows(0.0), rows(1.0)], vec![length], starts, 1);
        Attention { dropout, ..input }
    }
    let expected = run(|length, prob| {
        let input = identity::<Flex>(length, prob);
        numbers::<Flex>(&reference::with_statistics::<Flex>(input).0)
    });
    let found = run(|length, prob| {
        let input = identity::<CubeBackend>(length, prob);
        numbers::<CubeBackend>(&Setup::new(&input).unwrap().forward(false).0)
    });
    let kept = |values: &[f64]| values.iter().map(|&value| value > 0.0).collect::<Vec<_>>();
    assert!(kept(&found) == kept(&expected));
    assert!(kept(&found).contains(&false) && kept(&found).contains(&true));
}
