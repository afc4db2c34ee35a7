//! Rows of a file, read one by one from any place.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a row starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowStart {
    pub(super) byte: u64,
    /// Counted from 1.
    pub(super) line: u64,
}

/// Where the rows of a file start, and where the last ends.
#[derive(Clone, Debug)]
pub(super) struct RowIndex {
    pub(super) starts: Vec<RowStart>,
    pub(super) end: u64,
}

impl RowIndex {
    /// The size of each row in bytes.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let ends = self.starts.iter().skip(1).map(|start| start.byte).chain([self.end]);
        self.starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(start.byte) as usize).collect()
    }
}

/// A row that cannot be used.
pub(super) fn bad_row(path: &Path, line: u64, problem: impl Into<String>) -> Error {
    Error::Row { path: path.to_path_buf(), line, problem: problem.into() }
}

/// A text file, line by line.
#[derive(Debug)]
pub(super) struct LineFile {
    path: PathBuf,
    reader: Mutex<BufReader<File>>,
}

impl LineFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::reading(path, source))?;
        Ok(Self { path: path.to_path_buf(), reader: Mutex::new(BufReader::new(file)) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The lines from a place on.
    pub(super) fn lines_at(&self, start: RowStart) -> Result<LinesAt<'_>> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(SeekFrom::Start(start.byte)).map_err(|source| Error::reading(&self.path, source))?;
        Ok(LinesAt { path: &self.path, reader, next: start, buffer: Vec::new() })
    }
}

/// Lines with their places.
pub(super) struct LinesAt<'a> {
    path: &'a Path,
    reader: MutexGuard<'a, BufReader<File>>,
    next: RowStart,
    buffer: Vec<u8>,
}

impl LinesAt<'_> {
    /// The next line and where it starts, without its line break; `None` at the end of the file.
    pub(super) fn next_line(&mut self) -> Result<Option<(RowStart, &str)>> {
        self.buffer.clear();
        let start = self.next;
        let size = self.reader.read_until(b'\n', &mut self.buffer);
        let size = size.map_err(|source| Error::reading(self.path, source))?;
        if size == 0 {
            return Ok(None);
        }
        self.next = RowStart { byte: start.byte + size as u64, line: start.line + 1 };
        let text = str::from_utf8(&self.buffer).map_err(|error| Error::NotUtf8 {
            path: self.path.to_path_buf(),
            line: start.line as usize,
            offset: start.byte + error.valid_up_to() as u64,
        })?;
        let text = if start.byte == 0 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        Ok(Some((start, text.trim_end_matches(['\n', '\r']))))
    }

    /// Where the next line starts.
    pub(super) fn position(&self) -> RowStart {
        self.next
    }
}

/// The start of a file.
pub(super) const START: RowStart = RowStart { byte: 0, line: 1 };
