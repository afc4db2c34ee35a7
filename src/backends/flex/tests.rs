//! The kernels against the reference, over shapes and inputs drawn at random.

use super::*;
use crate::ops::Operand;
use burn::backend::ops::IntTensorOps;
use burn::backend::tensor::IntTensor;
use burn::tensor::FloatDType;
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Which summand stands in a role, and whether it has a padding row.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Absent,
    Lookup { padding: bool },
    Shared { padding: bool },
    Range,
    Row,
    Values,
}

/// Which ids a lookup gets.
#[derive(Clone, Copy, Debug)]
enum Ids {
    Random,
    All(u32),
}

#[derive(Clone, Debug)]
struct Case {
    shape: [usize; 2],
    hidden: usize,
    vocab: usize,
    kinds: [Kind; 3],
    ids: Ids,
    dropout: f64,
    needs: Needs,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let kind = || {
        prop_oneof![
            Just(Kind::Absent),
            any::<bool>().prop_map(|padding| Kind::Lookup { padding }),
            any::<bool>().prop_map(|padding| Kind::Shared { padding }),
            Just(Kind::Range),
            Just(Kind::Row),
            Just(Kind::Values),
        ]
    };
    (
        (1usize..5, prop::sample::select(vec![1usize, 2, 31, 65, 129])),
        prop::sample::select(vec![(1usize, 30522usize), (3, 30522), (127, 2), (768, 200), (1023, 150)]),
        [kind(), kind(), kind()],
        prop_oneof![3 => Just(Ids::Random), 1 => Just(Ids::All(0)), 1 => Just(Ids::All(1))],
        prop::sample::select(vec![0.0, 0.1, 0.9]),
        any::<Needs>(),
        any::<u64>(),
    )
        .prop_map(|((batch, seq), (hidden, vocab), kinds, ids, dropout, needs, seed)| Case {
            shape: [batch, seq],
            hidden,
            vocab: if vocab == 2 { 2 } else { vocab.max(seq) },
            kinds: kinds.map(|kind| match kind {
                Kind::Range if vocab < seq => Kind::Row,
                kind => kind,
            }),
            ids,
            dropout,
            needs,
            seed,
        })
}

fn float(shape: &[usize], rng: &mut impl Rng) -> FloatTensor<Flex> {
    let values = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0f32)).collect::<Vec<_>>();
    Flex::float_from_data(TensorData::new(values, shape), &Default::default())
}

fn int(values: Vec<i32>, shape: [usize; 2]) -> IntTensor<Flex> {
    Flex::int_from_data(TensorData::new(values, shape), &Default::default())
}

impl Case {
    fn rows(&self, kind: Kind, rng: &mut impl Rng) -> Rows<Flex> {
        let [batch, seq] = self.shape;
        let mut ids = |sequences: usize| {
            let id = |_| match self.ids {
                Ids::Random => rng.random_range(0..self.vocab as i32),
                Ids::All(id) => id as i32,
            };
            int((0..sequences * seq).map(id).collect(), [sequences, seq])
        };
        let (ids, padding) = match kind {
            Kind::Lookup { padding } => (Some(ids(batch)), padding),
            Kind::Shared { padding } => (Some(ids(1)), padding),
            _ => (None, false),
        };
        let mut table = || float(&[self.vocab, self.hidden], rng);
        match (kind, ids) {
            (_, Some(ids)) => Rows::Lookup { table: table(), ids, padding_idx: padding.then_some(0) },
            (Kind::Range, _) => Rows::Range { table: table(), first: self.vocab - seq },
            (Kind::Row, _) => Rows::Row { table: table(), row: 1 },
            (Kind::Values, _) => Rows::Values(float(&[batch, seq, self.hidden], rng)),
            _ => Rows::Absent,
        }
    }

    fn input(&self, rng: &mut impl Rng) -> EmbedLayerNorm<Flex> {
        let [words, token_types, positions] = self.kinds.map(|kind| self.rows(kind, rng));
        let dropout = match self.dropout {
            0.0 => Dropout::Inactive,
            prob => Dropout::Philox { seed: int(vec![1, 70, 7000, 65535], [1, 4]), prob },
        };
        let [gamma, beta] = std::array::from_fn(|_| float(&[self.hidden], rng));
        EmbedLayerNorm {
            shape: self.shape,
            words,
            token_types,
            positions,
            gamma,
            beta,
            epsilon: 1e-3,
            dropout,
        }
    }

    /// Runs the kernel in `dtype` and the reference in f64 on the same numbers.
    fn check(&self, dtype: FloatDType, tolerance: f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let input = self.input(&mut rng);
        let [batch, seq] = self.shape;
        let grad = float(&[batch, seq, self.hidden], &mut rng);

        let exact = cast(&input, FloatDType::F64);
        let (expected, mean, rstd) = reference::with_statistics::<Flex>(exact.clone());
        let exact_grad = Flex::float_cast(grad.clone(), FloatDType::F64);
        let gradients = reference::backward::<Flex>(exact, mean, rstd, exact_grad, self.needs);

        let input = cast(&input, dtype);
        let grad = Flex::float_cast(grad, dtype);
        let (found, mean, rstd) = Flex::embed_layer_norm_with_statistics(input.clone());
        assert_eq!(found.dtype(), DType::from(dtype));
        assert_close("y", &found, &expected, tolerance);
        let alone = Flex::embed_layer_norm(input.clone());
        assert_eq!(numbers(&alone), numbers(&found), "with and without statistics");

        let found = Flex::embed_layer_norm_backward(input, mean, rstd, grad, self.needs);
        assert_eq!(found.len(), 5);
        for ((operand, found), expected) in Operand::ALL.into_iter().zip(found).zip(gradients) {
            assert_eq!(found.is_some(), expected.is_some(), "{operand:?}");
            if let (Some(found), Some(expected)) = (found, expected) {
                assert_close(&format!("gradient of {operand:?}"), &found, &expected, tolerance);
            }
        }
    }
}

fn cast(input: &EmbedLayerNorm<Flex>, dtype: FloatDType) -> EmbedLayerNorm<Flex> {
    let cast = |tensor: &FloatTensor<Flex>| Flex::float_cast(tensor.clone(), dtype);
    let rows = |rows: &Rows<Flex>| match rows.clone() {
        Rows::Absent => Rows::Absent,
        Rows::Lookup { table, ids, padding_idx } => Rows::Lookup { table: cast(&table), ids, padding_idx },
        Rows::Range { table, first } => Rows::Range { table: cast(&table), first },
        Rows::Row { table, row } => Rows::Row { table: cast(&table), row },
        Rows::Values(values) => Rows::Values(cast(&values)),
    };
    EmbedLayerNorm {
        words: rows(&input.words),
        token_types: rows(&input.token_types),
        positions: rows(&input.positions),
        gamma: cast(&input.gamma),
        beta: cast(&input.beta),
        ..input.clone()
    }
}

fn numbers(tensor: &FloatTensor<Flex>) -> Vec<f64> {
    tensor.clone().into_data().iter::<f64>().collect()
}

/// Within `tolerance` of the largest value, and zero where the expected value is.
fn assert_close(what: &str, found: &FloatTensor<Flex>, expected: &FloatTensor<Flex>, tolerance: f64) {
    assert_eq!(found.shape(), expected.shape(), "shape of {what}");
    let expected = numbers(expected);
    let limit = tolerance * expected.iter().fold(1.0f64, |max, x| max.max(x.abs()));
    for (i, (found, expected)) in numbers(found).into_iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= limit, "{what}, value {i}: {found}, not {expected} ± {limit}");
    }
}

/// A few hundred roundings of the largest intermediate value.
const F32: f64 = 3e-5;
const F64: f64 = 1e-13;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn kernel_equals_the_reference_in_f32(case in case()) {
        case.check(FloatDType::F32, F32);
    }

    #[test]
    fn kernel_equals_the_reference_in_f64(case in case()) {
        case.check(FloatDType::F64, F64);
    }
}

/// BERT's layout at full vocabulary.
fn bert(shape: [usize; 2], hidden: usize, ids: Ids) -> Case {
    let kinds = [Kind::Lookup { padding: true }, Kind::Row, Kind::Range];
    Case { shape, hidden, vocab: 30522, kinds, ids, dropout: 0.1, needs: [true; 5], seed: 1 }
}

#[test]
fn bert_base_equals_the_reference() {
    bert([2, 65], 768, Ids::Random).check(FloatDType::F32, F32);
}

#[test]
fn one_id_8192_times_adds_up() {
    bert([16, 512], 16, Ids::All(5)).check(FloatDType::F32, F32);
}

#[test]
fn one_position_8192_times_adds_up() {
    let kinds = [Kind::Values, Kind::Lookup { padding: false }, Kind::Shared { padding: false }];
    let case = bert([8192, 1], 3, Ids::Random);
    Case { kinds, vocab: 2, ..case }.check(FloatDType::F64, F64);
}

/// 16-bit tables hold 16-bit roundings of the numbers; the tolerances are those of the module.
#[test]
fn sixteen_bit_floats_are_near_the_reference() {
    let case = Case { vocab: 50, ..bert([3, 31], 127, Ids::Random) };
    case.check(FloatDType::F16, 1e-2);
    case.check(FloatDType::BF16, 1e-1);
}

#[test]
fn thread_count_changes_no_bit() {
    let case = Case { vocab: 300, ..bert([4, 129], 127, Ids::Random) };
    let mut rng = ChaCha8Rng::seed_from_u64(case.seed);
    let (input, grad) = (case.input(&mut rng), float(&[4, 129, 127], &mut rng));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (y, mean, rstd) = Flex::embed_layer_norm_with_statistics(input.clone());
            let gradients =
                Flex::embed_layer_norm_backward(input.clone(), mean, rstd, grad.clone(), [true; 5]);
            [Some(y)]
                .into_iter()
                .chain(gradients)
                .flatten()
                .map(|tensor| numbers(&tensor))
                .collect::<Vec<_>>()
        })
    };
    let alone = run(1);
    assert_eq!(alone.len(), 6);
    for threads in [2, 3, 8] {
        assert_eq!(run(threads), alone, "{threads} threads");
    }
}

#[test]
#[should_panic(expected = "input_ids[0][1] is 30522, but the table has 30522 rows (valid ids: 0..=30521)")]
fn unchecked_id_out_of_range_panics_and_says_where() {
    let case = bert([1, 2], 3, Ids::All(0));
    let mut input = case.input(&mut ChaCha8Rng::seed_from_u64(0));
    if let Rows::Lookup { ids, .. } = &mut input.words {
        *ids = int(vec![30521, 30522], [1, 2]);
    }
    Flex::embed_layer_norm(input);
}

#[test]
fn reference_takes_the_nearest_row_for_an_id_out_of_range() {
    let case = Case { vocab: 2, dropout: 0.0, ..bert([1, 2], 3, Ids::All(0)) };
    let mut input = case.input(&mut ChaCha8Rng::seed_from_u64(0));
    let mut run = |values| {
        if let Rows::Lookup { ids, .. } = &mut input.words {
            *ids = int(values, [1, 2]);
        }
        numbers(&reference::embed_layer_norm::<Flex>(input.clone()))
    };
    assert_eq!(run(vec![-7, i32::MAX]), run(vec![0, 1]));
}
