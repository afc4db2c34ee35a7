//! The kernels against the reference in f64 on Flex, at the same seed.

use super::Setup;
use crate::operator::attention::{Attention, AttentionOp};
use crate::operator::dropout::Dropout;
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::kernels::{Kernels, Operator};
use crate::operator::path::Path;
use crate::operator::testing::{assert_close, float, int, numbers, sixteen_bits};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Cube, Flex, TensorMetadata};
use burn::tensor::DType;
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
    needs: [bool; 4],
}

/// Numbers that every dtype holds exactly.
fn random<B: Backend>(shape: &[usize], dtype: DType, rng: &mut ChaCha8Rng) -> FloatTensor<B> {
    let value = |_| rng.random_range(-128..=128i32) as f32 / 64.0;
    float::<B>((0..shape.iter().product()).map(value).collect(), shape, dtype)
}

/// Without bias and dropout.
fn attention<B: Backend>(rows: [FloatTensor<B>; 3], lengths: &[usize], heads: usize) -> Attention<B> {
    let mut starts = vec![0];
    starts.extend(lengths.iter().scan(0, |end, &length| {
        *end += length as i32;
        Some(*end)
    }));
    let [query, key, value] = rows;
    let (lengths, starts) = (lengths.to_vec(), int::<B>(starts, [lengths.len() + 1]));
    let (dropout, path) = (Dropout::Inactive, Path::Fused);
    Attention { dropout, query, key, value, bias: None, starts, lengths, heads, scale: 0.3, path }
}

impl Case {
    /// The input and the output's gradient.
    fn input<B: Backend>(&self, dtype: DType) -> (Attention<B>, FloatTensor<B>) {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let shape = [self.lengths.iter().sum(), self.heads * self.columns];
        let rows = [(); 3].map(|()| random::<B>(&shape, dtype, &mut rng));
        let grad = random::<B>(&shape, dtype, &mut rng);
        let mut input = attention::<B>(rows, &self.lengths, self.heads);
        if self.bias {
            let shape = [self.lengths.len(), self.heads, input.longest(), input.longest()];
            input.bias = Some(random::<B>(&shape, dtype, &mut rng));
        }
        if self.dropout > 0.0 {
            let seeds = int::<B>(vec![1, 70, 7000, 65535], [4]);
            input.dropout = Dropout::Philox { seeds, row: 0, prob: self.dropout };
        }
        (input, grad)
    }

    /// On a device that runs the kernels at once, or on a lazy one.
    fn run<B: DropoutOps>(&self, dtype: DType) -> Vec<Option<FloatTensor<B>>>
    where
        AttentionOp: Kernels<B>,
    {
        let (input, grad) = self.input::<B>(dtype);
        let (output, statistics) = <AttentionOp as Kernels<B>>::forward(input.clone());
        assert_eq!(output.dtype(), dtype);
        let mut results = vec![Some(output)];
        results.extend(<AttentionOp as Kernels<B>>::backward(input, statistics, grad, self.needs));
        results
    }

    /// Within `tolerance` of the largest value of each result.
    fn check(&self, dtype: DType, tolerance: f64) {
        let (input, grad) = self.input::<Flex>(DType::F64);
        let (output, statistics) = AttentionOp::reference::<Flex>(input.clone());
        let mut expected = vec![Some(output)];
        expected.extend(AttentionOp::reference_backward::<Flex>(input, statistics, grad, self.needs));
        assert!(Setup::new(&self.input::<CubeBackend>(dtype).0).is_some(), "no kernels for {self:?}");
        let found = self.run::<CubeBackend>(dtype);
        for (i, name) in ["output", "query", "key", "value", "bias"].into_iter().enumerate() {
            assert_eq!(found[i].is_some(), expected[i].is_some(), "{name}");
            let (Some(found), Some(expected)) = (&found[i], &expected[i]) else { continue };
            assert_eq!(found.dtype(), dtype, "{name}");
            let what = format!("{name}, {self:?}");
            assert_close::<CubeBackend, Flex>(&what, found, expected, tolerance);
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
    (lengths, heads, any::<bool>(), dropout, any::<[bool; 4]>()).prop_map(
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
    let mut runner = TestRunner::new(ProptestConfig { cases: 12, ..ProptestConfig::default() });
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
    for dtype in sixteen_bits::<CubeBackend>() {
        case_of(&[31, 9, 31]).check(dtype, if dtype == DType::F16 { 4e-3 } else { 3e-2 });
    }
}

#[test]
fn two_runs_are_equal_bit_for_bit() {
    let case = case_of(&[70, 129, 0, 33]);
    let run = || {
        case.run::<CubeBackend>(DType::F32).iter().flatten().map(numbers::<CubeBackend>).collect::<Vec<_>>()
    };
    let first = run();
    assert!(first == run());
    let lazy = case.run::<Cube>(DType::F32);
    assert!(first == lazy.iter().flatten().map(numbers::<Cube>).collect::<Vec<_>>(), "on a lazy device");
}

/// With zeros in Q and the identity in V, O is mask / ((1 − p) · L).
#[test]
fn mask_is_philox_bit_for_bit() {
    fn run<B: DropoutOps>() -> Vec<f64>
    where
        AttentionOp: Kernels<B>,
    {
        let (length, prob) = (70, 0.4);
        let rows = |diagonal: f32| {
            let mut values = vec![0.0f32; length * length];
            (0..length).for_each(|i| values[i * length + i] = diagonal);
            float::<B>(values, [length, length], DType::F32)
        };
        let dropout = Dropout::Philox { seeds: int::<B>(vec![9, 8, 7, 6], [4]), row: 0, prob };
        let input = Attention { dropout, ..attention::<B>([rows(0.0), rows(0.0), rows(1.0)], &[length], 1) };
        numbers::<B>(&<AttentionOp as Kernels<B>>::forward(input).0)
    }
    let (expected, found) = (run::<Flex>(), run::<CubeBackend>());
    let kept = |values: &[f64]| values.iter().map(|&value| value > 0.0).collect::<Vec<_>>();
    assert!(kept(&found) == kept(&expected));
    assert!(kept(&found).contains(&false) && kept(&found).contains(&true));
}
