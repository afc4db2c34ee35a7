//! JSON files.

use crate::error::{Error, Result};
use crate::regular_file;
use serde_json::{Map, Value};
use std::path::Path;

/// Larger than any config or index.
const MAX_JSON_BYTES: u64 = 16 << 20;

/// A JSON file whose root is an object.
pub(super) fn read_json(path: &Path) -> Result<Map<String, Value>> {
    let text = regular_file::read(path, MAX_JSON_BYTES + 1)?;
    if text.len() as u64 > MAX_JSON_BYTES {
        return Err(Error::NotACheckpoint {
            path: path.to_path_buf(),
            problem: format!("it is larger than {} MiB, which no config or index is", MAX_JSON_BYTES >> 20),
        });
    }
    serde_json::from_slice(&text).map_err(|source| Error::Json { path: path.to_path_buf(), source })
}
