//! The columns and rows of labelled files: tables, JSON lines and plain lines.

use super::examples::counted;
use super::labels::{Classes, Label, LabelKind};
use crate::error::{Error, Result};
use crate::files::regular_file;
use csv::{ErrorKind, Position, ReaderBuilder};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::iter::{from_fn, once};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The columns of a file of [`LabelledTexts`](super::LabelledTexts) or [`SentencePairs`](super::SentencePairs), which say what
/// they are by default; [`Examples`](super::Examples) has an example. Columns that are not chosen are not read. By default a table
/// has a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    pub(super) texts: Option<Vec<Column>>,
    pub(super) labels: Vec<Column>,
    pub(super) kind: LabelKind,
    pub(super) without_header: bool,
}

impl Columns {
    /// Sets the columns of the texts: of a text or a pair of texts, or of all sentences.
    pub fn with_texts<C: Into<Column>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        Self { texts: Some(columns.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the column of the label.
    pub fn with_label(self, column: impl Into<Column>) -> Self {
        Self { labels: vec![column.into()], ..self }
    }

    /// Sets a column for each class, which has a one for texts of the class and a zero for others, and the kind to
    /// [several classes](LabelKind::Classes). The columns' names are those of the classes.
    pub fn with_labels<C: Into<Column>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        Self { labels: columns.into_iter().map(Into::into).collect(), kind: LabelKind::Classes, ..self }
    }

    /// Sets what the labels of [`LabelledTexts`](super::LabelledTexts) are; one class by default.
    pub fn with_kind(self, kind: LabelKind) -> Self {
        Self { kind, ..self }
    }

    /// Treats the first row of a table as data. Columns are then selected by index.
    pub fn without_header(self) -> Self {
        Self { without_header: true, ..self }
    }
}

/// A column of a table, or a field of a JSON object, of [`Columns`]; [`Examples`](super::Examples) has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// The column with this name in the header.
    Name(String),
    /// The column at this index, counted from 0; not for JSON.
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

impl Column {
    pub(super) fn described(&self) -> String {
        match self {
            Self::Name(name) => format!("field {name:?}"),
            Self::Index(index) => format!("column {index}"),
        }
    }
}

pub(super) struct LabelledFile {
    path: PathBuf,
    text: String,
}

impl LabelledFile {
    pub(super) fn read(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_path_buf(), text: regular_file::read_text(path)? })
    }

    /// The lines without their line breaks, and the byte offset at which each begins.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let text = self.text.as_ptr().addr();
        self.text.lines().map(move |line| (line.as_ptr().addr() - text, line))
    }

    pub(super) fn not_empty<T>(&self, rows: Vec<T>) -> Result<Vec<T>> {
        if rows.is_empty() {
            return Err(Error::no_text(&self.path));
        }
        Ok(rows)
    }

    /// The error of a row that begins at this byte.
    pub(super) fn bad_row(&self, offset: usize, problem: String) -> Error {
        let before = &self.text[..offset];
        // A bare carriage return ends a line, as it ends a record of CSV.
        let breaks = before.matches(['\r', '\n']).count() - before.matches("\r\n").count();
        Error::Row { path: self.path.clone(), line: 1 + breaks as u64, problem }
    }

    /// All rows of JSON lines, or of a table. The extension decides which.
    pub(super) fn rows(&self, has_header: bool) -> Result<FileRows<'_>> {
        match extension(&self.path).as_str() {
            "csv" => self.table(b',', has_header),
            "tsv" => self.table(b'\t', has_header),
            other if is_json(other) => self.json(),
            other => {
                let problem = format!("is {other:?}, but must be csv, tsv or jsonl");
                Err(Error::data(format!("the extension of {}", self.path.display()), problem))
            }
        }
    }

    /// JSON objects one after the other, as in JSON lines, or in a list.
    fn json(&self) -> Result<FileRows<'_>> {
        let text = self.text.trim_ascii();
        let list = text
            .strip_prefix('[')
            .map(|list| list.strip_suffix(']').ok_or("opens a list that is not closed"));
        let list = list.transpose().map_err(|problem| self.bad_row(0, problem.into()))?;
        let (mut rest, mut is_first) = (list.unwrap_or(text).trim_ascii_start(), true);
        let mut rows = from_fn(move || {
            if list.is_some() && !is_first {
                rest = rest.strip_prefix(',').map_or(rest, str::trim_ascii_start);
            }
            is_first = false;
            let offset = rest.as_ptr().addr() - self.text.as_ptr().addr();
            let mut objects = serde_json::Deserializer::from_str(rest).into_iter::<Row>();
            let row = objects.next()?;
            rest = rest[objects.byte_offset()..].trim_ascii_start();
            let refused = |error| self.bad_row(offset, format!("is not a JSON object: {error}"));
            Some(row.map(|row| (offset, row)).map_err(refused))
        });
        // Read ahead, since the columns are chosen before the rows are read.
        let first = rows.next().transpose()?.ok_or_else(|| Error::no_text(&self.path))?;
        // Later objects may have other fields: columns are found in each by name, and nothing is counted.
        let names = first.1.0.iter().map(|(name, _)| name.clone()).collect();
        let rows = Box::new(once(Ok(first)).chain(rows));
        Ok(FileRows { file: self, names: Some(names), width: None, rows })
    }

    /// A comma-separated table, or a tab-separated one, in which quotes mean nothing.
    fn table(&self, delimiter: u8, has_header: bool) -> Result<FileRows<'_>> {
        let mut reader = ReaderBuilder::new()
            .has_headers(has_header)
            .delimiter(delimiter)
            .quoting(delimiter == b',') // GLUE's TSV files quote nothing
            .from_reader(self.text.as_bytes());
        // The parser gives where it began to look for a record, which blank lines may precede.
        let offset = move |position: Option<&Position>| {
            let begins = position.map_or(0, |position| position.byte() as usize);
            let rest = &self.text[begins..];
            begins + rest.len() - rest.trim_start_matches(['\r', '\n']).len()
        };
        let refused = move |error: csv::Error| {
            let problem = match error.kind() {
                ErrorKind::UnequalLengths { expected_len, len, .. } => {
                    format!("has {}, but the first row has {expected_len}", counted(*len as usize, "field"))
                }
                _ => format!("cannot be read: {error}"),
            };
            self.bad_row(offset(error.position()), problem)
        };
        // The parser would take all of the file from there as one field.
        if delimiter == b','
            && let Some(offset) = unclosed_quote(&self.text)
        {
            let problem =
                "has a quote that is not closed; close it, or double a quote that is part of a quoted field";
            return Err(self.bad_row(offset, problem.into()));
        }
        let first = reader.headers().map_err(refused)?.clone();
        let names = has_header.then(|| first.iter().map(|name| name.trim().to_string()).collect());
        let rows = reader.into_records().map(move |record| {
            let record = record.map_err(refused)?;
            let fields = record.iter().map(|field| (String::new(), field.into()));
            Ok((offset(record.position()), Row(fields.collect())))
        });
        Ok(FileRows { file: self, names, width: Some(first.len()), rows: Box::new(rows) })
    }
}

pub(super) struct FileRows<'a> {
    file: &'a LabelledFile,
    /// The names in the header of a table, if it has one, or in the first JSON object.
    pub(super) names: Option<Vec<String>>,
    /// The number of columns of a table; `None` of JSON objects.
    width: Option<usize>,
    /// Rows with their byte offsets in the file, read one by one: all of them would take more memory than the file.
    rows: Box<dyn Iterator<Item = Result<(usize, Row)>> + 'a>,
}

impl FileRows<'_> {
    /// What `item` makes of each row, of which there must be one.
    pub(super) fn read<T>(self, mut item: impl FnMut(&Row) -> Result<T, String>) -> Result<Vec<T>> {
        let items = self.rows.map(|row| {
            let (offset, row) = row?;
            item(&row).map_err(|problem| self.file.bad_row(offset, problem))
        });
        self.file.not_empty(items.collect::<Result<_>>()?)
    }

    /// What the first row has for which `find` returns something. A row that cannot be read is left to [`read`](Self::read).
    pub(super) fn find_map<T>(self, mut find: impl FnMut(&Row) -> Option<T>) -> Option<T> {
        self.rows.map_while(Result::ok).find_map(|(_, row)| find(&row))
    }

    /// Each column, as [`column`](Self::column) gives it.
    pub(super) fn all(&self) -> Vec<Column> {
        match self.width {
            Some(width) => (0..width).map(Column::Index).collect(),
            None => self.names.iter().flatten().map(|name| name.as_str().into()).collect(),
        }
    }

    /// The name of a column, if it has one.
    pub(super) fn name<'b>(&'b self, column: &'b Column) -> Option<&'b str> {
        match column {
            Column::Index(index) => self.names.as_ref()?.get(*index).map(String::as_str),
            Column::Name(name) => Some(name),
        }
    }

    /// All columns by their names, with what each is read as.
    pub(super) fn roles(&self, read: &[(&Column, &str)]) -> Vec<(String, String)> {
        let role = |column: Column| {
            let read = read.iter().filter(|(other, _)| **other == column).map(|(_, role)| *role);
            let roles = read.collect::<Vec<_>>().join(", ");
            let name = self.name(&column).map_or_else(|| column.described(), |name| format!("{name:?}"));
            (name, if roles.is_empty() { "not read".into() } else { roles })
        };
        self.all().into_iter().map(role).collect()
    }

    /// The column with a name, or the only one whose name differs in case alone.
    pub(super) fn column_but_for_case(&self, name: &str) -> Result<Column> {
        let mut alike = self.names.iter().flatten().filter(|other| other.eq_ignore_ascii_case(name));
        match (alike.next(), alike.next()) {
            (Some(only), None) => self.column(&only.as_str().into()),
            _ => self.column(&name.into()),
        }
    }

    /// A column by its index in a table, or by its name in JSON objects.
    pub(super) fn column(&self, column: &Column) -> Result<Column> {
        let refused = |what: &str, problem: String| {
            Err(Error::data(format!("column {what} of {}", self.file.path.display()), problem))
        };
        let name = match (column, self.width) {
            (Column::Index(_), Some(_)) | (Column::Name(_), None) => return Ok(column.clone()),
            (Column::Index(index), None) => {
                let problem = "is selected by index, but JSON fields are selected by name";
                return refused(&index.to_string(), problem.into());
            }
            (Column::Name(name), Some(_)) => name,
        };
        let mut indices = self.names.iter().flatten().zip(0..).filter(|(other, _)| *other == name);
        let problem = match (&self.names, indices.next(), indices.next()) {
            (None, ..) => "is selected by name, but without a header columns are selected by index".into(),
            (_, Some((_, index)), None) => return Ok(Column::Index(index)),
            (_, Some(_), Some(_)) => "is in the header twice; rename one, or select it by index".into(),
            (Some(names), None, _) => format!("is not in the header, which is {names:?}"),
        };
        refused(&format!("{name:?}"), problem)
    }
}

/// The fields of a JSON object, or of a row of a table, whose names are in its header alone.
pub(super) struct Row(Vec<(String, Value)>);

impl Row {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    pub(super) fn field(&self, column: &Column) -> Result<&Value, String> {
        match column {
            Column::Index(index) => match self.0.get(*index) {
                Some((_, value)) => Ok(value),
                None => Err(format!("has {}, but none at index {index}", counted(self.len(), "field"))),
            },
            Column::Name(name) => self.get(name).ok_or_else(|| format!("has no field {name:?}")),
        }
    }

    pub(super) fn text(&self, column: &Column) -> Result<String, String> {
        match self.field(column)? {
            Value::String(text) => Ok(text.clone()),
            other => Err(format!("has {other} in the {}, which is not a string", column.described())),
        }
    }

    /// A label, which in a table is text, and in JSON a value of any kind.
    pub(super) fn label(&self, column: &Column, classes: &mut Classes) -> Result<Label, String> {
        match (column, self.field(column)?) {
            (Column::Index(_), Value::String(field)) => classes.in_field(field),
            (_, value) => classes.in_json(value),
        }
    }
}

/// A row of a JSON object. `serde_json` takes the last of two fields with one name; here that is an error.
impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowVisitor;

        impl<'de> Visitor<'de> for RowVisitor {
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
                Ok(Row(fields))
            }
        }

        deserializer.deserialize_map(RowVisitor)
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

/// The byte at which a quoted field begins that goes on to the end of a comma-separated file.
fn unclosed_quote(text: &str) -> Option<usize> {
    let (mut open, mut begins) = (None, true);
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((offset, byte)) = bytes.next() {
        match open {
            // Two quotes in a quoted field are one of its text.
            Some(_) if byte == b'"' && bytes.next_if(|&(_, next)| next == b'"').is_none() => open = None,
            None if byte == b'"' && begins => open = Some(offset),
            _ => {}
        }
        begins = open.is_none() && matches!(byte, b',' | b'\n' | b'\r');
    }
    open
}
