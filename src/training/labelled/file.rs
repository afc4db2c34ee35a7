//! A labelled file in memory.

use crate::error::{Error, Result};
use crate::regular_file;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The text of a file, and what is read of its rows.
pub(super) struct LabelledFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl LabelledFile {
    pub(super) fn read(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_path_buf(), text: regular_file::read_text(path)? })
    }

    /// The lines, counted from 1, without their line breaks.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, &str)> {
        (1..).zip(self.text.lines())
    }

    /// What `row` makes of each line that is not blank.
    pub(super) fn json_lines<T>(
        &self,
        mut row: impl FnMut(&Map<String, Value>) -> Result<T, String>,
    ) -> Result<Vec<T>> {
        let lines = self.lines().filter(|(_, text)| !text.trim().is_empty());
        let rows = lines.map(|(line, text)| {
            let object = serde_json::from_str(text).map_err(|error| format!("is not a JSON object: {error}"));
            object.and_then(|object| row(&object)).map_err(|problem| self.bad_row(line, problem))
        });
        rows.collect()
    }

    /// The rows, of which there must be one.
    pub(super) fn not_empty<T>(&self, rows: Vec<T>) -> Result<Vec<T>> {
        if rows.is_empty() {
            return Err(Error::no_text(&self.path));
        }
        Ok(rows)
    }

    /// A row that cannot be used.
    pub(super) fn bad_row(&self, line: u64, problem: String) -> Error {
        Error::Row { path: self.path.clone(), line, problem }
    }
}

/// The extension of a path in lower case, which decides the format.
pub(super) fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

/// Whether files with this extension hold one JSON object per line.
pub(super) fn is_json(extension: &str) -> bool {
    matches!(extension, "jsonl" | "ndjson" | "json")
}

/// A number of things, such as `1 field` or `2 fields`.
pub(super) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
