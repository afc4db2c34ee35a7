//! Growing and shrinking word and position embeddings: what was learned stays, and the bugs of others are not repeated.

use crate::checkpoint_files::{cast, tiny};
use crate::prelude::*;
use burn::module::{ParamId, list_param_ids};
use burn_bert::{EmbeddingTable, NewRows};

const HIDDEN: usize = 4;

fn words(module: &BertEmbeddings) -> Vec<f64> {
    values(module.word_embeddings.weight.val())
}

fn positions(module: &BertEmbeddings) -> Vec<f64> {
    values(module.position_embeddings.as_ref().unwrap().weight.val())
}

fn rows(values: &[f64], range: std::ops::Range<usize>) -> &[f64] {
    &values[range.start * HIDDEN..range.end * HIDDEN]
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn resized(mut module: BertEmbeddings, resize: &VocabularyResize) -> BertEmbeddings {
    module.resize_vocabulary(resize).unwrap();
    module
}

// Word embeddings

#[test]
fn old_rows_are_bit_equal_in_a_table_of_any_size_and_dtype_and_no_other_parameter_changes() {
    for (rows_after, new_rows) in [
        (12, NewRows::Initializer),
        (12, NewRows::MeanCovariance),
        (12, NewRows::DrawnFrom(EmbeddingInitializer::TruncatedNormal { std: 1.0, bound: 2.0 })),
        (20, NewRows::MeanCovariance),
        (9, NewRows::MeanCovariance),
        (5, NewRows::MeanCovariance),
    ] {
        for dtype in [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
            let mut module = cast(tiny().init(&device()), dtype);
            let (before, mut others) = (words(&module), parameters(&module, None));
            let resize = VocabularyResize::new(rows_after).with_new_rows(new_rows.clone());
            module.resize_vocabulary(&resize).unwrap();
            let (after, kept) = (words(&module), rows_after.min(9));
            assert_eq!((after.len(), module.config().vocab_size), (rows_after * HIDDEN, rows_after));
            assert_eq!(bits(rows(&after, 0..kept)), bits(rows(&before, 0..kept)), "{resize:?}, {dtype:?}");
            assert_eq!(module.word_embeddings.weight.val().dtype(), DType::from(dtype));
            let new = rows(&after, kept..rows_after);
            assert!(new.iter().all(|value| value.is_finite() && *value != 0.0), "{resize:?}, {dtype:?}");
            others.insert("word_embeddings.weight".into(), after);
            assert_eq!(parameters(&module, None), others);
        }
    }
}

/// Settings, values and ids.
fn state(module: &BertEmbeddings) -> (BertEmbeddingsConfig, Vec<f64>, Vec<ParamId>) {
    (module.config(), all_values(module), list_param_ids(module))
}

#[test]
fn the_padding_index_survives_and_its_row_gets_no_gradient() {
    let device = device().autodiff();
    let mut module = tiny().with_pad_token_id(Some(3)).init(&device);
    module.resize_vocabulary(&VocabularyResize::new(12)).unwrap();
    assert_eq!(module.word_embeddings.padding_idx(), Some(3));
    let input = BertEmbeddingsInput::from_rows(&[[3, 11, 2, 3]], &device).unwrap();
    let weights = Tensor::<3>::random([1, 4, HIDDEN], burn::tensor::Distribution::Default, &device);
    let gradients = (module.forward(&input) * weights).sum().backward();
    let gradient = values(module.word_embeddings.weight.grad(&gradients).unwrap());
    assert_eq!(rows(&gradient, 3..4), [0.0; HIDDEN]);
    assert!(rows(&gradient, 11..12).iter().any(|value| *value != 0.0), "a new row is trained");
    assert_eq!(rows(&words(&module), 3..4), [0.0; HIDDEN]);
}

#[test]
fn a_quantised_table_and_distances_are_refused() {
    let mut quantizer = quantizer();
    let mut module = tiny().init(&device()).quantize_weights(&mut quantizer);
    let expected = "cannot resize the word embeddings: it is quantised; resize first and quantise afterwards";
    says(module.clone().resize_vocabulary(&VocabularyResize::new(12)), expected);
    let result = module.extend_positions(12, PositionFill::Tile);
    fails!(result, Error::Resize { table: EmbeddingTable::Position, .. });
    // A table of too many rows has a row in the table of errors.
    let config = tiny().with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    let result = config.init(&device()).extend_positions(12, PositionFill::Tile);
    fails!(result, Error::Resize { table: EmbeddingTable::Position, .. }, "RelativeKey");
}

#[test]
fn the_number_of_rows_is_rounded_up_to_a_multiple_and_sizes_that_are_no_table_are_refused() {
    let multiple = |rows, multiple| VocabularyResize::new(rows).with_pad_to_multiple_of(multiple);
    for (padding_row, resize) in [
        (None, VocabularyResize::new(0)),
        (None, multiple(0, 8)),
        (None, multiple(10, 0)),
        (None, multiple(usize::MAX, 8)),
        (Some(3), multiple(3, 1)),
        (Some(3), multiple(1, 3)),
    ] {
        let mut module = tiny().with_pad_token_id(padding_row).init(&device());
        let before = state(&module);
        let error = module.resize_vocabulary(&resize).unwrap_err();
        assert_eq!(state(&module), before, "{resize:?}");
        assert!(matches!(error, Error::Resize { table: EmbeddingTable::Word, .. }), "{resize:?}");
        let cuts_off_padding = error.to_string().contains("padding row 3; keep at least 4");
        assert_eq!(cuts_off_padding, padding_row.is_some(), "{error}");
    }
    let mut module = tiny().with_pad_token_id(Some(3)).init(&device());
    // Nor do the sizes that there are already change anything.
    let before = state(&module);
    module.extend_positions(3, PositionFill::Tile).unwrap_err();
    module.extend_positions(6, PositionFill::Tile).unwrap();
    module.resize_vocabulary(&VocabularyResize::new(9)).unwrap();
    assert_eq!(state(&module), before);
    assert!(module.resize_vocabulary(&VocabularyResize::new(4)).is_ok());
    let wrong = NewRows::DrawnFrom(EmbeddingInitializer::Normal { std: -1.0 });
    let resize = VocabularyResize::new(10).with_new_rows(wrong);
    assert!(matches!(module.resize_vocabulary(&resize), Err(Error::Config { .. })));
    for (rows, multiple, expected) in [(10, 8, 16), (16, 8, 16), (17, 8, 24), (3, 64, 64), (7, 1, 7)] {
        let resize = VocabularyResize::new(rows).with_pad_to_multiple_of(multiple);
        let module = resized(tiny().init(&device()), &resize);
        assert_eq!(module.word_embeddings.num_embeddings(), expected, "{rows} to a multiple of {multiple}");
    }
}

#[test]
fn a_table_that_does_not_fit_the_memory_is_refused_with_the_memory_it_needs() {
    let mut module = tiny().init(&device());
    let before = state(&module);
    for (rows, needed) in [(1 << 50, "32.0 PiB"), (usize::MAX, "512.0 EiB")] {
        for new_rows in [NewRows::Initializer, NewRows::MeanCovariance] {
            let resize = VocabularyResize::new(rows).with_new_rows(new_rows);
            let error = module.resize_vocabulary(&resize).unwrap_err();
            let problem = format!(
                "{rows} rows of 4 values (F32) need {needed} of memory while they are made, more than there is"
            );
            assert_eq!(error.to_string(), format!("cannot resize the word embeddings: {problem}"));
        }
        for fill in [PositionFill::Tile, PositionFill::Interpolate] {
            let result = module.extend_positions(rows, fill);
            fails!(result, Error::Resize { table: EmbeddingTable::Position, .. }, needed);
        }
        assert_eq!(state(&module), before);
    }
}

#[test]
fn new_rows_of_the_initialiser_have_its_spread() {
    let config = BertEmbeddingsConfig::new()
        .with_vocab_size(10)
        .with_hidden_size(64)
        .with_initializer(EmbeddingInitializer::Normal { std: 0.5 });
    let resize = VocabularyResize::new(1010).with_new_rows(NewRows::Initializer);
    let module = resized(config.init(&device()), &resize);
    let new = module.word_embeddings.weight.val().narrow(0, 10, 1000);
    let spread: f64 = new.clone().square().mean().sqrt().into_scalar::<f32>().into();
    // 64,000 draws: the standard deviation is known to 0.5/√128,000 = 0.0014.
    assert!((spread - 0.5).abs() < 0.01, "{spread}");
    assert!(new.mean().into_scalar::<f32>().abs() < 0.01);
}

#[test]
fn new_rows_of_mean_and_covariance_have_the_moments_of_the_old_ones_also_of_equal_ones() {
    // Two columns that move together, one that moves against them, one that never moves.
    let old: Vec<f64> = (0..100).map(|i| f64::from(i) / 10.0).flat_map(|x| [x, 2.0 * x, -x, 7.0]).collect();
    let mut module = cast_module(tiny().with_vocab_size(100).init(&device()), FloatDType::F64).unwrap();
    let table = Tensor::<2>::from_data(TensorData::new(old, [100, 4]), (&device(), DType::F64));
    module.word_embeddings.weight = module.word_embeddings.weight.map(|_| table);
    module.resize_vocabulary(&VocabularyResize::new(20_100)).unwrap();
    let new = values(module.word_embeddings.weight.val().narrow(0, 100, 20_000));

    let mean = [4.95, 9.9, -4.95, 7.0];
    let variance = (0..100).map(|i| (f64::from(i) / 10.0 - 4.95).powi(2)).sum::<f64>() / 100.0;
    let slope = [1.0, 2.0, -1.0, 0.0];
    let deviation = |row: &[f64], column: usize| row[column] - mean[column];
    for a in 0..4 {
        let sum: f64 = new.chunks(4).map(|row| deviation(row, a)).sum();
        assert!((sum / 20_000.0).abs() < 5.0 * (1e-9 * 4.0 * variance / 20_000.0).sqrt() + 1e-14);
        for b in 0..4 {
            let sum: f64 = new.chunks(4).map(|row| deviation(row, a) * deviation(row, b)).sum();
            let expected = 1e-9 * variance * slope[a] * slope[b];
            // 20,000 draws: a variance is known to √(2/20,000) = 1 % of itself.
            assert!((sum / 20_000.0 - expected).abs() < 0.05 * expected.abs() + 1e-18, "{a}, {b}");
        }
    }
    let mut module = tiny().init(&device());
    let table = Tensor::<2>::from_data(TensorData::new(vec![0.5f32; 36], [9, 4]), &device());
    module.word_embeddings.weight = module.word_embeddings.weight.map(|_| table);
    module.resize_vocabulary(&VocabularyResize::new(600)).unwrap();
    assert_eq!(words(&module), vec![0.5; 600 * HIDDEN]);
}

#[test]
fn a_frozen_table_stays_frozen_and_a_trained_one_trained() {
    let resize = VocabularyResize::new(12);
    let mut module = tiny().init(&device().autodiff());
    module.word_embeddings = module.word_embeddings.freeze();
    module.resize_vocabulary(&resize).unwrap();
    assert!(!module.word_embeddings.weight.val().is_require_grad());
    let module = resized(tiny().init(&device().autodiff()), &resize);
    assert!(module.word_embeddings.weight.val().is_require_grad());
    // On a plain device nothing is tracked, but `train` brings it back.
    let module = resized(tiny().init(&device()), &resize).train();
    assert!(module.word_embeddings.weight.val().is_require_grad());
}

// Position embeddings

#[test]
fn tiled_positions_repeat_the_table_from_its_first_row_and_one_fills_any_table() {
    for rows_after in [7, 11, 12, 13, 18, 25] {
        let mut module = tiny().init(&device());
        let before = positions(&module);
        module.extend_positions(rows_after, PositionFill::Tile).unwrap();
        let after = positions(&module);
        assert_eq!(after.len(), rows_after * HIDDEN);
        for row in 0..rows_after {
            let old = row % 6;
            assert_eq!(bits(rows(&after, row..row + 1)), bits(rows(&before, old..old + 1)), "row {row}");
        }
        assert_eq!(module.config().max_position_embeddings, rows_after);
    }
    for fill in [PositionFill::Tile, PositionFill::Interpolate] {
        let mut module = tiny().with_max_position_embeddings(1).init(&device());
        let before = positions(&module);
        module.extend_positions(4, fill).unwrap();
        assert_eq!(positions(&module), before.repeat(4));
    }
}

#[test]
fn interpolated_positions_lie_evenly_between_the_ends_and_rows_that_stay_are_bit_equal() {
    for dtype in [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
        for length in (7..40).chain([100]) {
            let mut module = cast(tiny().init(&device()), dtype);
            let before = positions(&module);
            module.extend_positions(length, PositionFill::Interpolate).unwrap();
            let after = positions(&module);
            for row in 0..length {
                let place = row as f64 * 5.0 / (length - 1) as f64;
                let (below, weight) = (place.floor().min(4.0) as usize, place - place.floor().min(4.0));
                let old = |row: usize| rows(&before, row..row + 1);
                let found = rows(&after, row..row + 1);
                // At a rational place that is a whole number, whatever its rounding.
                if row * 5 % (length - 1) == 0 {
                    assert_eq!(bits(found), bits(old(row * 5 / (length - 1))), "{dtype:?}, row {row}");
                }
                if dtype == FloatDType::F64 {
                    let expected =
                        old(below).iter().zip(old(below + 1)).map(|(a, b)| a * (1.0 - weight) + b * weight);
                    let is_near =
                        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-15);
                    assert!(is_near, "row {row} of {length}");
                }
            }
        }
    }
}

#[test]
fn robertas_reserved_rows_stay_and_the_rest_is_filled_behind_them() {
    // pad 1: rows 0 and 1 are reserved, rows 2..6 are positions 0..4.
    for fill in [PositionFill::Tile, PositionFill::Interpolate] {
        let mut module = tiny()
            .with_family(Family::Roberta)
            .with_pad_token_id(Some(1))
            .with_position_embedding_type(PositionEmbeddingType::AfterPadding)
            .init(&device());
        let before = positions(&module);
        module.extend_positions(10, fill).unwrap();
        let after = positions(&module);
        assert_eq!(bits(rows(&after, 0..2)), bits(rows(&before, 0..2)));
        assert_eq!(rows(&after, 1..2), [0.0; HIDDEN], "the padding row");
        assert_eq!(module.position_embeddings.as_ref().unwrap().padding_idx(), Some(1));
        match fill {
            PositionFill::Tile => {
                assert_eq!(bits(rows(&after, 2..6)), bits(rows(&before, 2..6)));
                assert_eq!(bits(rows(&after, 6..10)), bits(rows(&before, 2..6)));
            }
            PositionFill::Interpolate => {
                assert_eq!(bits(rows(&after, 2..3)), bits(rows(&before, 2..3)));
                assert_eq!(bits(rows(&after, 9..10)), bits(rows(&before, 5..6)));
            }
        }
        // Eight tokens fit now, and not nine.
        let fits = |tokens: usize| {
            let input = BertEmbeddingsInput::from_rows(&[vec![5; tokens]], &device()).unwrap();
            module.try_forward(&input).is_ok()
        };
        assert!(fits(8) && !fits(9));
    }
}
