//! Outputs and gradients equal the loops.

use crate::case::*;
use crate::reference::{Batch, host};
use crate::tolerance;
use burn::prelude::*;
use burn::tensor::DType;
use burn_bert::{BertEmbeddingsInput, PositionEmbeddingType, TokenEmbeddingConfig, cast_module};
use burn_gradcheck::GradCheck;

const SCHEMES: [PositionEmbeddingType; 4] = [
    PositionEmbeddingType::Absolute,
    PositionEmbeddingType::AfterPadding,
    PositionEmbeddingType::RelativeKey,
    PositionEmbeddingType::RelativeKeyQuery,
];

/// Padding at the end, inside and at the start.
fn batch() -> Batch {
    let types = vec![vec![0, 0, 1, 1, 2, 0], vec![2, 1, 0, 0, 0, 0], vec![0, 1, 0, 1, 0, 1]];
    Batch { types: Some(types), ..Batch::of(&[[5, 3, 11, 5, 0, 0], [1, 0, 4, 0, 0, 9], [0, 2, 2, 7, 10, 0]]) }
}

/// All ways to say where a token is.
fn placements(scheme: PositionEmbeddingType) -> Vec<(&'static str, Batch)> {
    let one = vec![vec![19, 0, 7, 7, 3, 1]];
    let each = vec![vec![0, 1, 2, 3, 4, 5], vec![6, 5, 4, 3, 2, 1], vec![9, 9, 9, 0, 0, 19]];
    let mut placements = vec![
        ("default positions", batch()),
        ("without token types", Batch { types: None, ..batch() }),
        ("after 5 past tokens", Batch { past: 5, ..batch() }),
        ("to the last position", Batch { past: 13, ..batch() }),
        ("one row of positions", Batch { positions: Some(one), ..batch() }),
        ("a row of positions each", Batch { positions: Some(each), past: 3, ..batch() }),
    ];
    if !scheme.has_table() {
        // They take none that are given, and there is no table to be left.
        placements.retain(|(_, batch)| batch.positions.is_none());
        placements.push(("after 1000 past tokens", Batch { past: 1000, ..batch() }));
    }
    placements
}

pub fn output_and_gradients_equal_a_loop_in_f64(case: &Case) {
    for scheme in SCHEMES {
        let module = module(&config().with_position_embedding_type(scheme), &case.autodiff());
        for (placement, batch) in placements(scheme) {
            assert_equals_reference(&format!("{scheme:?}, {placement}"), &module, &batch, case.tolerance);
        }
    }
}

pub fn gradients_of_vectors_in_the_place_of_words_equal_a_loop_in_f64(case: &Case) {
    for scheme in SCHEMES {
        let module = module(&config().with_position_embedding_type(scheme), &case.autodiff());
        for (placement, batch) in placements(scheme) {
            assert_embeds_equal_reference(
                &format!("{scheme:?}, {placement}"),
                &module,
                &batch,
                case.tolerance,
            );
        }
    }
}

pub fn odd_and_real_sizes_equal_a_loop_in_f64(case: &Case) {
    for hidden in [2, 3, 127, 768, 1023] {
        let module = module(&config().with_hidden_size(hidden), &case.autodiff());
        assert_equals_reference(&format!("H = {hidden}"), &module, &batch(), case.tolerance);
    }
}

pub fn hidden_size_one_gives_beta_and_no_gradient_to_the_tables(case: &Case) {
    let module = module(&config().with_hidden_size(1), &case.autodiff());
    let output = module.forward(&batch().input(&case.autodiff()));
    let beta = host(module.layer_norm.beta.as_ref().unwrap().val());
    assert!(host(output.clone()).iter().all(|&value| value == beta[0]));
    let (weight, _) = weights(&output);
    let gradients = (output * weight).sum().backward();
    let positions = &module.position_embeddings.as_ref().unwrap().weight;
    for table in
        [&module.word_embeddings.weight, positions, &module.token_type_embeddings.as_ref().unwrap().weight]
    {
        assert!(host(table.grad(&gradients).unwrap()).iter().all(|&g| g == 0.0));
    }
}

pub fn a_module_without_a_padding_row_trains_every_row(case: &Case) {
    let module = module(&config().with_pad_token_id(None), &case.autodiff());
    assert_equals_reference("no padding row", &module, &batch(), case.tolerance);
}

pub fn every_other_dtype_that_the_device_takes_equals_a_loop_in_f64(case: &Case) {
    for dtype in other_dtypes(&case.device) {
        let tolerance = match dtype {
            DType::F64 => tolerance::F64,
            DType::F16 => tolerance::F16,
            _ => tolerance::BF16,
        };
        for scheme in SCHEMES {
            let module = module(&config().with_position_embedding_type(scheme), &case.autodiff());
            let module = cast_module(module, dtype.into()).unwrap();
            let what = format!("{dtype:?}, {scheme:?}");
            assert_equals_reference(&what, &module, &batch(), tolerance);
            assert_embeds_equal_reference(&what, &module, &batch(), tolerance);
        }
    }
}

pub fn gradients_pass_the_finite_difference_check(case: &Case) {
    for scheme in SCHEMES {
        let module = module(&config().with_position_embedding_type(scheme), &case.autodiff());
        let mut check = GradCheck::new().exclude_row("word_embeddings.weight", 0, 0.0);
        if scheme == PositionEmbeddingType::AfterPadding {
            check = check.exclude_row("position_embeddings.weight", 0, 0.0);
        }
        let report = check
            .run(&module, |module, probe| probe.weighted_sum(module.forward(&batch().input(probe.device()))))
            .unwrap();
        report.assert_passes();
        assert_eq!(report.parameters.len(), if scheme.has_table() { 5 } else { 4 }, "{report}");
    }
}

pub fn a_lookup_returns_the_rows_bit_for_bit(case: &Case) {
    let mut table = TokenEmbeddingConfig::new(300, 7).with_padding_idx(Some(4)).init(&case.autodiff());
    let values: Vec<f32> = numbers(2100, 8).iter().map(|&x| x as f32).collect();
    let data = TensorData::new(values.clone(), [300, 7]);
    table.weight = burn::module::Param::from_data(data, &case.autodiff());
    let ids: Vec<i32> = (0..64).map(|i| (i * 89) % 300).chain([4, 0, 299, 4]).collect();
    let found = table.forward::<1, 2>(Tensor::from_ints(ids.as_slice(), &case.autodiff()));
    let found: Vec<f32> = found.into_data().try_into_vec().unwrap();
    let expected = ids.iter().flat_map(|&id| values[id as usize * 7..][..7].iter());
    assert!(found.iter().map(|x| x.to_bits()).eq(expected.map(|x| x.to_bits())));
}

pub fn a_row_that_is_looked_up_8192_times_gets_the_sum_of_its_gradients(case: &Case) {
    const TIMES: usize = 8192;
    const HIDDEN: usize = 8;
    let table = TokenEmbeddingConfig::new(3, HIDDEN).with_padding_idx(Some(0)).init(&case.autodiff());
    let ids: Vec<i32> = (0..TIMES + 2).map(|i| if i < TIMES { 1 } else { 2 }).collect();
    let rows = table.forward::<1, 2>(Tensor::from_ints(ids.as_slice(), &case.autodiff()));
    let upstream = numbers((TIMES + 2) * HIDDEN, 9);
    let data = TensorData::new(upstream.clone(), [TIMES + 2, HIDDEN]);
    let gradients = (rows * Tensor::from_data(data, &case.autodiff())).sum().backward();
    let found = host(table.weight.grad(&gradients).unwrap());
    let mut expected = vec![0.0; 3 * HIDDEN];
    let mut magnitude = vec![0.0; 3 * HIDDEN];
    for (i, &id) in ids.iter().enumerate() {
        for h in 0..HIDDEN {
            expected[id as usize * HIDDEN + h] += upstream[i * HIDDEN + h];
            magnitude[id as usize * HIDDEN + h] += upstream[i * HIDDEN + h].abs();
        }
    }
    // n additions in f32 lose √n·ε/2 of the sum of absolute values, in any order: Higham and Mary 2019.
    let rounding = (TIMES as f64).sqrt() * f64::from(f32::EPSILON) / 2.0;
    let tolerance = tolerance::Tolerance { absolute: 0.0, relative: rounding };
    assert_close_sums("gradient", &found, &expected, &magnitude, tolerance);
}

pub fn the_padding_row_gets_exactly_no_gradient_for_any_number_of_pads(case: &Case) {
    const TOKENS: usize = 8192;
    let config = config().with_max_position_embeddings(514);
    for scheme in [PositionEmbeddingType::Absolute, PositionEmbeddingType::AfterPadding] {
        let module = module(&config.clone().with_position_embedding_type(scheme), &case.autodiff());
        for pads in [0, 1, 768, 769, TOKENS] {
            // 16 sequences of 512, the pads spread over all of them.
            let is_pad = |n: usize| (n * 5003) % TOKENS < pads;
            let id = |n: usize| if is_pad(n) { 0 } else { 1 + (n % 11) as i32 };
            let ids: Vec<Vec<i32>> = (0..16).map(|b| (0..512).map(|s| id(b * 512 + s)).collect()).collect();
            assert_eq!(ids.iter().flatten().filter(|&&id| id == 0).count(), pads);
            let batch = Batch { ids, ..Batch::default() };
            assert_equals_reference(&format!("{scheme:?}, {pads} pads"), &module, &batch, case.tolerance);
        }
    }
}

pub fn ids_of_every_int_dtype_give_the_same_values_and_gradients(case: &Case) {
    // The padding id and the tables are past what 8 bits can count, the ids themselves are not.
    let config = config()
        .with_vocab_size(600)
        .with_max_position_embeddings(320)
        .with_type_vocab_size(300)
        .with_pad_token_id(Some(300))
        .with_position_embedding_type(PositionEmbeddingType::AfterPadding);
    let device = case.autodiff();
    let module = module(&config, &device);
    let table = &module.word_embeddings;
    let ids = |dtype: DType| {
        let ids = TensorData::new(vec![1i64, 44, 127, 5, 44, 0], [2, 3]).convert_dtype(dtype);
        Tensor::<2, Int>::from_data(ids, (&device, dtype))
    };
    let run = |dtype: DType| {
        let input = BertEmbeddingsInput::from_ids(ids(dtype)).unwrap();
        let input = input.with_token_type_ids(ids(dtype)).unwrap();
        let explicit = input.clone().with_position_ids(ids(dtype)).unwrap();
        let mut all = Vec::new();
        for input in [input.clone(), input.unchecked_ids(), explicit] {
            let output = module.try_forward(&input).unwrap();
            let (weight, _) = weights(&output);
            let gradients = (output.clone() * weight).sum().backward();
            all.push(host(output));
            all.push(host(table.weight.grad(&gradients).unwrap()));
            all.push(host(module.position_embeddings.as_ref().unwrap().weight.grad(&gradients).unwrap()));
        }
        for found in [table.forward::<2, 3>(ids(dtype)), table.forward_unchecked::<2, 3>(ids(dtype))] {
            let gradients = found.clone().powi_scalar(3).sum().backward();
            all.push(host(found));
            all.push(host(table.weight.grad(&gradients).unwrap()));
        }
        all
    };
    let expected = run(DType::I32);
    let others = [DType::I8, DType::U8, DType::I16, DType::U16, DType::U32, DType::I64, DType::U64];
    for dtype in others.into_iter().filter(|&dtype| case.device.supports_dtype(dtype)) {
        println!("{dtype:?}");
        // A GPU device may fuse the conversion of the ids with what follows, and rounds otherwise then.
        for (found, expected) in run(dtype).iter().zip(&expected) {
            tolerance::assert_close(found, expected, case.tolerance);
        }
    }
}
