//! Files of the fixtures, and JSON.

#![allow(dead_code)] // every test file takes what it needs

use serde_json::Value;
use std::path::{Path, PathBuf};

/// A path below `tests/fixtures`.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

pub fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The `config.json` of a directory.
pub fn config_json(dir: impl AsRef<Path>) -> Value {
    json(dir.as_ref().join("config.json"))
}
