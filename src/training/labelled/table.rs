//! Tables: CSV and TSV.

use super::rows::{RowIndex, RowStart, START, bad_row};
use crate::error::{Error, Result};
use csv::{Position, Reader, ReaderBuilder, StringRecord};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file of records of one length.
pub(super) struct Table {
    path: PathBuf,
    reader: Mutex<Reader<File>>,
    /// The names of the columns, if the first record holds them.
    pub(super) header: Option<Vec<String>>,
}

impl Table {
    /// A comma-separated file, of which quoted fields may hold commas and line breaks, or a tab-separated one, in
    /// which quotes mean nothing.
    pub(super) fn open(path: &Path, is_tabbed: bool, has_header: bool) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::reading(path, source))?;
        let mut builder = ReaderBuilder::new();
        builder.has_headers(has_header);
        if is_tabbed {
            builder.delimiter(b'\t').quoting(false);
        }
        let mut reader = builder.from_reader(file);
        let header = if has_header {
            let header = reader.headers().map_err(|error| failed(path, START.line, error))?;
            Some(header.iter().map(|name| name.trim().to_string()).collect())
        } else {
            None
        };
        Ok(Self { path: path.to_path_buf(), reader: Mutex::new(reader), header })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Goes through all records, and gives where each starts.
    pub(super) fn index(&self, mut check: impl FnMut(&StringRecord, u64) -> Result<()>) -> Result<RowIndex> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = StringRecord::new();
        let mut starts = Vec::new();
        loop {
            let line = reader.position().line();
            if !reader.read_record(&mut record).map_err(|error| failed(&self.path, line, error))? {
                break;
            }
            let start = record
                .position()
                .map_or(START, |position| RowStart { byte: position.byte(), line: position.line() });
            check(&record, start.line)?;
            starts.push(start);
        }
        Ok(RowIndex { starts, end: reader.position().byte() })
    }

    /// The record that starts at a place.
    pub(super) fn record(&self, start: RowStart) -> Result<StringRecord> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut position = Position::new();
        position.set_byte(start.byte).set_line(start.line);
        let mut record = StringRecord::new();
        let found = reader.seek(position).and_then(|()| reader.read_record(&mut record));
        if !found.map_err(|error| failed(&self.path, start.line, error))? {
            return Err(bad_row(&self.path, start.line, "no longer exists; the file changed"));
        }
        Ok(record)
    }
}

/// What the parser refuses, at its own line if it knows one.
fn failed(path: &Path, line: u64, error: csv::Error) -> Error {
    let line = error.position().map_or(line, Position::line);
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} fields, but the first row has {expected_len}")
        }
        csv::ErrorKind::Utf8 { err, .. } => format!("is not UTF-8 in its field number {}", err.field() + 1),
        csv::ErrorKind::Io(_) => {
            return match error.into_kind() {
                csv::ErrorKind::Io(source) => Error::reading(path, source),
                kind => bad_row(path, line, format!("cannot be read: {kind:?}")),
            };
        }
        _ => format!("cannot be read: {error}"),
    };
    bad_row(path, line, problem)
}
