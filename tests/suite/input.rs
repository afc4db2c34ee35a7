//! Every bad input is a typed error whose message says what, where, and the way out.

use crate::small_bert::small_bert;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_bert::data::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::model::{BertForMaskedLm, BertForMaskedLmConfig};
use burn_bert::{
    BertEmbeddings, BertEmbeddingsConfig, BertEmbeddingsInput, EmbeddingTable, Error, PositionEmbeddingType,
    TokenEmbeddingConfig, cast_module,
};

fn device() -> Device {
    Device::default()
}

fn config() -> BertEmbeddingsConfig {
    BertEmbeddingsConfig::new().with_vocab_size(10).with_hidden_size(4).with_max_position_embeddings(6)
}

fn module() -> BertEmbeddings {
    config().init(&device())
}

fn rows(ids: &[[i64; 3]]) -> BertEmbeddingsInput {
    BertEmbeddingsInput::from_rows(ids, &device()).unwrap()
}

fn tensor(ids: &[[i64; 3]]) -> Tensor<2, Int> {
    Tensor::from_data(TensorData::new(ids.concat(), [ids.len(), 3]), &device())
}

/// The same ids from the host and as a tensor must fail alike.
fn both(ids: &[[i64; 3]]) -> [BertEmbeddingsInput; 2] {
    [rows(ids), BertEmbeddingsInput::from_ids(tensor(ids)).unwrap()]
}

#[test]
fn an_id_out_of_range_is_named_with_its_place_and_table() {
    let types = |ids| rows(&[[1, 2, 3]; 2]).with_token_type_ids(ids).unwrap();
    let positions = |ids| rows(&[[1, 2, 3]; 2]).with_position_ids(ids).unwrap();
    for (input, name, id, table, rows) in [
        ("input_ids", 10, EmbeddingTable::Word, 10),
        ("input_ids", -100, EmbeddingTable::Word, 10),
        ("token_type_ids", 2, EmbeddingTable::TokenType, 2),
        ("token_type_ids", -1, EmbeddingTable::TokenType, 2),
        ("position_ids", 6, EmbeddingTable::Position, 6),
        ("position_ids", -1, EmbeddingTable::Position, 6),
    ]
    .into_iter()
    .flat_map(|(name, id, table, rows)| {
        let ids = [[1, 1, 1], [1, 1, id]];
        let inputs = match table {
            EmbeddingTable::Word => both(&ids),
            EmbeddingTable::TokenType => [types(tensor(&ids)), types(tensor(&ids)).to_device(&device())],
            _ => [positions(tensor(&ids)), positions(tensor(&ids)).to_device(&device())],
        };
        inputs.map(|input| (input, name, id, table, rows))
    }) {
        match module().try_forward(&input).unwrap_err() {
            Error::IdOutOfRange { input, index, id: found, table: of, rows: has } => {
                assert_eq!((input, index, found, of, has), (name, vec![1, 2], id, table, rows));
            }
            other => panic!("{other}"),
        }
    }
    let error = module().try_forward(&rows(&[[1, 2, 10]])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "input_ids[0][2] is 10, but the word table has 10 rows (valid ids: 0..=9); \
         is this the tokenizer that the model was made with?"
    );
}

#[test]
fn explicit_positions_are_refused_where_positions_are_relative() {
    for scheme in [PositionEmbeddingType::RelativeKey, PositionEmbeddingType::RelativeKeyQuery] {
        let module = config().with_position_embedding_type(scheme).init(&device());
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
fn the_largest_ids_are_in_range() {
    let input = rows(&[[0, 9, 9]])
        .with_token_type_ids(&[[0, 1, 1]])
        .unwrap()
        .with_position_ids(&[[0, 5, 5]])
        .unwrap();
    assert_eq!(module().try_forward(&input).unwrap().dims(), [1, 3, 4]);
}

#[test]
fn an_id_beyond_32_bits_is_refused_when_it_comes_in() {
    let error = BertEmbeddingsInput::from_rows(&[[1, 1i64 << 40]], &device()).unwrap_err();
    assert!(matches!(error, Error::IdOverflow { input: "input_ids", .. }), "{error}");
    let error = BertEmbeddingsInput::from_rows(&[[u64::MAX]], &device()).unwrap_err();
    assert!(error.to_string().starts_with("input_ids[0][0] does not fit"), "{error}");
}

#[test]
fn a_sequence_with_its_past_must_fit_the_position_table() {
    let input = rows(&[[1, 2, 3]]);
    assert!(module().try_forward(&input.clone().with_past_key_values_length(3)).is_ok());
    let error = module().try_forward(&input.clone().with_past_key_values_length(4)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the sequence needs position 6 (3 tokens from position 4 on), but the position table has 6 rows \
         (valid ids: 0..=5); shorten the sequence or extend max_position_embeddings"
    );
    let error = module().try_forward(&input.with_past_key_values_length(usize::MAX)).unwrap_err();
    assert!(matches!(error, Error::SequenceTooLong { .. }), "{error}");
}

#[test]
fn positions_after_padding_must_fit_too() {
    let module = config()
        .with_pad_token_id(Some(1))
        .with_position_embedding_type(PositionEmbeddingType::AfterPadding)
        .init(&device());
    // Positions start at 2 of 0..=5: four tokens fit, however much padding is between them.
    let fits = [[2, 1, 3, 1, 4, 1, 5, 1], [1; 8]];
    assert!(module.try_forward(&BertEmbeddingsInput::from_rows(&fits, &device()).unwrap()).is_ok());
    let long = [[1, 1, 1, 1, 1], [2, 3, 4, 5, 6]];
    let error = module.try_forward(&BertEmbeddingsInput::from_rows(&long, &device()).unwrap()).unwrap_err();
    assert!(matches!(error, Error::SequenceTooLong { needed: 6, rows: 6, .. }), "{error}");
    assert!(error.to_string().contains("input_ids[1] has 5 tokens that are not padding"), "{error}");
    // All padding needs no position but the padding row, whatever the past.
    let padding = rows(&[[1, 1, 1]]).with_past_key_values_length(usize::MAX);
    assert!(module.try_forward(&padding).is_ok());
    let embeds = BertEmbeddingsInput::from_embeds(Tensor::zeros([1, 5, 4], &device())).unwrap();
    let error = module.try_forward(&embeds).unwrap_err();
    assert!(matches!(error, Error::SequenceTooLong { needed: 6, rows: 6, .. }), "{error}");
}

#[test]
fn shapes_that_do_not_match_are_refused() {
    let input = || rows(&[[1, 2, 3], [1, 2, 3]]);
    for error in [
        input().with_token_type_ids(&[[0, 0, 0]]).unwrap_err(),
        input().with_token_type_ids(tensor(&[[0, 0, 0]])).unwrap_err(),
        input().with_token_type_ids(&[[0, 0], [0, 0]]).unwrap_err(),
    ] {
        assert!(matches!(error, Error::ShapeMismatch { input: "token_type_ids", .. }), "{error}");
    }
    for error in [
        input().with_position_ids(&[[0, 0, 0], [0, 0, 0], [0, 0, 0]]).unwrap_err(),
        input().with_position_ids(tensor(&[[0, 0, 0], [0, 0, 0], [0, 0, 0]])).unwrap_err(),
        input().with_position_ids(&[[0, 0]]).unwrap_err(),
    ] {
        assert!(matches!(error, Error::ShapeMismatch { input: "position_ids", .. }), "{error}");
    }
    let embeds = BertEmbeddingsInput::from_embeds(Tensor::zeros([1, 2, 5], &device())).unwrap();
    let error = module().try_forward(&embeds).unwrap_err();
    assert_eq!(error.to_string(), "inputs_embeds has shape [1, 2, 5], but expected [B, S, 4]");
}

#[test]
fn vectors_of_another_dtype_than_the_tables_are_refused() {
    let embeds =
        |dtype| BertEmbeddingsInput::from_embeds(Tensor::ones([1, 2, 4], (&device(), dtype))).unwrap();
    let error = module().try_forward(&embeds(DType::F64)).unwrap_err();
    assert_eq!(error.to_string(), "inputs_embeds is F64, but the module's tables are F32; cast one of them");
    assert!(matches!(error, Error::DTypeMismatch { input: "inputs_embeds", .. }), "{error}");
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
    let input = BertEmbeddingsInput::from_ids(tensor(&[[1, 2, 3]]))
        .unwrap()
        .with_token_type_ids(tensor(&[[0, 1, 1]]))
        .unwrap();
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
#[should_panic(expected = "input_ids[0][2] is 10, but the word table has 10 rows")]
fn forward_panics_with_the_message_of_the_error() {
    module().forward(&rows(&[[1, 2, 10]]));
}

fn masked_lm() -> BertForMaskedLm {
    BertForMaskedLmConfig::new(small_bert(10, 4)).init(&device())
}

#[test]
fn a_masked_token_outside_the_vocabulary_is_found_although_it_is_masked() {
    // The collator believes in 20 words, the model has 10: id 15 is masked away, but stays as a label.
    let collator =
        MaskedLmCollatorConfig::new(20, 3, 0, vec![0]).with_mlm_probability(1.0).with_mask_replace_prob(1.0);
    let collator = collator.with_random_replace_prob(0.0).init();
    let batch = collator.collate(&[MaskedLmExample::new(vec![5, 15])], 0, &device()).unwrap();
    let model = masked_lm();
    let error = model.try_forward(&batch).unwrap_err();
    assert!(matches!(error, Error::IdOutOfRange { input: "labels", id: 15, .. }), "{error}");
}

#[test]
fn a_padding_mask_of_another_shape_is_refused() {
    let model = masked_lm();
    let padding = Tensor::<2, Bool>::from_data([[false, true]], &device());
    let error = model.bert.try_forward(&rows(&[[1, 2, 3]]), Some(&padding.into())).unwrap_err();
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
    let error = module.word_embeddings.try_forward::<2, 3>(ids()).unwrap_err();
    assert!(error.to_string().starts_with("ids[1][1] does not fit"), "{error}");
}
