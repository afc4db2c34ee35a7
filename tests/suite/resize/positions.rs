//! The position table.

use super::{HIDDEN, bits, device, extended, positions, roberta, rows};
use crate::checkpoint_files::{all_values, cast, tiny};
use burn::tensor::FloatDType;
use burn_bert::{
    BertEmbeddings, BertEmbeddingsInput, EmbeddingTable, Error, PositionEmbeddingType, PositionFill,
    VocabularyResize,
};

#[test]
fn tiled_positions_repeat_the_table_from_its_first_row() {
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
}

#[test]
fn a_table_of_the_size_asked_for_stays_as_it_is() {
    let mut module = tiny().init(&device());
    let id = |module: &BertEmbeddings| module.position_embeddings.as_ref().unwrap().weight.id;
    let before = (id(&module), positions(&module));
    module.extend_positions(6, PositionFill::Tile).unwrap();
    assert!((id(&module), positions(&module)) == before);
}

#[test]
fn interpolated_positions_stretch_the_table_between_its_ends() {
    let module = tiny().init(&device());
    let before = positions(&module);
    let after = positions(&extended(module, 11, PositionFill::Interpolate));
    for row in 0..11 {
        let found = rows(&after, row..row + 1);
        let below = rows(&before, row / 2..row / 2 + 1);
        if row % 2 == 0 {
            assert_eq!(bits(found), bits(below), "row {row} is old row {}", row / 2);
        } else {
            let above = rows(&before, row / 2 + 1..row / 2 + 2);
            for ((found, below), above) in found.iter().zip(below).zip(above) {
                assert!((found - (below + above) / 2.0).abs() < 1e-8);
            }
        }
    }
}

#[test]
fn interpolated_positions_lie_evenly_between_the_ends_at_any_length() {
    for length in 7..40 {
        let module = cast(tiny().init(&device()), FloatDType::F64);
        let before = positions(&module);
        let after = positions(&extended(module, length, PositionFill::Interpolate));
        for row in 0..length {
            let place = row as f64 * 5.0 / (length - 1) as f64;
            let (below, weight) = (place.floor().min(4.0) as usize, place - place.floor().min(4.0));
            for column in 0..HIDDEN {
                let old = |row: usize| before[row * HIDDEN + column];
                let expected = old(below) * (1.0 - weight) + old(below + 1) * weight;
                let found = after[row * HIDDEN + column];
                assert!((found - expected).abs() < 1e-15, "row {row} of {length}");
            }
        }
    }
}

#[test]
fn the_ends_of_an_interpolated_table_are_bit_equal_at_any_length_and_dtype() {
    for dtype in [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
        for length in [7, 8, 13, 100] {
            let module = cast(tiny().init(&device()), dtype);
            let before = positions(&module);
            let after = positions(&extended(module, length, PositionFill::Interpolate));
            assert_eq!(bits(rows(&after, 0..1)), bits(rows(&before, 0..1)));
            assert_eq!(bits(rows(&after, length - 1..length)), bits(rows(&before, 5..6)));
        }
    }
}

#[test]
fn one_position_fills_any_table() {
    for fill in [PositionFill::Tile, PositionFill::Interpolate] {
        let module = tiny().with_max_position_embeddings(1).init(&device());
        let before = positions(&module);
        let after = positions(&extended(module, 4, fill));
        assert_eq!(after, before.repeat(4));
    }
}

#[test]
fn robertas_reserved_rows_stay_and_the_rest_is_filled_behind_them() {
    // pad 1: rows 0 and 1 are reserved, rows 2..6 are positions 0..4.
    for fill in [PositionFill::Tile, PositionFill::Interpolate] {
        let mut module = roberta(6);
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

#[test]
fn a_table_that_cannot_be_extended_is_refused() {
    let mut relative =
        tiny().with_position_embedding_type(PositionEmbeddingType::RelativeKey).init(&device());
    let error = relative.extend_positions(12, PositionFill::Tile).unwrap_err();
    assert!(error.to_string().contains("RelativeKey"), "{error}");
    let mut module = tiny().init(&device());
    let error = module.extend_positions(5, PositionFill::Tile).unwrap_err();
    assert!(matches!(error, Error::Resize { table: EmbeddingTable::Position, .. }));
    assert!(error.to_string().contains("6 rows"), "{error}");
}

#[test]
fn a_resized_module_is_saved_with_its_new_sizes_and_loaded_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut module = tiny().init(&device());
    module.resize_vocabulary(&VocabularyResize::new(16)).unwrap();
    module.extend_positions(12, PositionFill::Interpolate).unwrap();
    module.save_pretrained(dir.path()).unwrap();
    let loaded = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(loaded.config(), tiny().with_vocab_size(16).with_max_position_embeddings(12));
    assert_eq!(all_values(&loaded), all_values(&module));
}
