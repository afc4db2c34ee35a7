//! Text to batches, against transformers' tokenizers on the fixtures, and bad input.

use crate::transformers::{Python, real_checkpoint};
use burn::prelude::*;
use burn_bert::text::{BertTokenizer, Encoding};
use burn_bert::training::{MaskedLmCollatorConfig, MaskedLmExample};
use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, Error};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

fn bert() -> BertTokenizer {
    BertTokenizer::from_pretrained(fixture("tokenizer")).unwrap()
}

fn roberta() -> BertTokenizer {
    BertTokenizer::from_pretrained(fixture("roberta_tokenizer")).unwrap()
}

fn cases(folder: &str) -> Value {
    serde_json::from_slice(&fs::read(fixture(folder).join("cases.json")).unwrap()).unwrap()
}

/// The fixture's `vocab.txt` alone in a directory, with other files beside it.
fn vocabulary_with(files: &[(&str, Value)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture("tokenizer/vocab.txt"), dir.path().join("vocab.txt")).unwrap();
    for (name, content) in files {
        fs::write(dir.path().join(name), content.to_string()).unwrap();
    }
    dir
}

/// A fixture's `tokenizer.json`, changed, alone in a directory.
fn changed(folder: &str, change: impl Fn(&mut Value)) -> TempDir {
    let mut tokenizer =
        serde_json::from_slice(&fs::read(fixture(folder).join("tokenizer.json")).unwrap()).unwrap();
    change(&mut tokenizer);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    dir
}

fn number(value: &Value) -> Option<usize> {
    value.as_u64().map(|number| number as usize)
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// The fields of an encoding as the fixture names them.
fn fields(encoding: &Encoding) -> Value {
    let special: Vec<u8> = encoding.special_tokens_mask().iter().map(|&mask| mask.into()).collect();
    json!({
        "input_ids": encoding.input_ids(),
        "token_type_ids": encoding.token_type_ids(),
        "attention_mask": vec![1; encoding.len()],
        "special_tokens_mask": special,
        "word_ids": encoding.word_ids(),
    })
}

const FIELDS: [&str; 5] =
    ["input_ids", "token_type_ids", "attention_mask", "special_tokens_mask", "word_ids"];

#[track_caller]
fn assert_encoding(encoding: &Encoding, case: &Value) {
    let found = fields(encoding);
    for field in FIELDS {
        assert_eq!(found[field], case[field], "{field} of {} up to {}", case["name"], case["max_length"]);
    }
}

/// Compares a tokenizer with all that transformers' makes of the cases of a fixture.
fn assert_equals_transformers(tokenizer: &BertTokenizer, cases: &Value) {
    let special = &cases["special"];
    let ids = [
        ("pad_token_id", tokenizer.pad_token_id()),
        ("cls_token_id", tokenizer.cls_token_id()),
        ("sep_token_id", tokenizer.sep_token_id()),
        ("mask_token_id", tokenizer.mask_token_id()),
    ];
    ids.iter().for_each(|&(name, id)| assert_eq!(special[name], id, "{name}"));
    assert_eq!(special["length"], tokenizer.vocab_size());
    assert_eq!(tokenizer.special_token_ids()[0], tokenizer.pad_token_id());
    let mut all = tokenizer.special_token_ids().to_vec();
    all.sort();
    assert_eq!(special["all_special_ids"], json!(all));

    let limited = |case: &Value| match number(&case["max_length"]) {
        Some(max_length) => tokenizer.clone().with_model_max_length(max_length),
        None => tokenizer.clone(),
    };
    for case in cases["single"].as_array().unwrap() {
        let encoding = limited(case).encode(case["text"].as_str().unwrap()).unwrap();
        assert_encoding(&encoding, case);
        assert_eq!(tokenizer.decode(encoding.input_ids()).unwrap(), case["decoded"].as_str().unwrap());
        if let (Some(tokens), true) = (case["tokens"].as_array(), case["max_length"].is_null()) {
            let inner = &encoding.input_ids()[1..encoding.len() - 1];
            let found: Vec<_> = inner.iter().map(|&id| tokenizer.id_to_token(id).unwrap()).collect();
            assert_eq!(json!(found), json!(tokens), "{}", case["name"]);
            assert!(found.iter().zip(inner).all(|(token, &id)| tokenizer.token_to_id(token) == Some(id)));
        }
    }
    for case in cases["pairs"].as_array().unwrap() {
        let [text, pair] = ["text", "pair"].map(|field| case[field].as_str().unwrap());
        assert_encoding(&limited(case).encode_pair(text, pair).unwrap(), case);
    }
    for case in cases["windows"].as_array().unwrap() {
        let stride = number(&case["stride"]).unwrap();
        let windows = limited(case).encode_windows(case["text"].as_str().unwrap(), stride).unwrap();
        assert_eq!(windows.len(), case["input_ids"].as_array().unwrap().len(), "{}", case["name"]);
        let windows: Vec<_> = windows.iter().map(fields).collect();
        for field in FIELDS {
            let found: Vec<_> = windows.iter().map(|window| &window[field]).collect();
            assert_eq!(json!(found), case[field], "{field} of {} with stride {stride}", case["name"]);
        }
    }
    for case in cases["batches"].as_array().unwrap() {
        assert_batch(limited(case), case);
    }
}

fn assert_batch(tokenizer: BertTokenizer, case: &Value) {
    let device = Device::default();
    let tokenizer = match number(&case["pad_to_multiple_of"]) {
        Some(multiple) => tokenizer.with_pad_to_multiple_of(multiple).unwrap(),
        None => tokenizer,
    };
    let texts: Vec<String> = list(&case["texts"]);
    let encodings = match &case["pairs"] {
        Value::Null => tokenizer.encode_batch(&texts).unwrap(),
        pairs => {
            let pairs: Vec<String> = list(pairs);
            tokenizer.encode_pairs(&texts.into_iter().zip(pairs).collect::<Vec<_>>()).unwrap()
        }
    };
    let batch = tokenizer.batch(&encodings, &device).unwrap();
    let ids: Vec<Vec<u32>> = list(&case["input_ids"]);
    let [rows, seq] = batch.input.dims();
    assert_eq!([rows, seq], [ids.len(), ids[0].len()], "{}", case["name"]);
    let found: Vec<u32> = batch.input.input_ids().unwrap().into_data().iter().collect();
    assert_eq!(found, ids.concat(), "{}", case["name"]);

    let attention: Vec<Vec<u8>> = list(&case["attention_mask"]);
    let expected: Vec<bool> = attention.concat().into_iter().map(|attend| attend == 0).collect();
    match batch.padding {
        Some(padding) => assert_eq!(padding.rows().flatten().copied().collect::<Vec<_>>(), expected),
        None => assert!(!expected.contains(&true), "{} is padded", case["name"]),
    }

    // What the layer makes of it shows the token types.
    let types: Vec<Vec<u32>> = list(&case["token_type_ids"]);
    let expected =
        BertEmbeddingsInput::from_rows(&ids, &device).unwrap().with_token_type_ids(&types).unwrap();
    let config = BertEmbeddingsConfig::new()
        .with_vocab_size(tokenizer.vocab_size())
        .with_hidden_size(4)
        .with_max_position_embeddings(128);
    let embeddings = config.init(&device);
    let found = embeddings.forward(&batch.input).into_data();
    found.assert_eq(&embeddings.forward(&expected).into_data(), true);
}

#[test]
fn tokenizer_json_of_bert_equals_transformers() {
    assert_equals_transformers(&bert(), &cases("tokenizer"));
}

#[test]
fn vocab_txt_of_bert_equals_transformers() {
    let cases = cases("tokenizer");
    assert_equals_transformers(&BertTokenizer::from_pretrained(vocabulary_with(&[])).unwrap(), &cases);
    // The file itself, beside which tokenizer.json lies.
    let file = BertTokenizer::from_pretrained(fixture("tokenizer/vocab.txt")).unwrap();
    assert_equals_transformers(&file, &cases);
}

#[test]
fn tokenizer_json_of_roberta_equals_transformers() {
    let cases = cases("roberta_tokenizer");
    assert_eq!(roberta().model_max_length(), Some(512));
    assert_equals_transformers(&roberta(), &cases);
    // Without a config beside it, special tokens go by their usual names.
    let alone = changed("roberta_tokenizer", |_| {});
    assert_equals_transformers(&BertTokenizer::from_pretrained(alone).unwrap(), &cases);
}

#[test]
fn settings_of_tokenizer_config_equal_transformers() {
    for variant in cases("tokenizer")["variants"].as_array().unwrap() {
        let texts: Vec<String> = list(&variant["texts"]);
        let dir = vocabulary_with(&[("tokenizer_config.json", variant["settings"].clone())]);
        let check = |path: &Path| {
            let tokenizer = BertTokenizer::from_pretrained(path).unwrap();
            let encodings = tokenizer.encode_batch(&texts).unwrap();
            let found: Vec<_> = encodings.iter().map(Encoding::input_ids).collect();
            assert_eq!(json!(found), variant["input_ids"], "{}", variant["name"]);
        };
        check(dir.path());
        // They overrule the normaliser of a tokenizer.json too.
        fs::copy(fixture("tokenizer/tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
        check(dir.path());
    }
}

#[test]
fn a_null_for_accents_overrules_the_normaliser_of_the_file() {
    let dir = changed("tokenizer", |tokenizer| tokenizer["normalizer"]["strip_accents"] = json!(false));
    let encode = || BertTokenizer::from_pretrained(dir.path()).unwrap().encode("café").unwrap();
    assert_ne!(encode(), bert().encode("café").unwrap());
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"strip_accents": null}"#).unwrap();
    assert_eq!(encode(), bert().encode("café").unwrap());
}

#[test]
fn special_tokens_are_found_by_the_names_that_the_files_give_them() {
    let renamed =
        |from: &str, to: &str| fs::read_to_string(fixture("tokenizer/vocab.txt")).unwrap().replace(from, to);
    let dir = vocabulary_with(&[]);
    fs::write(dir.path().join("vocab.txt"), renamed("[MASK]", "<hide>").replace("[PAD]", "<fill>")).unwrap();
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::MissingToken { token: "pad_token", .. }), "{error:?}");

    let as_text = json!({"mask_token": "<hide>", "pad_token": "<fill>"});
    let in_full =
        json!({"mask_token": {"content": "<hide>", "lstrip": false}, "pad_token": {"content": "<fill>"}});
    for name in ["tokenizer_config.json", "special_tokens_map.json"] {
        for content in [&as_text, &in_full] {
            fs::write(dir.path().join(name), content.to_string()).unwrap();
            let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
            assert_eq!((tokenizer.mask_token_id(), tokenizer.pad_token_id()), (8, 0));
            // In a text it is one token.
            assert_eq!(tokenizer.encode("<hide>").unwrap().input_ids(), [6, 8, 7]);
            fs::remove_file(dir.path().join(name)).unwrap();
        }
    }
}

#[test]
fn special_tokens_without_a_role_are_not_split_and_not_hidden() {
    let config =
        json!({"additional_special_tokens": ["[unused1]"], "extra_special_tokens": {"x": "[unused2]"}});
    let dir = vocabulary_with(&[("tokenizer_config.json", config)]);
    let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
    assert_eq!(tokenizer.special_token_ids(), [0, 2, 3, 5, 6, 7, 8]);
    assert_eq!(tokenizer.encode("[unused1]").unwrap().input_ids(), [6, 2, 7]);
}

#[test]
fn a_file_that_names_no_special_tokens_gets_those_of_its_vocabulary() {
    let bare = changed("tokenizer", |tokenizer| {
        tokenizer["added_tokens"] = json!([]);
        tokenizer["post_processor"] = Value::Null;
    });
    assert_equals_transformers(&BertTokenizer::from_pretrained(bare).unwrap(), &cases("tokenizer"));
}

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
fn tokens_added_to_a_vocabulary_keep_their_ids() {
    let decoder = json!({
        "8": {"content": "[MASK]", "special": true},
        "486": {"content": "[speaker]", "special": true},
        "487": {"content": "zebra", "special": false, "normalized": true},
    });
    let files = [
        ("tokenizer_config.json", json!({"added_tokens_decoder": decoder})),
        ("added_tokens.json", json!({"[speaker]": 486, "zebra": 487})),
    ];
    for file in files {
        let dir = vocabulary_with(std::slice::from_ref(&file));
        let tokenizer = BertTokenizer::from_pretrained(dir.path()).unwrap();
        assert_eq!(tokenizer.vocab_size(), 488);
        assert_eq!(tokenizer.encode("[speaker] the Zebra").unwrap().input_ids(), [6, 486, 192, 487, 7]);
        let is_special = file.0 == "tokenizer_config.json";
        assert_eq!(tokenizer.special_token_ids().contains(&486), is_special);
    }

    let dir = vocabulary_with(&[("added_tokens.json", json!({"zebra": 500}))]);
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::CorruptTokenizer { .. }), "{error:?}");
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("zebra is an added token of id 500"), "{cause}");
}

#[test]
fn a_vocabulary_of_windows_with_a_byte_order_mark_is_read() {
    let dir = vocabulary_with(&[]);
    let path = dir.path().join("vocab.txt");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("\u{feff}{}", text.replace('\n', "\r\n"))).unwrap();
    assert_equals_transformers(&BertTokenizer::from_pretrained(path).unwrap(), &cases("tokenizer"));
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

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let config = BertEmbeddingsConfig::new().with_vocab_size(485);
    let error = bert().for_model(&config).unwrap_err();
    assert!(matches!(error, Error::VocabularyTooLarge { tokenizer: 486, model: 485 }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("486 tokens") && message.contains("485 rows"), "{message}");
    assert!(bert().check_vocabulary(486).is_ok());
    assert!(bert().check_vocabulary(485).is_err());

    // RoBERTa's positions count from the padding id.
    let error = bert().for_model(&BertEmbeddingsConfig::roberta_base()).unwrap_err();
    assert!(matches!(&error, Error::Config { field: "pad_token_id", .. }), "{error:?}");
}

#[test]
fn a_vocabulary_with_gaps_counts_up_to_its_largest_id() {
    let dir = changed("tokenizer", |tokenizer| tokenizer["model"]["vocab"]["cat"] = json!(999));
    assert_eq!(BertTokenizer::from_pretrained(dir).unwrap().vocab_size(), 1000);
}

#[test]
fn a_directory_without_a_tokenizer_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::NoTokenizer { .. }), "{error:?}");
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    for name in ["missing/tokenizer.json", "missing"] {
        let error = BertTokenizer::from_pretrained(dir.path().join(name)).unwrap_err();
        assert!(matches!(&error, Error::Io { .. }), "{error:?}");
    }
}

#[test]
fn files_that_do_not_parse_are_errors_with_their_cause() {
    use std::error::Error as _;
    let truncated = fs::read(fixture("tokenizer/tokenizer.json")).unwrap();
    let contents: [&[u8]; 6] = [b"", b"{", b"[]", b"{\"model\": {}}", &truncated[..2000], b"\xff\xfe"];
    for content in contents {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tokenizer.json"), content).unwrap();
        let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
        assert!(matches!(&error, Error::CorruptTokenizer { .. }), "{error:?}");
        assert!(error.source().is_some() && error.to_string().contains("tokenizer.json"), "{error}");
    }
    for name in ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"] {
        for content in [json!([1]), json!({"mask_token": 3, "zebra": "500"}), json!("")] {
            let dir = vocabulary_with(&[(name, content)]);
            let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
            assert!(matches!(&error, Error::CorruptTokenizer { .. }), "{error:?}");
            assert!(error.source().is_some() && error.to_string().contains(name), "{error}");
        }
    }
}

#[test]
fn every_special_token_that_is_missing_is_named() {
    for (token, name) in [
        ("pad_token", "[PAD]"),
        ("unk_token", "[UNK]"),
        ("cls_token", "[CLS]"),
        ("sep_token", "[SEP]"),
        ("mask_token", "[MASK]"),
    ] {
        let dir = vocabulary_with(&[]);
        let path = dir.path().join("vocab.txt");
        let text = fs::read_to_string(&path).unwrap().replace(name, "[other]");
        fs::write(&path, text).unwrap();
        let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
        let Error::MissingToken { token: found, looked_for, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*found, token);
        assert!(looked_for.contains(&name.to_string()));
        let message = error.to_string();
        assert!(message.contains(token) && message.contains("tokenizer_config.json"), "{message}");
    }

    // The unknown token of a tokenizer.json is the model's own.
    let dir = changed("tokenizer", |tokenizer| tokenizer["model"]["unk_token"] = json!("[NEW]"));
    let error = BertTokenizer::from_pretrained(dir).unwrap_err();
    assert!(matches!(&error, Error::MissingToken { token: "unk_token", .. }), "{error:?}");

    // A name that the vocabulary does not have is an error although the usual one is there.
    let dir = vocabulary_with(&[("tokenizer_config.json", json!({"mask_token": "<mask>"}))]);
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::MissingToken { token: "mask_token", .. }), "{error:?}");
}

#[test]
fn a_vocabulary_that_is_not_utf8_is_an_error() {
    let dir = vocabulary_with(&[]);
    fs::write(dir.path().join("vocab.txt"), b"[PAD]\n[UNK]\ncaf\xe9\n").unwrap();
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::NotUtf8 { line: 3, offset: 15, .. }), "{error:?}");
}

#[test]
fn a_limit_below_the_special_tokens_is_an_error() {
    let two = bert().with_model_max_length(2);
    assert_eq!(two.encode("the cat").unwrap().input_ids(), [6, 7]);
    let error = two.encode_pair("the", "cat").unwrap_err();
    assert!(matches!(error, Error::MaxLengthTooSmall { max_length: 2, special_tokens: 3 }), "{error:?}");
    let one = bert().with_model_max_length(1);
    assert!(matches!(one.encode("").unwrap_err(), Error::MaxLengthTooSmall { special_tokens: 2, .. }));
    assert!(matches!(one.encode_batch(&["a", "b"]).unwrap_err(), Error::MaxLengthTooSmall { .. }));
    assert!(matches!(one.encode_windows("a", 0).unwrap_err(), Error::MaxLengthTooSmall { .. }));
    let four = roberta().with_model_max_length(3).encode_pair("a", "b").unwrap_err();
    assert!(matches!(four, Error::MaxLengthTooSmall { special_tokens: 4, .. }), "{four:?}");
}

#[test]
fn a_stride_that_windows_cannot_hold_is_an_error() {
    let tokenizer = bert().with_model_max_length(8);
    assert!(tokenizer.encode_windows("cat", 5).is_ok());
    for stride in [6, 7, 8, usize::MAX] {
        let error = tokenizer.encode_windows("cat", stride).unwrap_err();
        assert!(matches!(error, Error::StrideTooLarge { room: 6, .. }), "{error:?}");
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
fn texts_become_examples_of_which_whole_words_are_hidden() {
    let tokenizer = bert().with_pad_to_multiple_of(8).unwrap();
    let config = MaskedLmCollatorConfig::for_tokenizer(&tokenizer);
    assert_eq!((config.vocab_size, config.mask_token_id), (486, 8));
    assert_eq!(config.special_token_ids, [0, 5, 6, 7, 8]);
    assert_eq!(config.pad_to_multiple_of, Some(8));

    let encoding = tokenizer.encode_pair("unthinkable playing", "catless [MASK] dogs. \u{1F389}").unwrap();
    let example = MaskedLmExample::from(encoding.clone());
    assert_eq!(example.input_ids(), encoding.input_ids());
    assert_eq!(example.token_type_ids(), Some(encoding.token_type_ids()));
    assert_eq!(example.word_ids(), Some(encoding.word_ids()));

    let config = config.with_whole_word_masking(true).with_mlm_probability(1.0);
    let collator = config.with_mask_replace_prob(1.0).with_random_replace_prob(0.0).init();
    let batch = collator.collate(&[example], 1, &Device::default()).unwrap();
    let special = |id: &u32| tokenizer.special_token_ids().contains(id);
    let words: Vec<u32> = encoding.input_ids().iter().copied().filter(|id| !special(id)).collect();
    assert_eq!(batch.labels().unwrap().into_data().iter::<u32>().collect::<Vec<_>>(), words);
    let hidden: Vec<u32> = batch.input.input_ids().unwrap().into_data().iter().collect();
    let mut expected: Vec<u32> =
        encoding.input_ids().iter().map(|id| if special(id) { *id } else { 8 }).collect();
    assert!(expected.contains(&5), "an unknown word is nothing to guess");
    expected.resize(expected.len().next_multiple_of(8), 0);
    assert_eq!(hidden, expected);
}

/// The texts of the fixtures, the README, and every assigned character of Unicode inside and beside a word.
fn texts_of_all_kinds() -> Vec<String> {
    let mut texts = Vec::new();
    for folder in ["tokenizer", "roberta_tokenizer"] {
        let cases = cases(folder);
        let single = cases["single"].as_array().unwrap().iter();
        texts.extend(single.map(|case| case["text"].as_str().unwrap().to_string()));
    }
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    texts.extend(readme.split("\n\n").map(str::to_string));
    // Of the planes from 4 on only the tags of plane 14 are assigned, and private use.
    let characters: Vec<char> = ('\0'..'\u{40000}').chain('\u{E0000}'..'\u{E0200}').collect();
    texts.extend(characters.chunks(16).map(|chunk| chunk.iter().map(|c| format!("a{c}b {c} ")).collect()));
    texts
}

/// The real thing: the tokenizer of the checkpoint that `BURN_BERT_CHECKPOINT` names, by the transformers of the
/// interpreter that `BURN_BERT_PYTHON` names.
#[test]
#[ignore = "needs Python with transformers and a checkpoint: BURN_BERT_PYTHON, BURN_BERT_CHECKPOINT"]
fn the_tokenizer_of_a_real_checkpoint_equals_transformers_on_every_character() {
    let (python, model) = (Python::named(), real_checkpoint());
    let folder = tempfile::tempdir().unwrap();
    let texts = texts_of_all_kinds();
    fs::write(folder.path().join("texts.json"), json!(texts).to_string()).unwrap();
    let input = fs::File::open(folder.path().join("texts.json")).unwrap();
    let expected: Value =
        serde_json::from_slice(&python.run("check_tokenizer.py", &[&model], input)).unwrap();

    let mut files = vec![model.clone()];
    files.extend([model.join("vocab.txt")].into_iter().filter(|path| path.is_file()));
    for path in files {
        let tokenizer = BertTokenizer::from_pretrained(&path).unwrap().with_model_max_length(usize::MAX);
        let mut special = tokenizer.special_token_ids().to_vec();
        special.sort();
        assert_eq!(json!(special), expected["special"]);
        let short = tokenizer.clone().with_model_max_length(32);
        let mut tokens = 0;
        for (i, (text, case)) in texts.iter().zip(expected["texts"].as_array().unwrap()).enumerate() {
            let whole = tokenizer.encode(text).unwrap();
            assert_eq!(json!(whole.input_ids()), case["whole"], "{text:?}");
            let pair = short.encode_pair(text, &texts[(i + 1) % texts.len()]).unwrap();
            assert_eq!(json!(pair.input_ids()), case["pair"], "{text:?}");
            assert_eq!(json!(short.encode(text).unwrap().input_ids()), case["cut"], "{text:?}");
            let windows = short.encode_windows(text, 8).unwrap();
            let windows: Vec<_> = windows.iter().map(Encoding::input_ids).collect();
            assert_eq!(json!(windows), case["windows"], "{text:?}");
            tokens += whole.len();
        }
        println!("{}: {} texts, {tokens} tokens equal", path.display(), texts.len());
    }
}
