//! Position embeddings.

use super::{HIDDEN, bits, device, extended, positions, roberta, rows};
use crate::checkpoint_files::{cast, tiny};
use crate::prelude::*;
use burn_bert::EmbeddingTable;

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
fn interpolated_positions_lie_evenly_between_the_ends_and_rows_that_stay_are_bit_equal() {
    for dtype in [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16] {
        for length in (7..40).chain([100]) {
            let module = cast(tiny().init(&device()), dtype);
            let before = positions(&module);
            let after = positions(&extended(module, length, PositionFill::Interpolate));
            for row in 0..length {
                let place = row as f64 * 5.0 / (length - 1) as f64;
                let (below, weight) = (place.floor().min(4.0) as usize, place - place.floor().min(4.0));
                let old = |row: usize| rows(&before, row..row + 1);
                let found = rows(&after, row..row + 1);
                // At a rational place that is a whole number, whatever its rounding.
                if row * 5 % (length - 1) == 0 {
                    assert_eq!(
                        bits(found),
                        bits(old(row * 5 / (length - 1))),
                        "{dtype:?}, row {row} of {length}"
                    );
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

/// A table of too many rows has a row in the table of errors.
#[test]
fn distances_are_no_table_to_extend() {
    let config = tiny().with_position_embedding_type(PositionEmbeddingType::RelativeKey);
    let error = config.init(&device()).extend_positions(12, PositionFill::Tile).unwrap_err();
    assert!(matches!(error, Error::Resize { table: EmbeddingTable::Position, .. }));
    assert!(error.to_string().contains("RelativeKey"), "{error}");
}
