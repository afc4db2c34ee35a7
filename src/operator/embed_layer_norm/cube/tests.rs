//! The sorted list of tokens, against a stable sort on the host.

use super::setup::Setup;
use super::sort::{RUN, WAYS};
use crate::operator::dropout::Dropout;
use crate::operator::embed_layer_norm::EmbedLayerNorm;
use crate::operator::embed_layer_norm::rows::Rows;
use crate::operator::path::Path;
use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::try_read_sync;
use burn::tensor::{DType, TensorData};
use burn_cubecl::{CubeBackend, CubeDevice};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// No row is padding.
const NONE: u32 = u32::MAX;

/// Row and token of each place.
fn sorted(ids: &[i32], rows: u32, pad: u32) -> Vec<[u32; 2]> {
    let device = CubeDevice::default();
    let float = |shape: &[usize]| {
        let values = vec![1.0f32; shape.iter().product()];
        CubeBackend::float_from_data(TensorData::new(values, shape), &device)
    };
    let input = EmbedLayerNorm {
        words: Rows::Values(float(&[1, ids.len(), 1])),
        token_types: Rows::Absent,
        positions: Rows::Absent,
        dropout: Dropout::Inactive,
        gamma: float(&[1]),
        beta: float(&[1]),
        shape: [1, ids.len()],
        epsilon: 1e-3,
        path: Path::Fused,
    };
    let setup = Setup::new(&input).expect("an input for the kernels");
    let ids = CubeBackend::int_from_data(TensorData::new(ids.to_vec(), [1, ids.len()]), &device);
    let places = setup.sorted(&CubeBackend::int_cast(ids, burn::tensor::IntDType::I32), rows, pad);
    let places = try_read_sync(CubeBackend::int_into_data(places)).unwrap().unwrap();
    assert_eq!(places.dtype(), DType::U32);
    let places: Vec<u32> = places.iter().collect();
    places.chunks(2).map(|place| [place[0], place[1]]).collect()
}

/// What it has to be: by row and then by token, with tokens that train no row at the end.
fn expected(ids: &[i32], rows: u32, pad: u32) -> Vec<[u32; 2]> {
    let row = |&id: &i32| match id.clamp(0, rows as i32 - 1) as u32 {
        row if row == pad => rows,
        row => row,
    };
    let mut places: Vec<[u32; 2]> = ids.iter().map(row).zip(0..).map(|(row, token)| [row, token]).collect();
    places.sort();
    places
}

#[track_caller]
fn assert_sorted(what: &str, ids: &[i32], rows: u32, pad: u32) {
    let (found, expected) = (sorted(ids, rows, pad), expected(ids, rows, pad));
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    if let Some(place) = wrong {
        panic!("{what}: place {place} is {:?}, not {:?}", found[place], expected[place]);
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

fn random(tokens: usize, rows: u32) -> Vec<i32> {
    let mut rng = ChaCha8Rng::seed_from_u64(tokens as u64);
    (0..tokens).map(|_| rng.random_range(0..rows as i32)).collect()
}

/// One token less and one more than what a cube, a run and each merge takes, and more than 65,535 cubes of one unit.
#[test]
fn any_number_of_tokens_is_sorted() {
    let merged = RUN * WAYS;
    for size in [2, 256, RUN, 2 * RUN, merged, 65_536] {
        for tokens in [size - 1, size, size + 1] {
            assert_sorted(&format!("{tokens} tokens"), &random(tokens, 30_522), 30_522, 0);
        }
    }
}

#[test]
fn more_tokens_than_two_merges_take_are_sorted() {
    let tokens = RUN * WAYS * WAYS + 12_345;
    assert_sorted("rows of XLM-R", &random(tokens, 250_002), 250_002, 1);
    assert_sorted("two rows", &random(tokens, 2), 2, NONE);
}

#[test]
fn tokens_of_one_row_keep_their_order() {
    for tokens in [1, RUN + 1, 65_536] {
        assert_sorted("the first row", &vec![0; tokens], 30_522, NONE);
        assert_sorted("the last row", &vec![30_521; tokens], 30_522, 0);
        assert_sorted("the only row", &vec![0; tokens], 1, NONE);
        assert_sorted("the padding row", &vec![0; tokens], 30_522, 0);
    }
}

#[test]
fn lists_in_order_and_in_reverse_are_sorted() {
    let ascending: Vec<i32> = (0..20_000).collect();
    assert_sorted("ascending", &ascending, 20_000, NONE);
    let descending: Vec<i32> = (0..20_000).rev().collect();
    assert_sorted("descending", &descending, 20_000, 19_999);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Ids out of range take the nearest row; few rows make long runs of equals.
    #[test]
    fn random_lists_are_sorted(
        rows in prop::sample::select(vec![1u32, 2, 3, 1000, 30_522, 250_002]),
        has_padding in any::<bool>(),
        ids in prop_oneof![
            prop::collection::vec(-3i32..6, 1..20_000),
            prop::collection::vec(-3i32..40_000, 1..20_000),
            prop::collection::vec(any::<i32>(), 1..300),
        ],
    ) {
        assert_sorted("random", &ids, rows, if has_padding { 0 } else { NONE });
    }
}
