//! Tokenizers of every class of transformers, with and without a `tokenizer.json`.

use super::fixture;
use crate::prelude::*;
use crate::transformers::Python;
use std::fs::File;
use std::process::Stdio;

const CLASSES: [&str; 7] = ["bert", "mpnet", "roberta", "xlm_roberta", "camembert", "deberta_v2", "albert"];

/// The files of a repository: those of the class, with or without the `tokenizer.json`, and those of a variant.
fn repository(class: &Path, case: &Value) -> TempDir {
    let dir = tempdir().unwrap();
    let is_json = |name: &str| name == "tokenizer.json";
    for entry in fs::read_dir(class).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "config.json"
            || name != "cases.json" && is_json(&name) == is_json(&case["source"].as_str().unwrap())
        {
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
        let read = BertTokenizer::from_pretrained(saved.path()).unwrap();
        assert_ids(&read.with_model_max_length(usize::MAX), case, texts);
        if let Some(python) = python.filter(|_| case["source"] == "native") {
            fs::write(saved.path().join("texts"), json!(texts).to_string()).unwrap();
            let input = File::open(saved.path().join("texts")).unwrap();
            let found: Value =
                serde_json::from_slice(&python.run("check_tokenizer.py", &[saved.path()], input)).unwrap();
            let found: Vec<_> = found["texts"].as_array().unwrap().iter().map(|ids| &ids["whole"]).collect();
            assert_eq!(json!(found), case["ids"], "{} of {class:?}, saved", case["variant"]);
        }
    }
    tokens
}

#[test]
fn tokenizers_of_every_class_equal_transformers_with_and_without_tokenizer_json() {
    let folder = fixture("tokenizer_classes");
    let texts: Vec<String> = list(&json(folder.join("texts.json"))["texts"]);
    for class in CLASSES {
        check(&folder.join(class), &texts, None);
    }
}

#[test]
#[ignore = "needs Python with transformers and sentencepiece: BURN_BERT_PYTHON"]
fn tokenizers_of_every_class_equal_transformers_on_a_thousand_texts() {
    let (python, folder) = (Python::named(), tempdir().unwrap());
    python.run("make_tokenizer_classes.py", &[folder.path(), Path::new("1000")], Stdio::null());
    let texts: Vec<String> = list(&json(folder.path().join("texts.json"))["texts"]);
    for class in CLASSES {
        let tokens = check(&folder.path().join(class), &texts, Some(&python));
        println!("{class}: {} texts, {tokens} tokens equal", texts.len());
    }
}
