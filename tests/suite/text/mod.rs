//! Text to batches.

mod bad_files;
mod lengths;
mod special_tokens;
mod transformers;
mod words;

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
