//! Limits, truncation and windows.

use super::{bert, changed, roberta};
use burn::prelude::*;
use burn_bert::text::BertTokenizer;
use burn_bert::{BertEmbeddingsConfig, Error};
use serde_json::json;
use std::fs;

#[test]
fn truncation_and_padding_of_the_file_are_a_limit_and_no_more() {
    let dir = changed("tokenizer", |tokenizer| {
        tokenizer["truncation"] =
            json!({"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 3});
        tokenizer["padding"] = json!({
            "strategy": {"Fixed": 32}, "direction": "Left", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"
        });
    });
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    assert_eq!(tokenizer.model_max_length(), Some(16));
    assert_eq!(tokenizer.encode("the cat").unwrap().len(), 4);
    let long = "cat ".repeat(50);
    assert_eq!(tokenizer.encode(&long).unwrap().len(), 16);
    assert_eq!(tokenizer.encode_windows(&long, 0).unwrap().len(), 4);

    // What tokenizer_config.json says comes first.
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"model_max_length": 20}"#).unwrap();
    assert_eq!(BertTokenizer::from_pretrained(dir.path()).unwrap().model_max_length(), Some(20));
    let endless = r#"{"model_max_length": 1000000000000000019884624838656}"#;
    fs::write(dir.path().join("tokenizer_config.json"), endless).unwrap();
    assert_eq!(BertTokenizer::from_pretrained(dir.path()).unwrap().model_max_length(), None);
}

#[test]
fn a_model_limits_the_length_of_texts() {
    let long = "cat ".repeat(600);
    let absolute = BertEmbeddingsConfig::new().with_max_position_embeddings(64);
    let tokenizer = bert().for_model(&absolute).unwrap();
    assert_eq!(tokenizer.model_max_length(), Some(64));
    assert_eq!(tokenizer.encode(&long).unwrap().len(), 64);
    let more = bert().with_model_max_length(32).for_model(&absolute).unwrap();
    assert_eq!(more.model_max_length(), Some(32), "the smaller one holds");

    let base = BertEmbeddingsConfig::roberta_base();
    assert_eq!(base.max_sequence_length(), Some(512));
    let tokenizer = roberta().with_model_max_length(1000).for_model(&base).unwrap();
    assert_eq!(tokenizer.model_max_length(), Some(512));
    let relative = absolute.with_position_embedding_type(burn_bert::PositionEmbeddingType::RelativeKey);
    assert_eq!(bert().for_model(&relative).unwrap().model_max_length(), None);
}

#[test]
fn the_longest_text_fits_the_model_and_one_token_more_does_not() {
    let device = Device::default();
    let small = [
        (bert(), BertEmbeddingsConfig::new().with_max_position_embeddings(9)),
        (roberta(), BertEmbeddingsConfig::roberta_base().with_max_position_embeddings(9)),
    ];
    for (tokenizer, config) in small {
        let config = config.with_vocab_size(tokenizer.vocab_size()).with_hidden_size(4);
        let embeddings = config.init(&device);
        let length = config.max_sequence_length().unwrap();
        let forward = |length| {
            let tokenizer = tokenizer.clone().with_model_max_length(length);
            let encoding = tokenizer.encode("the cat sat on the mat and the dog sat on the mat").unwrap();
            assert_eq!(encoding.len(), length);
            embeddings.try_forward(&tokenizer.batch(&[encoding], &device).unwrap().input)
        };
        assert!(forward(length).is_ok());
        assert!(matches!(forward(length + 1), Err(Error::SequenceTooLong { .. })));
    }
}

fn is_too_short(error: &Error, special_tokens: usize) -> bool {
    let found = format!("have no room for the {special_tokens} special tokens;");
    matches!(error, Error::Data { problem, .. } if problem.starts_with(&found))
}

#[test]
fn a_limit_below_the_special_tokens_is_an_error() {
    let two = bert().with_model_max_length(2);
    assert_eq!(two.encode("the cat").unwrap().input_ids(), [6, 7]);
    let error = two.encode_pair("the", "cat").unwrap_err();
    assert!(is_too_short(&error, 3), "{error:?}");
    let one = bert().with_model_max_length(1);
    assert!(is_too_short(&one.encode("").unwrap_err(), 2));
    assert!(is_too_short(&one.encode_batch(&["a", "b"]).unwrap_err(), 2));
    assert!(is_too_short(&one.encode_windows("a", 0).unwrap_err(), 2));
    let four = roberta().with_model_max_length(3).encode_pair("a", "b").unwrap_err();
    assert!(is_too_short(&four, 4), "{four:?}");
}

#[test]
fn a_stride_that_windows_cannot_hold_is_an_error() {
    let tokenizer = bert().with_model_max_length(8);
    assert!(tokenizer.encode_windows("cat", 5).is_ok());
    for stride in [6, 7, 8, usize::MAX] {
        let error = tokenizer.encode_windows("cat", stride).unwrap_err();
        assert!(
            matches!(&error, Error::Data { problem, .. } if problem.contains("room for only 6")),
            "{error:?}"
        );
    }
    assert!(bert().with_model_max_length(2).encode_windows("cat", 0).is_err());
    // Without a limit there is one window.
    assert_eq!(bert().encode_windows("cat dog", 9).unwrap(), [bert().encode("cat dog").unwrap()]);
}

#[test]
fn windows_cover_the_text_and_share_what_the_stride_says() {
    let text = "the quick brown fox jumps over the lazy dog and then it went home ".repeat(7);
    let whole = bert().encode(&text).unwrap();
    let whole = &whole.input_ids()[1..whole.len() - 1];
    for (length, stride) in [(3, 0), (4, 1), (10, 7), (33, 5), (500, 20)] {
        let windows = bert().with_model_max_length(length).encode_windows(&text, stride).unwrap();
        let mut covered = Vec::new();
        for window in &windows {
            let inner = &window.input_ids()[1..window.len() - 1];
            let shared = if covered.is_empty() { 0 } else { stride };
            assert!(covered.ends_with(&inner[..shared]) && inner.len() > shared);
            covered.extend(&inner[shared..]);
        }
        assert_eq!(covered, whole);
    }
}

#[test]
fn very_long_pairs_are_cut_without_combining_what_is_cut_off() {
    let long = "cat dog ".repeat(50_000);
    let tokenizer = bert().with_model_max_length(512);
    let encoding = tokenizer.encode_pair(&long, &long).unwrap();
    assert_eq!(encoding.len(), 512);
    assert_eq!(encoding.token_type_ids().iter().filter(|&&kind| kind == 0).count(), 256);
}

#[test]
fn a_batch_without_texts_is_an_error() {
    let error = bert().batch(&[], &Device::default()).unwrap_err();
    assert!(matches!(error, Error::Empty { .. }), "{error:?}");
    let error = bert().with_pad_to_multiple_of(0).unwrap_err();
    assert!(matches!(error, Error::Config { field: "pad_to_multiple_of", .. }), "{error:?}");
}

#[test]
fn the_limit_of_a_model_holds_whatever_is_stated_before_or_after() {
    let config = BertEmbeddingsConfig::new().with_max_position_embeddings(64);
    for (stated, expected) in [(32, 32), (100, 64), (usize::MAX, 64)] {
        let before = bert().with_model_max_length(stated).for_model(&config).unwrap();
        let after = bert().for_model(&config).unwrap().with_model_max_length(stated);
        assert_eq!((before.model_max_length(), after.model_max_length()), (Some(expected), Some(expected)));
    }
}

#[test]
fn a_multiple_that_no_batch_can_be_padded_to_is_refused() {
    for multiple in [0, 65_537, usize::MAX] {
        let error = bert().with_pad_to_multiple_of(multiple).unwrap_err();
        assert!(matches!(error, Error::Config { field: "pad_to_multiple_of", .. }), "{error}");
    }
}
