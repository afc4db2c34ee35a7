//! Files of the fixtures, JSON, and directories made for a test.

#![allow(dead_code)] // every test file takes what it needs

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

/// The `config.json` of a directory.
pub fn config_json(dir: impl AsRef<Path>) -> Value {
    json(dir.as_ref().join("config.json"))
}

/// Sets fields of the `config.json` of a directory.
pub fn set_fields(dir: impl AsRef<Path>, fields: &[(&str, Value)]) {
    let mut config = config_json(&dir);
    fields.iter().for_each(|(field, value)| config[*field] = value.clone());
    fs::write(dir.as_ref().join("config.json"), config.to_string()).unwrap();
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
