//! JSON files.

use crate::error::{Error, Result};
use crate::regular_file;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Larger than any config or index.
const MAX_JSON_BYTES: u64 = 16 << 20;

/// A JSON file whose root is what is asked for, such as an object.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = regular_file::read(path, MAX_JSON_BYTES + 1)?;
    if text.len() as u64 > MAX_JSON_BYTES {
        return Err(Error::NotACheckpoint {
            path: path.to_path_buf(),
            problem: format!("it is larger than {} MiB, which no config or index is", MAX_JSON_BYTES >> 20),
        });
    }
    serde_json::from_slice(&text).map_err(|source| Error::Json { path: path.to_path_buf(), source })
}
