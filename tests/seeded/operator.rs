//! What the operator promises beyond its arithmetic, on every device that is compiled in: padding, frozen and adapted
//! tables, dropout's mask.

use crate::devices::supported;
use crate::turn;
use burn::module::{Module, ModuleMapper, Param, Quantizer};
use burn::prelude::*;
use burn::tensor::module::{embedding, layer_norm};
use burn::tensor::quantization::{Calibration, QuantScheme, QuantStore};
use burn::tensor::{DType, Distribution};
use burn_bert::functional::{Norm, Rows, embed_layer_norm};
use burn_bert::{BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput};

use crate::tolerance::{Tolerance, assert_close, values};

/// A device, and how exact it is in f32.
struct Case {
    device: Device,
    tolerance: Tolerance,
    /// For sums over tokens.
    sums: Tolerance,
}

fn module(device: &Device) -> BertEmbeddings {
    device.seed(3);
    BertEmbeddingsConfig::new()
        .with_vocab_size(40)
        .with_hidden_size(13)
        .with_max_position_embeddings(16)
        .with_hidden_dropout_prob(0.0)
        .init(device)
}

fn weights(shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn pad_row_gradient_is_exactly_zero_for_any_number_of_pads(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let hidden = 5;
    let table = Tensor::random([7, hidden], Distribution::Default, &device).require_grad();
    for pads in [0, 1, 768, 769, 8192] {
        let ids: Vec<i32> = (0..pads + 3).map(|i| if i < pads { 2 } else { 4 }).collect();
        let shape = [1, ids.len()];
        let ids = Tensor::<1, Int>::from_ints(ids.as_slice(), &device).reshape(shape);
        let words = Rows::Lookup { table: table.clone(), ids, padding_idx: Some(2) };
        let norm = Norm { gamma: Tensor::ones([hidden], &device), beta: None, epsilon: 1e-12 };
        let y = embed_layer_norm(shape, [words, Rows::Absent, Rows::Absent], norm, 0.0);
        let gradients = (y * weights([1, pads + 3, hidden], &device)).sum().backward();
        let gradient = values(table.grad(&gradients).unwrap());
        let (pad, token) = (&gradient[2 * hidden..3 * hidden], &gradient[4 * hidden..5 * hidden]);
        assert!(pad.iter().all(|&value| value == 0.0), "{pads} pads: {pad:?}");
        assert!(token.iter().all(|&value| value != 0.0), "{pads} pads: {token:?}");
    }
}

fn frozen_tables_get_no_gradient_and_change_nobody_elses(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let module = module(&device);
    let input = BertEmbeddingsInput::from_rows(&[[5, 6, 5, 0], [9, 5, 0, 0]], &device).unwrap();
    let weights = weights([2, 4, 13], &device);
    let gradients = |module: &BertEmbeddings| {
        let gradients = (module.forward(&input) * weights.clone()).sum().backward();
        let positions = module.position_embeddings.as_ref().unwrap();
        [&module.word_embeddings, positions, &module.token_type_embeddings]
            .map(|table| table.weight.grad(&gradients).map(values))
    };
    let all = gradients(&module);
    assert!(all.iter().all(Option::is_some));
    let mut frozen = module;
    frozen.word_embeddings = frozen.word_embeddings.freeze();
    let [words, positions, types] = gradients(&frozen);
    assert_eq!(words, None);
    assert_eq!([positions, types], [all[1].clone(), all[2].clone()]);
    frozen.position_embeddings = frozen.position_embeddings.freeze();
    frozen.token_type_embeddings = frozen.token_type_embeddings.freeze();
    assert_eq!(gradients(&frozen), [None, None, None]);
}

fn gradient_flows_through_a_table_that_is_computed(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let base = Tensor::random([6, 4], Distribution::Default, &device);
    let [a, b] = [[6, 2], [2, 4]]
        .map(|shape| Tensor::<2>::random(shape, Distribution::Default, &device).require_grad());
    let ids = Tensor::<2, Int>::from_ints([[1, 0, 5, 1]], &device);
    let gamma = Tensor::<1>::random([4], Distribution::Default, &device);
    let weights = weights([1, 4, 4], &device);
    let gradients = |fused: bool| {
        let table = base.clone() + a.clone().matmul(b.clone()); // as LoRA adapts one
        let y = if fused {
            let words = Rows::Lookup { table, ids: ids.clone(), padding_idx: None };
            let norm = Norm { gamma: gamma.clone(), beta: None, epsilon: 1e-5 };
            embed_layer_norm([1, 4], [words, Rows::Absent, Rows::Absent], norm, 0.0)
        } else {
            layer_norm(embedding(table, ids.clone()), gamma.clone(), None, 1e-5)
        };
        let gradients = (y * weights.clone()).sum().backward();
        [&a, &b].map(|factor| values(factor.grad(&gradients).unwrap()))
    };
    let [fused, composed] = [true, false].map(gradients);
    for (fused, composed) in fused.iter().zip(&composed) {
        assert_close(fused, composed, case.tolerance);
    }
}

fn gradients_are_the_same_under_checkpointing(case: &Case) {
    let _turn = turn();
    let run = |device: Device| {
        let module = module(&device);
        let input = BertEmbeddingsInput::from_rows(&[[5, 6, 7, 0]], &device).unwrap();
        let y = module.forward(&input);
        let gradients = y.clone().mul(y).mul_scalar(3.0).sum().backward();
        values(module.word_embeddings.weight.grad(&gradients).unwrap())
    };
    let plain = run(case.device.clone().autodiff());
    assert!(plain.iter().any(|&value| value != 0.0));
    assert_eq!(plain, run(case.device.clone().autodiff().gradient_checkpointing()));
}

fn scheme(device: &Device) -> QuantScheme {
    let packed = QuantScheme::default();
    if device.supports_dtype(DType::QFloat(packed)) { packed } else { packed.with_store(QuantStore::Native) }
}

fn quantised_tensors_give_what_they_dequantise_to(case: &Case) {
    let _turn = turn();
    let device = case.device.clone();
    let scheme = scheme(&device);
    let random = |rows| Tensor::<2>::random([rows, 32], Distribution::Uniform(-1.0, 1.0), &device);
    let [words, positions] = [random(8), random(4)].map(|table| table.quantize_dynamic(&scheme));
    let [gamma, beta] = [random(1), random(1)].map(|row| row.reshape([32]).quantize_dynamic(&scheme));
    let y = |words, positions, gamma, beta| {
        let lookup = |table, ids, padding_idx| Rows::Lookup { table, ids, padding_idx };
        let words = lookup(words, Tensor::from_ints([[7, 0, 3], [1, 1, 0]], &device), Some(0));
        let positions = lookup(positions, Tensor::from_ints([[2, 0, 3]], &device), None); // for both sequences
        let norm = Norm { gamma, beta: Some(beta), epsilon: 1e-12 };
        values(embed_layer_norm([2, 3], [words, Rows::Absent, positions], norm, 0.0))
    };
    let expected = y(
        words.clone().dequantize(),
        positions.clone().dequantize(),
        gamma.clone().dequantize(),
        beta.clone().dequantize(),
    );
    assert_close(&y(words, positions, gamma, beta), &expected, case.tolerance);
}

fn quantised_module_gives_what_it_dequantises_to(case: &Case) {
    let _turn = turn();
    let device = case.device.clone();
    device.seed(3);
    let config = BertEmbeddingsConfig::new().with_vocab_size(40).with_hidden_size(32);
    let config = config.with_max_position_embeddings(16);
    let mut quantizer = Quantizer::new(Calibration::MinMax, scheme(&device));
    let module = config.init(&device).quantize_weights(&mut quantizer);
    assert!(matches!(module.layer_norm.gamma.val().dtype(), DType::QFloat(_)));
    let dequantized = module.clone().map(&mut Dequantize);
    let ids = [[5, 6, 5, 0], [9, 5, 0, 0]];
    let by_id = BertEmbeddingsInput::from_rows(&ids, &device).unwrap();
    let shared = by_id.clone().with_position_ids(&[[3, 1, 2, 0]]).unwrap();
    let vectors = Tensor::random([2, 4, 32], Distribution::Default, &device);
    for input in [by_id, shared, BertEmbeddingsInput::from_embeds(vectors).unwrap()] {
        let found = values(module.try_forward(&input).unwrap());
        assert_close(&found, &values(dequantized.forward(&input)), case.tolerance);
    }
    let ids = Tensor::<2, Int>::from_ints([[5, 0], [39, 1]], &device);
    let looked_up = |module: &BertEmbeddings| values(module.word_embeddings.forward::<2, 3>(ids.clone()));
    assert_close(&looked_up(&module), &looked_up(&dequantized), case.tolerance);
}

struct Dequantize;

impl ModuleMapper for Dequantize {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(Tensor::dequantize)
    }
}

/// 2049 tokens: a sum that f16 would round.
fn gradients_come_back_in_the_dtype_of_their_parameter(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    for dtype in supported(&device, &[DType::F64, DType::F16, DType::BF16]) {
        for (wide, narrow) in [(DType::F32, dtype), (dtype, DType::F32)] {
            let (tokens, hidden) = (2049, 4);
            let table = Tensor::<2>::random([7, hidden], Distribution::Default, (&device, narrow));
            let table = table.require_grad();
            let [gamma, beta] =
                [1.0, 0.0].map(|value| Tensor::<1>::full([hidden], value, (&device, wide)).require_grad());
            let words = Rows::Lookup {
                table: table.clone(),
                ids: Tensor::zeros([1, tokens], &device),
                padding_idx: None,
            };
            let norm = Norm { gamma: gamma.clone(), beta: Some(beta.clone()), epsilon: 1e-12 };
            let y = embed_layer_norm([1, tokens], [words, Rows::Absent, Rows::Absent], norm, 0.0);
            assert_eq!(y.dtype(), narrow);
            let gradients = y.sum().backward();
            assert_eq!(table.grad(&gradients).unwrap().dtype(), narrow);
            assert_eq!(gamma.grad(&gradients).unwrap().dtype(), wide);
            let beta = beta.grad(&gradients).unwrap();
            assert_eq!(beta.dtype(), wide);
            if wide == DType::F32 {
                assert_eq!(values(beta), [2049.0; 4]);
            }
        }
    }
}

const DROPOUT: f64 = 0.1;

/// γ = 0 and β = 1 lay the mask bare: y is 0 or 1 / (1 − p), and so is β's gradient by token.
struct Masked {
    tokens: usize,
    hidden: usize,
}

impl Masked {
    fn input(&self, device: &Device) -> (Rows, Norm) {
        let values = Tensor::random([1, self.tokens, self.hidden], Distribution::Default, device);
        let gamma = Tensor::zeros([self.hidden], device);
        let beta = Some(Tensor::ones([self.hidden], device).require_grad());
        (Rows::Values(values), Norm { gamma, beta, epsilon: 1e-12 })
    }

    /// Whether each element is kept, [tokens, hidden].
    fn draw(&self, device: &Device) -> Vec<bool> {
        let (rows, norm) = self.input(device);
        let y = embed_layer_norm([1, self.tokens], [rows, Rows::Absent, Rows::Absent], norm, DROPOUT);
        values(y).into_iter().map(|value| value != 0.0).collect()
    }
}

/// How many standard deviations `kept` of `drawn` is from the expected share.
fn sigmas(kept: usize, drawn: usize) -> f64 {
    let expected = drawn as f64 * (1.0 - DROPOUT);
    (kept as f64 - expected) / (drawn as f64 * DROPOUT * (1.0 - DROPOUT)).sqrt()
}

/// How many standard deviations the correlation of two lists of draws is from 0.
fn correlation<'a>(pairs: impl Iterator<Item = (&'a bool, &'a bool)>) -> f64 {
    let centered = |kept: bool| f64::from(u8::from(kept)) - (1.0 - DROPOUT);
    let (sum, count) =
        pairs.fold((0.0, 0.0), |(sum, count), (&a, &b)| (sum + centered(a) * centered(b), count + 1.0));
    sum / (DROPOUT * (1.0 - DROPOUT) * f64::sqrt(count))
}

fn share_of_kept_values_is_right_in_every_call_and_every_column(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    device.seed(11);
    let shape = Masked { tokens: 2000, hidden: 100 };
    let calls: Vec<_> = (0..10).map(|_| shape.draw(&device)).collect();
    let count = |kept: &mut dyn Iterator<Item = &bool>| kept.filter(|&&kept| kept).count();
    for call in &calls {
        let sigmas = sigmas(count(&mut call.iter()), call.len());
        assert!(sigmas.abs() < 4.0, "{sigmas} σ");
    }
    for column in 0..shape.hidden {
        let kept: usize =
            calls.iter().map(|call| count(&mut call.iter().skip(column).step_by(shape.hidden))).sum();
        let sigmas = sigmas(kept, calls.len() * shape.tokens);
        assert!(sigmas.abs() < 4.0, "column {column}: {sigmas} σ");
    }
}

fn neighbouring_calls_rows_and_columns_do_not_correlate(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    device.seed(12);
    let shape = Masked { tokens: 3000, hidden: 100 };
    let [first, second] = [shape.draw(&device), shape.draw(&device)];
    let columns = first.chunks(shape.hidden).flat_map(|row| row.iter().zip(&row[1..]));
    let sixteen_apart = first.chunks(shape.hidden).flat_map(|row| row.iter().zip(&row[16..]));
    for (what, sigmas) in [
        ("calls", correlation(first.iter().zip(&second))),
        ("rows", correlation(first.iter().zip(&first[shape.hidden..]))),
        ("columns", correlation(columns)),
        ("words of one counter", correlation(sixteen_apart)),
    ] {
        assert!(sigmas.abs() < 4.0, "{what}: {sigmas} σ");
    }
}

fn backward_drops_what_the_forward_dropped(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    for (tokens, hidden) in [(1, 1000), (3, 65), (200, 64), (130, 7)] {
        device.seed(13);
        let (rows, norm) = Masked { tokens, hidden }.input(&device);
        let beta = norm.beta.clone().unwrap();
        let y = embed_layer_norm([1, tokens], [rows, Rows::Absent, Rows::Absent], norm, DROPOUT);
        let weights = weights([1, tokens, hidden], &device);
        let expected = values((y.clone() * weights.clone()).inner().sum_dim(1)); // β is 1
        let gradients = (y * weights).sum().backward();
        assert_close(&values(beta.grad(&gradients).unwrap()), &expected, case.sums);
    }
}

fn mask_does_not_depend_on_the_dtype(case: &Case) {
    let _turn = turn();
    let device = case.device.clone().autodiff();
    let draw = |dtype| {
        device.seed(14);
        let shape = [1, 50, 70];
        let rows = Rows::Values(Tensor::ones(shape, (&device, dtype)));
        let norm = Norm {
            gamma: Tensor::zeros([70], (&device, dtype)),
            beta: Some(Tensor::ones([70], (&device, dtype))),
            epsilon: 1e-12,
        };
        let y = embed_layer_norm([1, 50], [rows, Rows::Absent, Rows::Absent], norm, 0.5);
        values(y).into_iter().map(|value| value != 0.0).collect::<Vec<_>>()
    };
    let expected = draw(DType::F32);
    assert!(expected.contains(&true) && expected.contains(&false));
    for dtype in supported(&device, &[DType::F64, DType::F16, DType::BF16]) {
        assert!(draw(dtype) == expected, "{dtype:?}");
    }
}

macro_rules! on {
    ($name:ident, $tolerance:expr, $sums:expr, [$($test:ident,)*]) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    let device = crate::devices::$name();
                    crate::operator::$test(&crate::operator::Case { device, tolerance: $tolerance, sums: $sums });
                }
            )*
        }
    };
}

fn shapes_that_do_not_fit_are_refused(case: &Case) {
    let device = &case.device;
    let refused = |rows: [Rows; 3], beta: usize| {
        let norm = Norm {
            gamma: Tensor::ones([4], device),
            beta: Some(Tensor::zeros([beta], device)),
            epsilon: 1e-12,
        };
        let run = || embed_layer_norm([2, 3], rows, norm, 0.0).into_data();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    let values = |shape: [usize; 3]| Rows::Values(Tensor::ones(shape, device));
    let table = |rows, width| Tensor::<2>::ones([rows, width], device);
    let ids = |shape: [usize; 2]| Tensor::<2, Int>::zeros(shape, device);
    let padded =
        |width, shape, padding_idx| Rows::Lookup { table: table(5, width), ids: ids(shape), padding_idx };
    let lookup = |width, shape| padded(width, shape, None);
    assert!(!refused([values([2, 3, 4]), Rows::Absent, Rows::Absent], 4));
    assert!(refused([values([2, 3, 4]), Rows::Absent, Rows::Absent], 3), "beta");
    for shape in [[3, 2, 4], [1, 3, 4], [4, 3, 4], [2, 3, 5]] {
        assert!(refused([values(shape), Rows::Absent, Rows::Absent], 4), "{shape:?}");
    }
    for (width, shape) in [(4, [2, 2]), (4, [3, 3]), (5, [2, 3])] {
        assert!(refused([lookup(width, shape), Rows::Absent, Rows::Absent], 4), "{width}, {shape:?}");
    }
    assert!(!refused([lookup(4, [1, 3]), Rows::Absent, Rows::Absent], 4));
    let range = |first| Rows::Range { table: table(5, 4), first };
    assert!(!refused([values([2, 3, 4]), Rows::Absent, range(2)], 4));
    assert!(refused([values([2, 3, 4]), Rows::Absent, range(3)], 4), "position 5 of 5");
    let row = |row| Rows::Row { table: table(2, 4), row };
    assert!(refused([values([2, 3, 4]), row(2), Rows::Absent], 4), "token type 2 of 2");
    assert!(!refused([padded(4, [2, 3], Some(4)), Rows::Absent, Rows::Absent], 4));
    assert!(refused([padded(4, [2, 3], Some(5)), Rows::Absent, Rows::Absent], 4), "padding row 5 of 5");
}

fn dropout_outside_its_range_is_refused(case: &Case) {
    for device in [case.device.clone(), case.device.clone().autodiff()] {
        for prob in [-0.1, 1.0, 1.5, f64::NAN, f64::INFINITY] {
            let values = Rows::Values(Tensor::ones([1, 2, 4], &device));
            let norm = Norm { gamma: Tensor::ones([4], &device), beta: None, epsilon: 1e-12 };
            let run = || embed_layer_norm([1, 2], [values, Rows::Absent, Rows::Absent], norm, prob);
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
            let expected = format!("dropout: the probability is {prob}, but must lie in [0, 1)");
            assert_eq!(panic.downcast_ref::<String>(), Some(&expected));
        }
    }
}

macro_rules! every_test {
    ($name:ident, $tolerance:expr, $sums:expr) => {
        on!(
            $name,
            $tolerance,
            $sums,
            [
                pad_row_gradient_is_exactly_zero_for_any_number_of_pads,
                frozen_tables_get_no_gradient_and_change_nobody_elses,
                gradient_flows_through_a_table_that_is_computed,
                gradients_are_the_same_under_checkpointing,
                quantised_tensors_give_what_they_dequantise_to,
                quantised_module_gives_what_it_dequantises_to,
                gradients_come_back_in_the_dtype_of_their_parameter,
                share_of_kept_values_is_right_in_every_call_and_every_column,
                neighbouring_calls_rows_and_columns_do_not_correlate,
                backward_drops_what_the_forward_dropped,
                mask_does_not_depend_on_the_dtype,
                shapes_that_do_not_fit_are_refused,
                dropout_outside_its_range_is_refused,
            ]
        );
    };
}

#[cfg(feature = "flex")]
every_test!(flex, crate::tolerance::F32, crate::tolerance::F32_SUM);
#[cfg(feature = "ndarray")]
every_test!(ndarray, crate::tolerance::F32, crate::tolerance::F32_SUM);
#[cfg(feature = "wgpu")]
every_test!(wgpu, crate::tolerance::GPU, crate::tolerance::GPU);
#[cfg(feature = "cpu")]
every_test!(cpu, crate::tolerance::GPU, crate::tolerance::GPU);
