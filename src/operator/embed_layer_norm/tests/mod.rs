//! The kernels against the reference, over shapes and inputs drawn at random, on every backend that has any.
//!
//! Expected values come from the reference in f64 on Flex.

mod case;

use crate::operator::dropout::Dropout;
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::embed_layer_norm::{EmbedLayerNorm, EmbedLayerNormOp};
use crate::operator::inputs::Fields;
use crate::operator::kernels::{Kernels as RunsOn, Operator, Output};
use crate::operator::path::Path;
use crate::operator::philox::{GROUP, Mask};
use crate::operator::testing::{assert_close, numbers, sixteen_bits};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, TensorMetadata};
use burn::tensor::{DType, FloatDType, Slice, TensorData};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub(super) use case::{Case, Ids, bert, float, int};
use case::{Kernels, Kind, case, moved, moved_float};

impl Case {
    /// Runs the kernel in `dtype` and the reference in f64 on the same numbers.
    fn check<B: Kernels>(&self, dtype: FloatDType, tolerance: f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let input = self.input(&mut rng);
        let [batch, seq] = self.shape;
        let grad = float(&[batch, seq, self.hidden], &mut rng);

        let exact = moved::<Flex>(&input, FloatDType::F64);
        let (expected, statistics) = EmbedLayerNormOp::reference::<Flex>(exact.clone());
        let exact_grad = Flex::float_cast(grad.clone(), FloatDType::F64);
        let gradients =
            EmbedLayerNormOp::reference_backward::<Flex>(exact, statistics, exact_grad, self.needs);

        let input = moved::<B>(&input, dtype);
        let grad = moved_float::<B>(&grad, dtype);
        assert!(B::take(&input), "no kernel for {self:?}");
        let (found, statistics) = B::forward(input.clone());
        assert_eq!(found.dtype(), DType::from(dtype));
        assert_close::<B, Flex>("y", &found, &expected, tolerance);

        let found = B::backward(input, statistics, grad, self.needs);
        let operands = ["words", "token_types", "positions", "gamma", "beta"];
        let pairs = found.into_iter().zip(gradients);
        for (operand, (found, expected)) in operands.into_iter().zip(pairs) {
            assert_eq!(found.is_some(), expected.is_some(), "{operand}");
            if let (Some(found), Some(expected)) = (found, expected) {
                assert_close::<B, Flex>(&format!("gradient of {operand}"), &found, &expected, tolerance);
            }
        }
    }
}

/// A few hundred roundings of the largest intermediate value.
const F32: f64 = 3e-5;
const F64: f64 = 1e-13;

fn random_cases_equal_the_reference<B: Kernels>(dtype: FloatDType, tolerance: f64, cases: u32) {
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let result = runner.run(&case(), |case| {
        case.check::<B>(dtype, tolerance);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn bert_base_equals_the_reference<B: Kernels>() {
    bert([2, 65], 768, Ids::Random).check::<B>(FloatDType::F32, F32);
}

fn longest_sequence_equals_the_reference<B: Kernels>() {
    bert([1, 512], 1023, Ids::Random).check::<B>(FloatDType::F32, F32);
}

fn one_id_8192_times_adds_up<B: Kernels>() {
    bert([16, 512], 16, Ids::All(5)).check::<B>(FloatDType::F32, F32);
}

/// As many tokens as a GPU gets in one batch: more cubes than WebGPU has in one dimension, and a list of ids that is
/// sorted in several launches. One row of words, one of token types and the first positions get all of the gradient.
fn a_batch_of_65536_tokens_equals_the_reference<B: Kernels>() {
    for ids in [Ids::Random, Ids::All(5)] {
        bert([128, 512], 3, ids).check::<B>(FloatDType::F32, F32);
    }
    let kinds = [Kind::Lookup { padding: true }, Kind::Shared { padding: false }, Kind::Absent];
    let case = bert([65_537, 1], 2, Ids::Random);
    Case { kinds, vocab: 250_002, ..case }.check::<B>(FloatDType::F32, F32);
}

fn a_batch_of_pads_equals_the_reference<B: Kernels>() {
    bert([3, 129], 127, Ids::All(0)).check::<B>(FloatDType::F32, F32);
}

/// Two rows share all tokens, as token types do.
fn one_position_8192_times_adds_up<B: Kernels>(dtype: FloatDType, tolerance: f64) {
    let kinds = [Kind::Values, Kind::Lookup { padding: false }, Kind::Shared { padding: false }];
    let case = bert([8192, 1], 3, Ids::Random);
    Case { kinds, vocab: 2, ..case }.check::<B>(dtype, tolerance);
}

/// 16-bit tables hold 16-bit roundings of the numbers; the tolerances are those of the module.
fn sixteen_bit_floats_are_near_the_reference<B: Kernels>() {
    let case = Case { vocab: 50, ..bert([3, 31], 127, Ids::Random) };
    for dtype in sixteen_bits::<B>() {
        case.check::<B>(dtype.into(), if dtype == DType::F16 { 1e-2 } else { 1e-1 });
    }
}

/// γ = 0 and β = 1 show the mask itself: y is 0 or 1 / (1 − p), and so is β's gradient for one token.
fn mask_is_philox_bit_for_bit<B: Kernels>() {
    for (seed, [tokens, hidden]) in
        [([1, 70, 7000, 65535], [70, 1023]), ([65535, 0, 3, 9], [1, 64]), ([0, 0, 0, 0], [5, 1])]
    {
        let vector =
            |value: f32| B::float_from_data(TensorData::new(vec![value; hidden], [hidden]), &B::device());
        let values = TensorData::new(vec![0.5f32; tokens * hidden], [1, tokens, hidden]);
        let prob = 0.4;
        let input = EmbedLayerNorm {
            shape: [1, tokens],
            words: Rows::Values(B::float_from_data(values, &B::device())),
            token_types: Rows::Absent,
            positions: Rows::Absent,
            gamma: vector(0.0),
            beta: vector(1.0),
            epsilon: 1e-3,
            dropout: Dropout::Philox {
                seeds: B::int_from_data(TensorData::new(seed.to_vec(), [1, 4]), &B::device()),
                row: 0,
                prob,
            },
            path: Path::Fused,
        };
        let mask = Mask::new(seed.map(|word| word as u32), prob);
        let expected: Vec<f64> = (0..tokens * hidden)
            .map(|i| {
                let (token, column) = (i / hidden, i % hidden);
                let word = mask.words(token as u64, (column / GROUP) as u32)[column % GROUP];
                if mask.keeps(word) { f64::from(mask.scale as f32) } else { 0.0 }
            })
            .collect();
        let (y, statistics) = B::forward(input.clone());
        assert!(numbers::<B>(&y) == expected, "the forward's mask of {tokens} x {hidden}");
        // With one token's gradient alone, β's is that token's mask.
        for token in [0, tokens - 1] {
            let grad = (0..tokens * hidden).map(|i| if i / hidden == token { 1.0f32 } else { 0.0 }).collect();
            let grad = B::float_from_data(TensorData::new::<f32, _>(grad, [1, tokens, hidden]), &B::device());
            let needs = [false, false, false, false, true];
            let mut found = B::backward(input.clone(), statistics.clone(), grad, needs);
            let found = numbers::<B>(&found.pop().flatten().unwrap());
            assert!(found == expected[token * hidden..][..hidden], "the backward's mask of token {token}");
        }
    }
}

fn two_runs_are_equal_bit_for_bit<B: Kernels>() {
    for (shape @ [batch, seq], hidden) in [([4, 129], 127), ([128, 512], 2)] {
        let case = Case { vocab: 600, ..bert(shape, hidden, Ids::Random) };
        let mut rng = ChaCha8Rng::seed_from_u64(case.seed);
        let input = moved::<B>(&case.input(&mut rng), FloatDType::F32);
        let grad = moved_float::<B>(&float(&[batch, seq, hidden], &mut rng), FloatDType::F32);
        let first = run_all::<B>(&input, &grad);
        assert_eq!(first.len(), 6);
        assert!(run_all::<B>(&input, &grad) == first, "{batch} × {seq} tokens");
    }
}

/// y and all gradients.
pub(super) fn run_all<B: Kernels>(input: &EmbedLayerNorm<B>, grad: &FloatTensor<B>) -> Vec<Vec<f64>> {
    let (y, statistics) = B::forward(input.clone());
    let gradients = B::backward(input.clone(), statistics, grad.clone(), [true; 5]);
    [Some(y)].into_iter().chain(gradients).flatten().map(|tensor| numbers::<B>(&tensor)).collect()
}

/// CUDA and ROCm put the rows of a table at aligned places, with room between them; so does a slice of a wider table.
fn rows_that_lie_apart_give_the_same_bits<B: Kernels>() {
    let kinds = [Kind::Lookup { padding: true }, Kind::Shared { padding: false }, Kind::Range];
    let case = Case { kinds, vocab: 50, ..bert([3, 31], 127, Ids::Random) };
    let mut rng = ChaCha8Rng::seed_from_u64(case.seed);
    let input = moved::<B>(&case.input(&mut rng), FloatDType::F32);
    let grad = moved_float::<B>(&float(&[3, 31, 127], &mut rng), FloatDType::F32);
    let apart = |tensor: FloatTensor<B>| {
        let shape = tensor.shape();
        let wider = B::float_cat(vec![tensor.clone(), tensor], shape.num_dims() - 1);
        let slices: Vec<Slice> = shape.iter().map(|&length| Slice::from(0..length)).collect();
        B::float_slice(wider, &slices)
    };
    let expected = run_all::<B>(&input, &grad);
    let input = EmbedLayerNormOp::map::<B, B>(input, &mut |tensor| apart(tensor), &mut |ids| ids);
    assert!(run_all::<B>(&input, &apart(grad)) == expected);
}

/// The ids of the words are moved to the nearest row, forward and backward.
fn ids_out_of_range_take_the_nearest_row(run: impl Fn(&EmbedLayerNorm<Flex>) -> Vec<Vec<f64>>) {
    let case = Case { vocab: 3, dropout: 0.0, ..bert([1, 4], 3, Ids::All(0)) };
    let case = Case { kinds: [Kind::Lookup { padding: false }, Kind::Row, Kind::Values], ..case };
    let mut input = case.input(&mut ChaCha8Rng::seed_from_u64(0));
    let mut run = |values| {
        if let Rows::Lookup { ids, .. } = &mut input.words {
            *ids = int(values, [1, 4]);
        }
        run(&input)
    };
    assert_eq!(run(vec![-7, i32::MAX, i32::MIN, 3]), run(vec![0, 2, 0, 2]));
}

#[test]
fn reference_takes_the_nearest_row_for_an_id_out_of_range() {
    ids_out_of_range_take_the_nearest_row(|input| {
        let (y, statistics) = EmbedLayerNormOp::reference::<Flex>(input.clone());
        let gradients =
            EmbedLayerNormOp::reference_backward::<Flex>(input.clone(), statistics, y.clone(), [true; 5]);
        [Some(y)].into_iter().chain(gradients).flatten().map(|tensor| numbers::<Flex>(&tensor)).collect()
    });
}

#[test]
fn a_batch_without_tokens_equals_the_reference_on_flex() {
    for shape in [[0, 4], [2, 0]] {
        bert(shape, 3, Ids::All(0)).check::<Flex>(FloatDType::F32, F32);
    }
}

macro_rules! kernels {
    ($name:ident, $backend:ty, $take:expr, $cases:literal) => {
        mod $name {
            use super::*;

            impl Kernels for $backend {
                fn take(input: &EmbedLayerNorm<Self>) -> bool {
                    $take(input)
                }

                fn forward(input: EmbedLayerNorm<Self>) -> Output<EmbedLayerNormOp, Self> {
                    <EmbedLayerNormOp as RunsOn<Self>>::forward(input)
                }

                fn backward(
                    input: EmbedLayerNorm<Self>,
                    statistics: [FloatTensor<Self>; 2],
                    grad: FloatTensor<Self>,
                    needs: [bool; 5],
                ) -> Vec<Option<FloatTensor<Self>>> {
                    <EmbedLayerNormOp as RunsOn<Self>>::backward(input, statistics, grad, needs)
                }
            }

            #[test]
            fn kernel_equals_the_reference_in_f32() {
                random_cases_equal_the_reference::<$backend>(FloatDType::F32, F32, $cases);
            }

            #[test]
            fn kernel_equals_the_reference_in_f64() {
                let has_f64 = <$backend>::supports_dtype(&<$backend>::device(), DType::F64);
                assert!(has_f64, "the device has no f64; `--skip in_f64` leaves this test out");
                random_cases_equal_the_reference::<$backend>(FloatDType::F64, F64, $cases);
                super::one_position_8192_times_adds_up::<$backend>(FloatDType::F64, F64);
            }

            #[test]
            fn one_position_8192_times_adds_up() {
                super::one_position_8192_times_adds_up::<$backend>(FloatDType::F32, F32);
            }

            kernels!(@each $backend: bert_base_equals_the_reference, longest_sequence_equals_the_reference,
                one_id_8192_times_adds_up, a_batch_of_65536_tokens_equals_the_reference,
                a_batch_of_pads_equals_the_reference,
                sixteen_bit_floats_are_near_the_reference, mask_is_philox_bit_for_bit,
                rows_that_lie_apart_give_the_same_bits, two_runs_are_equal_bit_for_bit);
        }
    };
    (@each $backend:ty: $($test:ident),*) => {
        $(
            #[test]
            fn $test() {
                super::$test::<$backend>();
            }
        )*
    };
}

kernels!(
    flex,
    Flex,
    |input: &_| crate::operator::flex::kernel_dtype(Path::Fused, EmbedLayerNormOp::operands::<Flex>(input))
        .is_some(),
    64
);

#[cfg(feature = "_cubecl")]
mod on_cube {
    use super::*;
    use burn_cubecl::CubeBackend;

    kernels!(cube, CubeBackend, crate::operator::embed_layer_norm::cube::takes, 32);

    #[test]
    fn cube_takes_the_nearest_row_for_an_id_out_of_range() {
        ids_out_of_range_take_the_nearest_row(|input| {
            let input = moved::<CubeBackend>(input, FloatDType::F32);
            let (y, _) = <CubeBackend as Kernels>::forward(input.clone());
            run_all::<CubeBackend>(&input, &y)
        });
    }
}
