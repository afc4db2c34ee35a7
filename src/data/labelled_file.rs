//! The rows of labelled files: tables, JSON lines and plain lines.

use super::label::{Classes, Label, LabelKind};
use crate::error::{Error, Result};
use crate::files::regular_file;
use csv::{ErrorKind, Position, ReaderBuilder, StringRecord};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
    pub(super) fn objects(&self) -> impl Iterator<Item = Result<(u64, Row)>> {
        let lines = self.lines().filter(|(_, text)| !text.trim().is_empty());
        lines.map(|(line, text)| match serde_json::from_str(text) {
            Ok(row) => Ok((line, row)),
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

    /// The line of a byte, counted from 1. A bare carriage return ends a line, as it ends a record of CSV.
    fn line_at(&self, place: usize) -> u64 {
        let before = &self.text[..place];
        let bare = before.matches('\r').count() - before.matches("\r\n").count();
        1 + (before.matches('\n').count() + bare) as u64
    }

    /// A row that cannot be used.
    pub(super) fn bad_row(&self, line: u64, problem: String) -> Error {
        Error::Row { path: self.path.clone(), line, problem }
    }
}

/// A row of a table or a JSON object: its fields in their order. Columns are those of its [`Header`].
pub(super) struct Row {
    fields: Vec<(String, Value)>,
    is_json: bool,
}

impl Row {
    /// Names of fields of a table are in its header.
    fn of_table(record: &StringRecord) -> Self {
        let fields = record.iter().map(|field| (String::new(), field.into())).collect();
        Self { fields, is_json: false }
    }

    /// The number of columns.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    fn field(&self, column: &Column) -> Result<&Value, String> {
        match column {
            Column::Index(index) => self
                .fields
                .get(*index)
                .map(|(_, value)| value)
                .ok_or_else(|| format!("has {}, but none at index {index}", counted(self.len(), "field"))),
            Column::Name(name) => self.get(name).ok_or_else(|| format!("has no field {name:?}")),
        }
    }

    pub(super) fn text(&self, column: &Column) -> Result<String, String> {
        match self.field(column)? {
            Value::String(text) => Ok(text.clone()),
            other => Err(format!("has {other} in the {}, which is not a string", described(column))),
        }
    }

    pub(super) fn label(
        &self,
        column: &Column,
        classes: &mut Classes,
        kind: LabelKind,
    ) -> Result<Label, String> {
        match self.field(column)? {
            Value::String(field) if !self.is_json => classes.in_field(field, kind),
            value => classes.in_json(value, kind),
        }
    }
}

/// Of a JSON object. `serde_json` takes the last of two fields with one name; here that is an error.
impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Row, A::Error> {
                // A set beside the list: a search for each of many fields would take their square.
                let (mut fields, mut names) = (Vec::new(), BTreeSet::new());
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("it has the field {name:?} twice")));
                    }
                    fields.push((name, value));
                }
                Ok(Row { fields, is_json: true })
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

/// A column of a table, or a field of a JSON object, of [`LabelledTexts`](super::LabelledTexts) and
/// [`SentencePairs`](super::SentencePairs).
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

/// An index if it is a number, else a name.
impl FromStr for Column {
    type Err = Infallible;

    fn from_str(column: &str) -> Result<Self, Infallible> {
        Ok(column.parse().map_or_else(|_| column.into(), Self::Index))
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

/// A column as messages name it.
pub(super) fn described(column: &Column) -> String {
    match column {
        Column::Name(name) => format!("field {name:?}"),
        Column::Index(index) => format!("column {index}"),
    }
}

impl LabelledFile {
    /// What `row` makes of each row of a file, with the columns that `columns` finds. There must be a row.
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
        // The columns of JSON are known with the first object.
        let mut found = None;
        let rows = file.objects().map(|object| {
            let (line, object) = object?;
            let columns = match &found {
                Some(columns) => columns,
                None => {
                    let names = Some(object.fields.iter().map(|(name, _)| name.as_str()).collect());
                    found.insert(columns(&Header { path, names, width: None })?)
                }
            };
            row(columns, &object).map_err(|problem| file.bad_row(line, problem))
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
            .quoting(delimiter == b',') // GLUE's TSV files quote nothing
            .from_reader(self.text.as_bytes());
        // The parser gives where it began to look for a record, which blank lines may precede.
        let line = |position: Option<&Position>| {
            let begins = position.map_or(0, |position| position.byte() as usize);
            let rest = &self.text[begins..];
            let blank = rest.len() - rest.trim_start_matches(['\r', '\n']).len();
            self.line_at(begins + blank)
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
        // The parser would take all of the file from there as one field.
        if delimiter == b','
            && let Some(place) = unclosed_quote(&self.text)
        {
            let line = self.line_at(place);
            let problem =
                "has a quote that is not closed; close it, or double a quote that is part of a quoted field";
            return Err(self.bad_row(line, problem.into()));
        }
        let first = reader.headers().map_err(refused)?.clone();
        let names = has_header.then(|| first.iter().map(str::trim).collect());
        let columns = columns(&Header { path: &self.path, names, width: Some(first.len()) })?;
        let records = reader.records().map(|record| {
            let record = record.map_err(refused)?;
            let row = row(&columns, &Row::of_table(&record));
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
