//! The rows of a table.

use super::file::{LabelledFile, counted};
use crate::error::Result;
use csv::{ErrorKind, Position, ReaderBuilder, StringRecord};

/// A row of a table.
pub(super) struct Row<'a>(&'a StringRecord);

impl<'a> Row<'a> {
    /// The field in a column.
    pub(super) fn field(&self, place: usize) -> Result<&'a str, String> {
        let found = || format!("has {}, but none at index {place}", counted(self.0.len(), "field"));
        self.0.get(place).ok_or_else(found)
    }
}

impl LabelledFile {
    /// What `row` makes of each row of a comma-separated file, or of a tab-separated one, in which quotes mean nothing.
    /// `columns` finds the columns by the header, if there is one, and their number.
    pub(super) fn table<C, T>(
        &self,
        delimiter: u8,
        has_header: bool,
        columns: impl FnOnce(Option<&StringRecord>, usize) -> Result<C>,
        mut row: impl FnMut(&C, &Row) -> Result<T, String>,
    ) -> Result<Vec<T>> {
        let mut reader = ReaderBuilder::new()
            .has_headers(has_header)
            .delimiter(delimiter)
            .quoting(delimiter == b',')
            .from_reader(self.text.as_bytes());
        // The parser gives where it began to look for a record, which blank lines may precede.
        let line = |position: Option<&Position>| {
            let (before, rest) = self.text.split_at(position.map_or(0, |position| position.byte() as usize));
            let blank = &rest[..rest.len() - rest.trim_start_matches(['\r', '\n']).len()];
            1 + before.matches('\n').count() as u64 + blank.matches('\n').count() as u64
        };
        let refused = |error: csv::Error| {
            let problem = match error.kind() {
                ErrorKind::UnequalLengths { expected_len, len, .. } => {
                    format!("has {}, but the first row has {expected_len}", counted(*len as usize, "field"))
                }
                _ => format!("cannot be read: {error}"),
            };
            self.bad_row(line(error.position()), problem)
        };
        if delimiter == b','
            && let Some(place) = unclosed_quote(&self.text)
        {
            let line = 1 + self.text[..place].matches('\n').count() as u64;
            let problem =
                "has a quote that is not closed; close it, or double a quote that is part of a quoted field";
            return Err(self.bad_row(line, problem.into()));
        }
        let first = reader.headers().map_err(refused)?.clone();
        let columns = columns(has_header.then_some(&first), first.len())?;
        let records = reader.records().map(|record| {
            let record = record.map_err(refused)?;
            row(&columns, &Row(&record)).map_err(|problem| self.bad_row(line(record.position()), problem))
        });
        records.collect()
    }
}

/// Where a quoted field begins that goes on to the end of a comma-separated file.
fn unclosed_quote(text: &str) -> Option<usize> {
    let (mut open, mut begins) = (None, true);
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((place, byte)) = bytes.next() {
        match open {
            Some(_) if byte == b'"' && bytes.next_if(|&(_, next)| next == b'"').is_none() => open = None,
            None if byte == b'"' && begins => open = Some(place),
            _ => {}
        }
        begins = open.is_none() && matches!(byte, b',' | b'\n' | b'\r');
    }
    open
}
