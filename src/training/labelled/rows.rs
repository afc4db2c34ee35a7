//! The rows of tables and of JSON lines.

use super::file::{LabelledFile, Object, counted, extension, is_json};
use super::label::{Classes, Label, LabelKind};
use crate::error::{Error, Result};
use csv::{ErrorKind, Position, ReaderBuilder, StringRecord};
use serde_json::Value;
use std::path::Path;

/// A column of a table, or a field of a JSON object, for [`TextColumns`](super::TextColumns) and
/// [`SentenceColumns`](super::SentenceColumns).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// By its name in the header.
    Name(String),
    /// By its index, counted from 0; not for JSON.
    Index(usize),
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Self::Name(name.to_string())
    }
}

impl From<usize> for Column {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// What the columns of a file are.
pub(super) struct Header<'a> {
    pub(super) path: &'a Path,
    /// The names in the header of a table, if it has one, or in the first JSON object.
    pub(super) names: Option<Vec<&'a str>>,
    /// The number of columns of a table; `None` of JSON objects.
    width: Option<usize>,
}

impl Header<'_> {
    /// Each column, as [`column`](Self::column) gives it.
    pub(super) fn all(&self) -> Vec<Column> {
        match self.width {
            Some(width) => (0..width).map(Column::Index).collect(),
            None => self.names.iter().flatten().map(|&name| name.into()).collect(),
        }
    }

    /// A column by its index in a table, or by its name in JSON objects.
    pub(super) fn column(&self, column: &Column) -> Result<Column> {
        let refused = |what: &str, problem: String| {
            Err(Error::data(format!("column {what} of {}", self.path.display()), problem))
        };
        let name = match (column, self.width) {
            (Column::Index(_), Some(_)) | (Column::Name(_), None) => return Ok(column.clone()),
            (Column::Index(index), None) => {
                let problem = "is selected by index, but JSON fields are selected by name";
                return refused(&index.to_string(), problem.into());
            }
            (Column::Name(name), Some(_)) => name,
        };
        let mut places = self.names.iter().flatten().zip(0..).filter(|(other, _)| *other == name);
        let problem = match (&self.names, places.next(), places.next()) {
            (None, ..) => "is selected by name, but without a header columns are selected by index".into(),
            (_, Some((_, place)), None) => return Ok(Column::Index(place)),
            (_, Some(_), Some(_)) => "is in the header twice; rename one, or select it by index".into(),
            (Some(names), None, _) => format!("is not in the header, which is {names:?}"),
        };
        refused(&format!("{name:?}"), problem)
    }
}

/// A row of a table, or a JSON object. Columns are those of its [`Header`].
pub(super) enum Row<'a> {
    Fields(&'a StringRecord),
    Object(&'a Object),
}

enum Field<'a> {
    Text(&'a str),
    Json(&'a Value),
}

impl Row<'_> {
    /// The number of columns.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fields(fields) => fields.len(),
            Self::Object(object) => object.len(),
        }
    }

    fn field(&self, column: &Column) -> Result<Field<'_>, String> {
        let field = match (self, column) {
            (Self::Fields(fields), Column::Index(index)) => fields.get(*index).map(Field::Text),
            (Self::Object(object), Column::Name(name)) => object.get(name).map(Field::Json),
            _ => None,
        };
        field.ok_or_else(|| match column {
            Column::Index(index) => {
                format!("has {}, but none at index {index}", counted(self.len(), "field"))
            }
            Column::Name(name) => format!("has no field {name:?}"),
        })
    }

    pub(super) fn text(&self, column: &Column) -> Result<String, String> {
        match self.field(column)? {
            Field::Text(text) => Ok(text.to_string()),
            Field::Json(Value::String(text)) => Ok(text.clone()),
            Field::Json(other) => {
                Err(format!("has {other} in the {}, which is not a string", described(column)))
            }
        }
    }

    pub(super) fn label(
        &self,
        column: &Column,
        classes: &mut Classes,
        kind: LabelKind,
    ) -> Result<Label, String> {
        match self.field(column)? {
            Field::Text(field) => classes.in_field(field, kind),
            Field::Json(value) => classes.in_json(value, kind),
        }
    }
}

/// A column as messages name it.
pub(super) fn described(column: &Column) -> String {
    match column {
        Column::Name(name) => format!("field {name:?}"),
        Column::Index(index) => format!("column {index}"),
    }
}

impl LabelledFile {
    /// What `row` makes of each row of a file, of which there must be one, with the columns that `columns` finds.
    pub(super) fn rows<C, T>(
        path: &Path,
        has_header: bool,
        columns: impl Fn(&Header) -> Result<C>,
        mut row: impl FnMut(&C, &Row) -> Result<T, String>,
    ) -> Result<Vec<T>> {
        let delimiter = match extension(path).as_str() {
            "csv" => Some(b','),
            "tsv" => Some(b'\t'),
            other if is_json(other) => None,
            other => {
                let problem = format!("is {other:?}, but must be csv, tsv or jsonl");
                return Err(Error::data(format!("the extension of {}", path.display()), problem));
            }
        };
        let file = Self::read(path)?;
        if let Some(delimiter) = delimiter {
            return file.not_empty(file.table(delimiter, has_header, columns, row)?);
        }
        let mut found = None;
        let rows = file.objects().map(|object| {
            let (line, object) = object?;
            let columns = match &found {
                Some(columns) => columns,
                None => {
                    let names = Some(object.names().collect());
                    found.insert(columns(&Header { path, names, width: None })?)
                }
            };
            row(columns, &Row::Object(&object)).map_err(|problem| file.bad_row(line, problem))
        });
        file.not_empty(rows.collect::<Result<_>>()?)
    }

    /// The rows of a comma-separated table, or of a tab-separated one, in which quotes mean nothing.
    fn table<C, T>(
        &self,
        delimiter: u8,
        has_header: bool,
        columns: impl Fn(&Header) -> Result<C>,
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
        let names = has_header.then(|| first.iter().map(str::trim).collect());
        let columns = columns(&Header { path: &self.path, names, width: Some(first.len()) })?;
        let records = reader.records().map(|record| {
            let record = record.map_err(refused)?;
            let row = row(&columns, &Row::Fields(&record));
            row.map_err(|problem| self.bad_row(line(record.position()), problem))
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
