//! A tokenizer's files that are missing or do not parse.

use super::{fixture, vocabulary_with};
use burn_bert::Error;
use burn_bert::text::BertTokenizer;
use serde_json::json;
use std::fs;

#[test]
fn a_directory_without_a_tokenizer_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::File { .. }), "{error:?}");
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
fn a_vocabulary_that_is_not_utf8_is_an_error() {
    let dir = vocabulary_with(&[]);
    fs::write(dir.path().join("vocab.txt"), b"[PAD]\n[UNK]\ncaf\xe9\n").unwrap();
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::NotUtf8 { line: 3, offset: 15, .. }), "{error:?}");
}
