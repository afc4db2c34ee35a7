//! Tokenizers of every class of transformers, with and without a `tokenizer.json`.

use super::fixture;
use crate::prelude::*;
use crate::transformers::Python;
use std::fs::File;
use std::process::Stdio;

/// The files of a repository: those of the class, with or without the `tokenizer.json`, and those of a variant.
fn repository(class: &Path, case: &Value) -> TempDir {
    let dir = tempdir().unwrap();
    let source = case["source"].as_str().unwrap();
    for entry in fs::read_dir(class).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_read = (name == "tokenizer.json") == (source == "tokenizer.json") && name != "cases.json";
        if name == "config.json" || is_read {
            fs::copy(class.join(&name), dir.path().join(&name)).unwrap();
        }
    }
    for (name, content) in case["files"].as_object().unwrap() {
        fs::write(dir.path().join(name), content.to_string()).unwrap();
    }
    dir
}

#[track_caller]
fn assert_ids(tokenizer: &BertTokenizer, case: &Value, texts: &[String]) {
    let name = format!("{} of {}", case["variant"], case["source"]);
    let special = json!({
        "pad": tokenizer.pad_token_id(),
        "cls": tokenizer.cls_token_id(),
        "sep": tokenizer.sep_token_id(),
        "mask": tokenizer.mask_token_id(),
    });
    if case["variant"] != "as_it_is" {
        assert_eq!(special, case["special"], "{name}");
    }
    let short = tokenizer.clone().with_model_max_length(24);
    for (i, text) in texts.iter().enumerate() {
        let pair = short.encode_pair(text, &texts[(i + 1) % texts.len()]).unwrap();
        assert_eq!(json!(tokenizer.encode(text).unwrap().input_ids()), case["ids"][i], "{name}: {text:?}");
        assert_eq!(json!(short.encode(text).unwrap().input_ids()), case["cut"][i], "{name}: {text:?}");
        assert_eq!(json!(pair.input_ids()), case["pairs"][i], "{name}: {text:?}");
        assert_eq!(json!(pair.token_type_ids()), case["types"][i], "{name}: {text:?}");
    }
}

/// Every variant of a class; returns the number of tokens that were compared.
fn check(class: &Path, texts: &[String], python: Option<&Python>) -> usize {
    let mut tokens = 0;
    for case in json(class.join("cases.json")).as_array().unwrap() {
        let dir = repository(class, case);
        let tokenizer = BertTokenizer::from_pretrained(dir.path());
        let tokenizer =
            tokenizer.unwrap_or_else(|error| panic!("{} of {class:?}: {error:?}", case["variant"]));
        let tokenizer = tokenizer.with_model_max_length(usize::MAX);
        assert_ids(&tokenizer, case, texts);
        tokens +=
            case["ids"].as_array().unwrap().iter().map(|ids| ids.as_array().unwrap().len()).sum::<usize>();

        // What is saved is the same tokenizer, here and in Python.
        let saved = tempdir().unwrap();
        tokenizer.save_pretrained(saved.path()).unwrap();
        fs::copy(dir.path().join("config.json"), saved.path().join("config.json")).unwrap();
        assert!(["tokenizer.json", "vocab.txt"].iter().any(|name| saved.path().join(name).exists()));
        let read = BertTokenizer::from_pretrained(saved.path()).unwrap().with_model_max_length(usize::MAX);
        // CamembertTokenizer takes the unused tokens for special ones of a tokenizer.json only.
        for text in texts.iter().filter(|text| !text.contains("NOTUSED")) {
            assert_eq!(
                read.encode(text).unwrap(),
                tokenizer.encode(text).unwrap(),
                "{} of {class:?}: {text:?}",
                case["variant"]
            );
        }
        let is_common = ["plain", "added_tokens_decoder"].contains(&case["variant"].as_str().unwrap());
        if let Some(python) = python.filter(|_| case["source"] == "native" && is_common) {
            fs::write(saved.path().join("texts"), json!(texts).to_string()).unwrap();
            let input = File::open(saved.path().join("texts")).unwrap();
            let found: Value =
                serde_json::from_slice(&python.run("check_tokenizer.py", &[saved.path()], input)).unwrap();
            for (i, text) in texts.iter().enumerate().filter(|(_, text)| !text.contains("NOTUSED")) {
                assert_eq!(
                    found["texts"][i]["whole"], case["ids"][i],
                    "{} of {class:?}, saved: {text:?}",
                    case["variant"]
                );
            }
        }
    }
    tokens
}

/// The message that refuses a repository with this vocabulary and these files.
fn refusal(vocabulary: &str, files: &[(&str, Value)]) -> String {
    let dir = folder(&[(vocabulary.rsplit('/').next().unwrap(), &fs::read(fixture(vocabulary)).unwrap())]);
    for (name, content) in files {
        fs::write(dir.path().join(name), content.to_string()).unwrap();
    }
    let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}").replace(&format!("{}/", dir.path().display()), "")
}

/// Each of these was read as a WordPiece vocabulary, without a word.
#[test]
fn a_tokenizer_that_needs_other_code_is_refused_by_name() {
    let [config, model] = ["tokenizer_config.json", "config.json"];
    let class = |name: &str| json!({"model_type": "bert", "tokenizer_class": name});
    let kind = |name: &str, kind: &str| json!({"model_type": "bert", name: kind});
    let rows = [
        (model, class("BertJapaneseTokenizer"), "config.json has the tokenizer_class BertJapaneseTokenizer"),
        (
            config,
            class("BertJapaneseTokenizer"),
            "tokenizer_config.json has the tokenizer_class BertJapaneseTokenizer",
        ),
        (
            config,
            kind("word_tokenizer_type", "mecab"),
            "tokenizer_config.json has the word_tokenizer_type mecab",
        ),
        (config, kind("subword_tokenizer_type", "character"), "has the subword_tokenizer_type character"),
        (config, class("KoBertTokenizer"), "tokenizer_config.json has the tokenizer_class KoBertTokenizer"),
        (model, class("PhobertTokenizer"), "config.json has the tokenizer_class PhobertTokenizer"),
        (
            config,
            class("BertweetTokenizer"),
            "tokenizer_config.json has the tokenizer_class BertweetTokenizer",
        ),
        (config, json!({"auto_map": {"AutoTokenizer": ["a.B", null]}}), "names code of its own in auto_map"),
        ("bpe.codes", json!(""), "bpe.codes is of fastBPE"),
    ];
    each(rows, |(file, content, expected)| {
        let found = refusal("tokenizer/vocab.txt", &[(file, content)]);
        assert!(
            found.contains(&format!("{expected}, which is not supported; tokenize in Python")),
            "{found}"
        );
    });
    // Python's classes do not read a tokenizer.json either; others do.
    let found = refusal("tokenizer/tokenizer.json", &[(config, class("PhobertTokenizer"))]);
    assert!(found.contains("has the tokenizer_class PhobertTokenizer"), "{found}");
    for name in ["KoBertTokenizer", "PreTrainedTokenizerFast"] {
        let json = fs::read(fixture("tokenizer/tokenizer.json")).unwrap();
        let japanese = class("BertJapaneseTokenizer").to_string();
        let dir = folder(&[("tokenizer.json", &json), (model, japanese.as_bytes())]);
        fs::write(dir.path().join(config), class(name).to_string()).unwrap();
        BertTokenizer::from_pretrained(dir.path()).unwrap();
    }
}

#[test]
fn a_vocabulary_that_does_not_fit_its_class_is_named() {
    let config = "tokenizer_config.json";
    let class = |name: &str| (config, json!({"tokenizer_class": name}));
    let [roberta, xlm, deberta] =
        ["roberta/vocab.json", "xlm_roberta/sentencepiece.bpe.model", "deberta_v2/spm.model"]
            .map(|name| format!("tokenizer_classes/{name}"));
    let rows = [
        (&xlm, vec![], "has neither tokenizer.json nor vocab.txt"),
        (&xlm, vec![], "or set tokenizer_class in tokenizer_config.json for sentencepiece.bpe.model"),
        (
            &deberta,
            vec![class("XLMRobertaTokenizerFast")],
            "has neither tokenizer.json nor sentencepiece.bpe.model",
        ),
        (
            &roberta,
            vec![class("RobertaTokenizer")],
            "merges.txt is missing, but belongs to the vocab.json beside it",
        ),
        (
            &roberta,
            vec![class("RobertaTokenizer"), ("merges.txt", json!("a b c"))],
            "\"\\\"a b c\\\"\" is not a pair of tokens",
        ),
        (
            &"tokenizer/tokenizer.json".to_string(),
            vec![class("XLMRobertaTokenizer")],
            "tokenizer.json has a WordPiece model, which its tokenizer_class has not",
        ),
    ];
    each(rows, |(vocabulary, files, expected)| {
        let found = refusal(vocabulary, &files);
        assert!(found.contains(expected), "{found}");
    });
}

#[test]
fn a_sentencepiece_model_that_is_not_one_or_cannot_be_computed_is_named() {
    let read = |model: &[u8]| {
        let class = br#"{"tokenizer_class": "AlbertTokenizer"}"#;
        let dir = folder(&[("spiece.model", model), ("tokenizer_config.json", class)]);
        let error = BertTokenizer::from_pretrained(dir.path()).unwrap_err();
        std::error::Error::source(&error).map(ToString::to_string).unwrap_or(error.to_string())
    };
    let piece = |fields: &[u8]| [&[0x0A, fields.len() as u8], fields].concat();
    let unigram = fs::read(fixture("tokenizer_classes/albert/spiece.model")).unwrap();
    for (model, expected) in [
        (&b"\xff\xff"[..], "is not a SentencePiece model, or is cut short"),
        (&unigram[..1001], "is not a SentencePiece model, or is cut short"),
        (&piece(b"\x0a\x01\xff"), "has a piece that is not UTF-8"),
        // trainer_spec.model_type is BPE.
        (&[0x12, 2, 0x18, 2], "has a model of type 2, but only type 1 (unigram) is supported"),
        (&piece(b"").repeat(900_001), "has more than 900000 pieces"),
    ] {
        let found = read(model);
        assert!(found.contains(expected), "{found}");
    }
}

const CLASSES: [&str; 7] = ["bert", "mpnet", "roberta", "xlm_roberta", "camembert", "deberta_v2", "albert"];

#[test]
fn ids_equal_transformers_with_and_without_tokenizer_json() {
    let folder = fixture("tokenizer_classes");
    let texts: Vec<String> = list(&json(folder.join("texts.json"))["texts"]);
    for class in CLASSES {
        check(&folder.join(class), &texts, None);
    }
}

#[test]
#[ignore = "needs Python with transformers and sentencepiece: BURN_BERT_PYTHON; BURN_BERT_TEXTS is how many"]
fn tokenizers_of_every_class_equal_transformers_on_many_texts() {
    let (python, folder) = (Python::named(), tempdir().unwrap());
    let count = std::env::var("BURN_BERT_TEXTS").unwrap_or("60".into());
    python.run("make_tokenizer_classes.py", &[folder.path(), Path::new(&count)], Stdio::null());
    let texts: Vec<String> = list(&json(folder.path().join("texts.json"))["texts"]);
    for class in CLASSES {
        let tokens = check(&folder.path().join(class), &texts, Some(&python));
        println!("{class}: {} texts, {tokens} tokens equal", texts.len());
    }
}
