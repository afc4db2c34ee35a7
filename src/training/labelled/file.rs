//! A labelled file in memory.

use crate::error::{Error, Result};
use crate::regular_file;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
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
            object.and_then(|Object(fields)| row(&fields)).map_err(|problem| self.bad_row(line, problem))
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

/// The fields of a JSON object, of which each is there once: of two, nothing says which is meant.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Object, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format_args!("it has the field {name:?} twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
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
