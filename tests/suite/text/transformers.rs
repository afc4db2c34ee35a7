//! What transformers' tokenizers make of the same texts.

use super::{bert, cases, changed, fixture, vocabulary_with};
use crate::prelude::*;
use crate::transformers::{Python, real_checkpoint};

fn number(value: &Value) -> Option<usize> {
    value.as_u64().map(|number| number as usize)
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
    assert_eq!(special["all_special_ids"], json!(tokenizer.special_token_ids()));

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
    let device = device();
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
fn tokenizers_equal_transformers_whatever_files_they_are_read_from() {
    let check = |folder: &str, path: &Path| {
        println!("{}", path.display());
        let tokenizer = BertTokenizer::from_pretrained(path).unwrap();
        assert_equals_transformers(&tokenizer, &cases(folder));
        tokenizer.model_max_length()
    };
    let [bert, mpnet] = ["tokenizer", "families/mpnet_tokenizer"];
    for folder in [bert, "roberta_tokenizer", mpnet, "families/albert_tokenizer"] {
        assert_eq!(check(folder, &fixture(folder)), (folder != bert).then_some(512));
        // Without a config beside it, special tokens go by their usual names, and ALBERT's types by the post-processor.
        if folder != "families/albert_tokenizer" {
            check(folder, changed(folder, |_| {}).path());
        }
    }
    let without_special_tokens = changed(bert, |tokenizer| {
        tokenizer["added_tokens"] = json!([]);
        tokenizer["post_processor"] = Value::Null;
    });
    let class = json!({"tokenizer_class": "BertTokenizer"});
    fs::write(without_special_tokens.path().join("tokenizer_config.json"), class.to_string()).unwrap();
    let vocabulary = vocabulary_with(&[]);
    // As of Windows, with a byte order mark.
    let text = fs::read_to_string(vocabulary.path().join("vocab.txt")).unwrap();
    let of_windows = folder(&[("vocab.txt", format!("\u{feff}{}", text.replace('\n', "\r\n")).as_bytes())]);
    // The file itself, beside which tokenizer.json lies.
    let file = fixture("tokenizer/vocab.txt");
    for path in [without_special_tokens.path(), vocabulary.path(), of_windows.path(), &file] {
        check(bert, path);
    }
    let of_mpnet = fs::read(fixture(mpnet).join("vocab.txt")).unwrap();
    check(mpnet, folder(&[("vocab.txt", &of_mpnet)]).path());
}

#[test]
fn settings_of_tokenizer_config_equal_transformers_and_a_null_for_accents_counts() {
    for variant in cases("tokenizer")["variants"].as_array().unwrap() {
        let texts: Vec<String> = list(&variant["texts"]);
        let mut settings = variant["settings"].clone();
        settings["tokenizer_class"] = "BertTokenizer".into();
        let dir = vocabulary_with(&[("tokenizer_config.json", settings)]);
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
    let dir = changed("tokenizer", |tokenizer| tokenizer["normalizer"]["strip_accents"] = json!(false));
    let encode = || BertTokenizer::from_pretrained(dir.path()).unwrap().encode("café").unwrap();
    assert_ne!(encode(), bert().encode("café").unwrap());
    fs::write(dir.path().join("tokenizer_config.json"), r#"{"tokenizer_class": "BertTokenizer"}"#).unwrap();
    assert_eq!(encode(), bert().encode("café").unwrap());
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
    let folder = tempdir().unwrap();
    let texts = texts_of_all_kinds();
    fs::write(folder.path().join("texts.json"), json!(texts).to_string()).unwrap();
    let input = fs::File::open(folder.path().join("texts.json")).unwrap();
    let expected: Value =
        serde_json::from_slice(&python.run("check_tokenizer.py", &[&model], input)).unwrap();

    let mut files = vec![model.clone()];
    files.extend([model.join("vocab.txt")].into_iter().filter(|path| path.is_file()));
    for path in files {
        let tokenizer = BertTokenizer::from_pretrained(&path).unwrap().with_model_max_length(usize::MAX);
        assert_eq!(json!(tokenizer.special_token_ids()), expected["special"]);
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
