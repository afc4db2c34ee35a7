//! A tokenizer's files that are missing, do not parse, or would stop the process.

use super::{changed, fixture, vocabulary_with};
use crate::prelude::*;
use std::error::Error as _;

fn refused(path: &Path) -> Error {
    BertTokenizer::from_pretrained(path).map(drop).unwrap_err()
}

/// The cause of a file that does not parse.
#[track_caller]
fn cause(path: &Path, name: &str) -> String {
    let error = refused(path);
    assert!(matches!(&error, Error::CorruptTokenizer { path, .. } if path.ends_with(name)), "{error:?}");
    assert!(error.to_string().contains(name), "{error}");
    error.source().unwrap().to_string()
}

#[test]
fn files_that_do_not_parse_are_errors_with_their_cause() {
    let whole = fs::read(fixture("tokenizer/tokenizer.json")).unwrap();
    let decoder = whole.windows(9).position(|text| text == b"\"decoder\"").unwrap();
    let contents: [&[u8]; 7] =
        [b"", b"{", b"[]", b"{\"model\": {}}", &whole[..2000], &whole[..decoder + 20], b"\xff\xfe"];
    for content in contents {
        let dir = tempdir().unwrap();
        fs::write(dir.path().join("tokenizer.json"), content).unwrap();
        assert!(!cause(dir.path(), "tokenizer.json").contains("panic"));
    }
    for name in ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"] {
        // A list is not taken for the fields in their order.
        for content in [json!([1]), json!([true, true]), json!({"mask_token": 3, "zebra": "5"}), json!("")] {
            cause(vocabulary_with(&[(name, content)]).path(), name);
        }
    }
    let dir = vocabulary_with(&[]);
    fs::write(dir.path().join("vocab.txt"), b"[PAD]\n[UNK]\ncaf\xe9\n").unwrap();
    assert!(matches!(refused(dir.path()), Error::NotUtf8 { line: 3, offset: 15, .. }));
}

/// A normaliser that maps `a` to a text: a trie of a root, a node and its value, which stands at `leaf`.
fn character_map(leaf: u32, replacement: &str) -> Value {
    let mut units = vec![0_u32; 768];
    units[0] = 256 << 10;
    let node = 256 ^ u32::from(b'a');
    units[node as usize] = (node ^ leaf) << 10 | 1 << 8 | u32::from(b'a');
    let trie = units.iter().flat_map(|unit| unit.to_le_bytes());
    let bytes: Vec<u8> =
        (4 * 768_u32).to_le_bytes().into_iter().chain(trie).chain(replacement.bytes()).chain([0]).collect();
    json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(bytes)})
}

/// Without the check, each of these panics at load or at encode, aborts the process, hangs, or takes gigabytes.
#[test]
fn an_entry_that_would_stop_the_process_is_named() {
    let map = |text: &str| json!({"type": "Precompiled", "precompiled_charsmap": text});
    let split = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    let replace =
        |from: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": "a a a a a a a a "});
    let repeated = json!({"type": "Sequence", "normalizers": vec![replace(" "); 7]});
    let no_length = json!({"type": "FixedLength", "length": 0});
    let long = |bytes| json!("x".repeat(bytes));
    let check = |folder, place: &str, entry, expected: &str| {
        let dir = changed(folder, |file| *file.pointer_mut(place).unwrap() = entry);
        let cause = cause(dir.path(), "tokenizer.json");
        assert!(cause.starts_with(expected), "{place}: {cause}");
    };
    let [bert, roberta, albert] = ["tokenizer", "roberta_tokenizer", "families/albert_tokenizer"];
    let (prefix, most_chars) = ("continuing_subword_prefix", "max_input_chars_per_word");
    for (folder, place, entry, problem) in [
        (albert, "vocab/5/0", long(200_000), "vocab[5][0] has 200000 bytes"),
        (roberta, prefix, long(40), "merges[0] is shorter than the prefix x"),
        (bert, most_chars, json!(u64::MAX), "max_input_chars_per_word is above 1000"),
    ] {
        check(folder, &format!("/model/{place}"), entry, &format!("model.{problem}"));
    }
    check(bert, "/added_tokens/0/content", long(40_000), "added_tokens[0].content has 40000 bytes");
    let rows = [
        (map("/////wAA"), ".precompiled_charsmap says that 4294967295 of its 6 bytes are a trie"),
        (map(""), ".precompiled_charsmap is too short for a map"),
        (map("AAAAAA=="), ".precompiled_charsmap says that 0 of its 4 bytes are a trie"),
        (map("?"), ".precompiled_charsmap is not base64"),
        (character_map(1000, "b"), ".precompiled_charsmap has a trie that points outside itself"),
        (
            character_map(512, &"b".repeat(100)),
            ", after those before it, makes texts more than 64 times longer",
        ),
        (repeated, ".normalizers[1], after those before it, makes texts more than 64 times longer"),
        (replace(""), ".pattern is empty"),
    ];
    each(rows, |(normalizer, problem)| {
        check(bert, "/normalizer", normalizer, &format!("normalizer{problem}"))
    });
    for (pre_tokenizer, problem) in [
        (split("x*"), "pattern matches an empty text"),
        (split("(?=[A-Z])"), "pattern matches an empty text"),
        (no_length, "length is 0"),
    ] {
        check(bert, "/pre_tokenizer", pre_tokenizer, &format!("pre_tokenizer.{problem}"));
    }
    for (place, entry, problem) in [
        ("single/0/SpecialToken/id", json!("[NO]"), "single[0] is [NO], which is not one of special_tokens"),
        ("single/1/Sequence/id", json!("B"), "single[1] is text B, which is not there"),
        ("pair/3/Sequence/id", json!("A"), "pair[3] is text A, which is not there, or is there twice"),
        ("special_tokens/[CLS]/tokens", json!([]), "special_tokens.[CLS] has 1 ids and 0 tokens"),
    ] {
        check(bert, &format!("/post_processor/{place}"), entry, &format!("post_processor.{problem}"));
    }

    // Special tokens of the other files reach the same search.
    let dir = vocabulary_with(&[("added_tokens.json", json!({"x".repeat(40_000): 486}))]);
    assert!(cause(dir.path(), "vocab.txt").contains("a token of the files beside it, has 40000 bytes"));
}

#[test]
fn a_character_map_that_holds_is_read() {
    let ids = |normalizer: Value, text: &str| {
        let dir = changed("tokenizer", |file| file["normalizer"] = normalizer.clone());
        BertTokenizer::from_pretrained(dir.path()).unwrap().encode(text).unwrap().input_ids().to_vec()
    };
    assert_eq!(ids(character_map(512, "the"), "a cat"), ids(Value::Null, "the cthet"));
}
