//! A labelled file in memory.

use crate::error::{Error, Result};
use crate::regular_file;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeSet;
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

    /// The JSON objects of the lines that are not blank, each with the number of its line.
    pub(super) fn objects(&self) -> impl Iterator<Item = Result<(u64, Object)>> {
        let lines = self.lines().filter(|(_, text)| !text.trim().is_empty());
        lines.map(|(line, text)| match serde_json::from_str(text) {
            Ok(object) => Ok((line, object)),
            Err(error) => Err(self.bad_row(line, format!("is not a JSON object: {error}"))),
        })
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

/// The fields of a JSON object in their order, of which each is there once: of two, nothing says which is meant.
pub(super) struct Object(Vec<(String, Value)>);

impl Object {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Object, A::Error> {
                let (mut fields, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("it has the field {name:?} twice")));
                    }
                    fields.push((name, value));
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
