//! Inputs that are refused, and those that are just right. `tests/backend/errors.rs` has those of every device.

use crate::small_bert::{small_bert, small_layer};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_bert::data::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::{
    BertEmbeddings, BertEmbeddingsInput, Error, PositionEmbeddingType, TokenEmbeddingConfig, cast_module,
};

fn device() -> Device {
    Device::default()
}

fn module() -> BertEmbeddings {
    small_layer().init(&device())
}

fn rows(ids: &[[i64; 3]]) -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(ids, &device()).unwrap()
}

#[test]
fn explicit_positions_are_refused_where_positions_are_relative() {
    for scheme in [PositionEmbeddingType::RelativeKey, PositionEmbeddingType::RelativeKeyQuery] {
        let module = small_layer().with_position_embedding_type(scheme).init(&device());
        module.try_forward(&rows(&[[1, 2, 3]])).unwrap();
        let error =
            module.try_forward(&rows(&[[1, 2, 3]]).with_position_ids(&[[3, 4, 5]]).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "position_ids are given, but {scheme:?} positions are distances between tokens; leave them out"
            )
        );
    }
}

#[test]
fn positions_after_padding_must_fit_too() {
    let module = small_layer()
        .with_pad_token_id(Some(1))
        .with_position_embedding_type(PositionEmbeddingType::AfterPadding)
        .init(&device());
    // Positions start at 2 of 0..=5: four tokens fit, however much padding is between them.
    let fits = [[2, 1, 3, 1, 4, 1, 5, 1], [1; 8]];
    assert!(module.try_forward(&BertEmbeddingsInput::from_rows(&fits, &device()).unwrap()).is_ok());
    let long = [[1, 1, 1, 1, 1], [2, 3, 4, 5, 6]];
    let error = module.try_forward(&BertEmbeddingsInput::from_rows(&long, &device()).unwrap()).unwrap_err();
    assert!(matches!(error, Error::SequenceTooLong { needed: 6, rows: 6, .. }), "{error}");
    // All padding needs no position but the padding row, whatever the past.
    let padding = rows(&[[1, 1, 1]]).with_past_key_values_length(usize::MAX);
    assert!(module.try_forward(&padding).is_ok());
    let embeds = BertEmbeddingsInput::from_embeds(Tensor::zeros([1, 5, 4], &device())).unwrap();
    let error = module.try_forward(&embeds).unwrap_err();
    assert!(matches!(error, Error::SequenceTooLong { needed: 6, rows: 6, .. }), "{error}");
}

#[test]
fn vectors_of_another_dtype_than_the_tables_are_refused() {
    let embeds =
        |dtype| BertEmbeddingsInput::from_embeds(Tensor::ones([1, 2, 4], (&device(), dtype))).unwrap();
    let wide = cast_module(module(), FloatDType::F64).unwrap();
    assert!(wide.try_forward(&embeds(DType::F64)).is_ok());
    let error = wide.try_forward(&embeds(DType::F32)).unwrap_err();
    assert!(matches!(error, Error::DTypeMismatch { found: DType::F32, expected: DType::F64, .. }), "{error}");
}

#[test]
fn an_empty_batch_is_refused() {
    let none: [[i32; 3]; 0] = [];
    let no_tokens: [[i32; 0]; 2] = [[], []];
    for error in [
        BertEmbeddingsInput::from_rows(&none, &device()).unwrap_err(),
        BertEmbeddingsInput::from_rows(&no_tokens, &device()).unwrap_err(),
        BertEmbeddingsInput::from_ids(Tensor::zeros([0, 3], &device())).unwrap_err(),
        BertEmbeddingsInput::from_ids(Tensor::zeros([3, 0], &device())).unwrap_err(),
        BertEmbeddingsInput::from_embeds(Tensor::zeros([0, 3, 4], &device())).unwrap_err(),
        BertEmbeddingsInput::from_embeds(Tensor::zeros([1, 0, 4], &device())).unwrap_err(),
        TokenEmbeddingConfig::new(3, 2)
            .init(&device())
            .try_forward::<1, 2>(Tensor::zeros([0], &device()))
            .unwrap_err(),
    ] {
        assert!(matches!(error, Error::Empty { .. }), "{error}");
    }
}

#[test]
fn unchecked_ids_gives_the_same_values() {
    let tensor = |ids: [i32; 3]| Tensor::<2, Int>::from_data([ids], &device());
    let input = BertEmbeddingsInput::from_ids(tensor([1, 2, 3])).unwrap();
    let input = input.with_token_type_ids(tensor([0, 1, 1])).unwrap();
    let module = module();
    let checked = module.forward(&input);
    let unchecked = module.forward(&input.unchecked_ids());
    unchecked.into_data().assert_eq(&checked.into_data(), true);
}

#[test]
fn ids_of_any_integer_type_are_taken() {
    let device = device();
    for input in [
        BertEmbeddingsInput::from_rows(&[[1u8, 2, 3]], &device),
        BertEmbeddingsInput::from_rows(&[[1u32, 2, 3]], &device),
        BertEmbeddingsInput::from_rows(&[vec![1usize, 2, 3]], &device),
        BertEmbeddingsInput::from_rows(&[&[1i64, 2, 3][..]], &device),
    ] {
        let ids = input.unwrap().input_ids().unwrap().into_data();
        assert_eq!(ids.iter::<i64>().collect::<Vec<_>>(), [1, 2, 3]);
    }
}

#[test]
fn a_padding_mask_of_another_shape_is_refused() {
    let model = small_bert(10, 4).init(&device());
    let padding = Tensor::<2, Bool>::from_data([[false, true]], &device());
    let error = model.try_forward(&rows(&[[1, 2, 3]]), Some(&padding.into())).unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { input: "padding", .. }), "{error}");
}

#[test]
fn the_collator_refuses_what_it_cannot_batch() {
    let collator = MaskedLmCollatorConfig::new(10, 3, 0, vec![0]).init();
    let collate = |examples: &[MaskedLmExample]| collator.collate(examples, 0, &device()).unwrap_err();
    assert!(matches!(collate(&[]), Error::Empty { .. }));
    assert!(matches!(collate(&[MaskedLmExample::new(vec![])]), Error::Empty { .. }));
    let short = MaskedLmExample::new(vec![1, 2]).with_token_type_ids(vec![0]);
    assert!(matches!(collate(&[short]), Error::ShapeMismatch { input: "token_type_ids", .. }));
    let some = [MaskedLmExample::new(vec![1]).with_position_ids(vec![0]), MaskedLmExample::new(vec![1])];
    assert!(matches!(collate(&some), Error::ShapeMismatch { input: "position_ids", .. }));
}

#[test]
fn an_unsigned_id_past_63_bits_is_an_error() {
    let module = module();
    let ids = || {
        let data = TensorData::new(vec![1u64, 2, 3, u64::MAX], [2, 2]);
        Tensor::<2, Int>::from_data(data, (&device(), DType::U64))
    };
    let input = || BertEmbeddingsInput::from_rows(&[[1, 2], [3, 4]], &device()).unwrap();
    for (name, input) in [
        ("input_ids", BertEmbeddingsInput::from_ids(ids()).unwrap()),
        ("token_type_ids", input().with_token_type_ids(ids()).unwrap()),
        ("position_ids", input().with_position_ids(ids()).unwrap()),
    ] {
        let error = module.try_forward(&input).unwrap_err();
        assert!(matches!(error, Error::IdOverflow { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{name}[1][1] does not fit")), "{error}");
    }
    let error = BertEmbeddingsInput::from_rows(&[[u64::MAX]], &device()).unwrap_err();
    assert!(error.to_string().starts_with("input_ids[0][0] does not fit"), "{error}");
    let error = module.word_embeddings.try_forward::<2, 3>(ids()).unwrap_err();
    assert!(error.to_string().starts_with("ids[1][1] does not fit"), "{error}");
}
