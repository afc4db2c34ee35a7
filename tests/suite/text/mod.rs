//! Text to batches.

mod bad_files;
mod classes;
mod lengths;
mod special_tokens;
mod transformers;

use crate::prelude::*;

fn bert() -> BertTokenizer {
    tokenizer_of_family("bert")
}

fn roberta() -> BertTokenizer {
    tokenizer_of_family("roberta")
}

/// The tokenizer with the limits of a model with this embedding layer.
fn limited(tokenizer: BertTokenizer, embeddings: &BertEmbeddingsConfig) -> burn_bert::Result<BertTokenizer> {
    let config = BertModelConfig::new(embeddings.clone()).with_num_hidden_layers(1);
    config.init(&device()).limit_tokenizer(tokenizer)
}

fn cases(folder: &str) -> Value {
    json(fixture(folder).join("cases.json"))
}

/// The fixture's `vocab.txt` alone in a directory, with other files beside it.
fn vocabulary_with(files: &[(&str, Value)]) -> TempDir {
    let dir = tempdir().unwrap();
    fs::copy(fixture("tokenizer/vocab.txt"), dir.path().join("vocab.txt")).unwrap();
    for (name, content) in files {
        fs::write(dir.path().join(name), content.to_string()).unwrap();
    }
    dir
}

/// A fixture's `tokenizer.json`, changed, alone in a directory.
fn changed(folder: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let dir = tempdir().unwrap();
    fs::copy(fixture(folder).join("tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
    edit(&dir, "tokenizer.json", change);
    dir
}

#[test]
fn words_have_the_pieces_of_the_text_with_a_space_before_each() {
    let words = ["New", "York", "", "isn't", "10 000", "away", "."];
    let text = "New York isn't 10 000 away .";
    for tokenizer in ["roberta", "bert", "mpnet", "albert"].map(tokenizer_of_family) {
        let found = tokenizer.encode_words(&words).unwrap();
        assert_eq!(found.input_ids(), tokenizer.encode(text).unwrap().input_ids());
        let mut pieces: Vec<u32> = found.word_ids().iter().flatten().copied().collect();
        pieces.dedup();
        assert_eq!(pieces, [0, 1, 3, 4, 5, 6]);
        // Within the word, as transformers' offset_mapping.
        let last = |word| found.word_ids().iter().rposition(|other| *other == Some(word)).unwrap();
        for (word, text) in [(0, "New"), (1, "York"), (5, "away"), (6, ".")] {
            let (start, end) = found.offsets()[last(word)];
            assert!(start < end && end == text.len(), "{text}: {start}..{end}");
        }
    }
    let glued = roberta().encode_words(&["NewYork"]).unwrap();
    assert_ne!(roberta().encode_words(&["New", "York"]).unwrap().input_ids(), glued.input_ids());
}

#[test]
fn a_tokenizer_is_saved_as_it_was_read_whatever_its_source_is_by_then() {
    let source = vocabulary_with(&[("tokenizer_config.json", json!({ "do_lower_case": false }))]);
    fs::write(source.path().join("spm.model"), [0xff]).unwrap(); // of another library
    let (before, out) = (files_of(&source), tempdir().unwrap());
    let tokenizer = BertTokenizer::from_pretrained(source.path()).unwrap();
    fs::write(source.path().join("vocab.txt"), "changed").unwrap();
    fs::remove_file(source.path().join("tokenizer_config.json")).unwrap();
    tokenizer.save_pretrained(out.path()).unwrap();
    assert_eq!(files_of(&out), before);
}

#[test]
fn the_space_before_the_first_word_is_that_of_the_files() {
    let with_space = changed("roberta_tokenizer", |tokenizer| {
        tokenizer["pre_tokenizer"]["add_prefix_space"] = true.into();
    });
    let spaced = BertTokenizer::from_pretrained(with_space.path()).unwrap();
    let expected = roberta().encode(" New York").unwrap();
    assert_eq!(spaced.encode("New York").unwrap().input_ids(), expected.input_ids());
    assert_eq!(spaced.encode_words(&["New", "York"]).unwrap().input_ids(), expected.input_ids());
}
