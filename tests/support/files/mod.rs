//! Files of the fixtures, JSON, and directories made for a test.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A path below `tests/fixtures`.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

pub fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A JSON value as what is asked for.
pub fn list<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Changes a JSON file; an empty object if there is none.
pub fn edit(dir: impl AsRef<Path>, name: &str, change: impl FnOnce(&mut Value)) {
    let path = dir.as_ref().join(name);
    let mut value = if path.exists() { json(&path) } else { serde_json::json!({}) };
    change(&mut value);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, value.to_string()).unwrap();
}

/// The `config.json` of a directory.
pub fn config_json(dir: impl AsRef<Path>) -> Value {
    json(dir.as_ref().join("config.json"))
}

/// Sets fields of the `config.json` of a directory.
pub fn set_fields(dir: impl AsRef<Path>, fields: &[(&str, Value)]) {
    edit(dir, "config.json", |config| {
        fields.iter().for_each(|(field, value)| config[*field] = value.clone());
    });
}

/// The `vocab.txt` of words behind the five special tokens.
pub fn vocabulary(words: &[&str]) -> String {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    special.iter().chain(words).map(|word| format!("{word}\n")).collect()
}

/// BERT's tokenizer of such a file, which is gone.
#[cfg(feature = "tokenizers")]
pub fn tokenizer_of(words: &[&str]) -> burn_bert::text::BertTokenizer {
    let dir = folder(&[("vocab.txt", vocabulary(words).as_bytes())]);
    burn_bert::text::BertTokenizer::from_pretrained(dir.path()).unwrap()
}

/// A new folder with these files.
pub fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
    folder
}

/// A new folder with this `config.json`.
pub fn with_config(config: impl ToString) -> TempDir {
    folder(&[("config.json", config.to_string().as_bytes())])
}

/// A copy of a folder without folders in it.
pub fn copy_of(dir: impl AsRef<Path>) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    files_of(dir).into_iter().for_each(|(name, bytes)| fs::write(copy.path().join(name), bytes).unwrap());
    copy
}

/// What a folder holds, by name; of a folder in it, nothing.
pub fn files_of(dir: impl AsRef<Path>) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap_or_default())
    };
    entries.map(file).collect()
}

/// The files under a directory, relative to it and sorted.
pub fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false => files.push(entry.strip_prefix(dir).unwrap().to_path_buf()),
            }
        }
    }
    files.sort();
    files
}
