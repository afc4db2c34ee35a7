//! A text file, line by line, in bounded memory.

use crate::error::{Error, Result};
use crate::files::regular_file;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::iter::FusedIterator;
use std::path::{Path, PathBuf};

/// The lines of a UTF-8 file that are not blank, without the white space around them.
///
/// Lines end in `\n` or `\r\n`; a byte order mark is skipped. A line of more than
/// [`DEFAULT_MAX_BYTES`](Self::DEFAULT_MAX_BYTES) comes in pieces, cut after the last white space that fits, or between two
/// characters if there is none.
///
/// ```
/// use burn_bert::text::Lines;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("corpus.txt");
/// std::fs::write(&path, "first\r\n\n  second\nthird")?;
/// let lines = Lines::open(&path)?.collect::<burn_bert::Result<Vec<_>>>()?;
/// assert_eq!(lines, ["first", "second", "third"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An item is [`Error::NotUtf8`] where the text is not UTF-8, and [`Error::Io`] if reading fails; it is the last.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    max_bytes: usize,
    /// What was read of a line and not yet returned.
    pending: Vec<u8>,
    /// Where in the file `pending` starts.
    offset: u64,
    /// The line that `pending` starts in, counted from 1.
    line: usize,
    /// The first item, which [`open`](Self::open) reads to see whether there is one.
    first: Option<String>,
    has_failed: bool,
}

impl Lines {
    /// The longest line that is returned whole, its line break included: 1 MiB.
    pub const DEFAULT_MAX_BYTES: usize = 1 << 20;

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it is no regular file, empty or blank, [`Error::Io`] if it cannot be read, and [`Error::NotUtf8`] if
    /// its first line that is not blank is not UTF-8.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with_max_bytes(path, Self::DEFAULT_MAX_BYTES)
    }

    /// Opens a file; lines longer than `max_bytes`, including the line break, are returned in pieces.
    ///
    /// Errors are those of [`open`](Self::open), and [`Error::Config`] if `max_bytes` is below 4, the length of a character.
    pub fn open_with_max_bytes(path: impl AsRef<Path>, max_bytes: usize) -> Result<Self> {
        if max_bytes < 4 {
            let problem = format!("is {max_bytes}, but must be at least 4, the length of a character");
            return Err(Error::config("max_bytes", problem));
        }
        let path = path.as_ref().to_path_buf();
        let file = regular_file::open(&path)?;
        let mut lines = Self {
            path,
            reader: BufReader::new(file),
            max_bytes,
            pending: Vec::new(),
            offset: 0,
            line: 1,
            first: None,
            has_failed: false,
        };
        lines.first = lines.read_text()?;
        match lines.first {
            Some(_) => Ok(lines),
            None => Err(Error::no_text(&lines.path)),
        }
    }

    /// The next piece that is not blank; `None` at the end of the file.
    fn read_text(&mut self) -> Result<Option<String>> {
        loop {
            match self.read_piece()? {
                Some(piece) if piece.is_empty() => {}
                piece => return Ok(piece),
            }
        }
    }

    /// The next line, or as much of it as fits `max_bytes`, trimmed; `None` at the end of the file.
    fn read_piece(&mut self) -> Result<Option<String>> {
        // What is left of a cut line counts for the next piece.
        let room = self.max_bytes - self.pending.len();
        let mut reader = (&mut self.reader).take(room as u64);
        reader.read_until(b'\n', &mut self.pending).map_err(|source| Error::reading(&self.path, source))?;
        if self.pending.is_empty() {
            return Ok(None);
        }
        let ends_line = self.pending.ends_with(b"\n");
        let is_cut = !ends_line && self.pending.len() == self.max_bytes;

        let text = match str::from_utf8(&self.pending) {
            Ok(text) => text,
            // Only the last character was cut, and its rest is still in the file.
            Err(error) if is_cut && error.error_len().is_none() => {
                let valid = &self.pending[..error.valid_up_to()];
                str::from_utf8(valid).expect("bytes up to valid_up_to are UTF-8")
            }
            Err(error) => {
                let offset = self.offset + error.valid_up_to() as u64;
                return Err(Error::NotUtf8 { path: self.path.clone(), line: self.line, offset });
            }
        };
        let end = match text.trim_end_matches(|c: char| !c.is_whitespace()).len() {
            after_space if is_cut && after_space > 0 => after_space,
            _ => text.len(),
        };
        let text = &text[..end];
        let text = if self.offset == 0 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        let piece = text.trim().to_string();
        self.pending.drain(..end);
        self.offset += end as u64;
        self.line += usize::from(ends_line);
        Ok(Some(piece))
    }
}

impl Iterator for Lines {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let item = self.read_text().transpose();
        self.has_failed = matches!(item, Some(Err(_)));
        item
    }
}

impl FusedIterator for Lines {}
