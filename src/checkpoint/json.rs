//! JSON files.

use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Larger than any config or index.
const MAX_JSON_BYTES: u64 = 16 << 20;

/// A JSON file whose root is an object.
pub(super) fn read_json(path: &Path) -> Result<Map<String, Value>> {
    let failed = |source| Error::reading(path, source);
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > MAX_JSON_BYTES {
        return Err(Error::NotACheckpoint {
            path: path.to_path_buf(),
            problem: format!("it is larger than {} MiB, which no config or index is", MAX_JSON_BYTES >> 20),
        });
    }
    let mut text = Vec::new();
    file.take(MAX_JSON_BYTES).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|source| Error::Json { path: path.to_path_buf(), source })
}
