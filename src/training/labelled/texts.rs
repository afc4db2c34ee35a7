//! Labelled texts in CSV, TSV and JSON lines.

use super::super::label_names::LabelNames;
use super::label::{FoundNames, Label, LabelKind, RawLabel};
use super::rows::{LineFile, RowIndex, START, bad_row};
use super::table::Table;
use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use serde_json::{Map, Value};
use std::fmt;
use std::path::{Path, PathBuf};

/// A text, or a pair of texts, and its label: an item of [`LabelledTexts`].
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledText {
    /// The text.
    pub text: String,
    /// The second text of a pair.
    pub pair: Option<String>,
    /// The label.
    pub label: Label,
}

/// A column of a table, or a field of a JSON object, for [`TextColumns`].
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

/// The columns of a file of labelled texts.
///
/// ```
/// use burn_bert::training::{LabelKind, TextColumns};
///
/// let pairs = TextColumns::default().with_text("premise").with_pair("hypothesis");
/// let scores = TextColumns::default().with_text(1).with_label(0, LabelKind::Value).without_header();
/// # let _ = (pairs, scores);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextColumns {
    text: Column,
    pair: Option<Column>,
    label: Column,
    kind: LabelKind,
    has_header: bool,
}

/// One text in `text`, one class in `label`, and a header.
impl Default for TextColumns {
    fn default() -> Self {
        let (text, label) = ("text".into(), "label".into());
        Self { text, pair: None, label, kind: LabelKind::Class, has_header: true }
    }
}

impl TextColumns {
    /// Sets the column of the text.
    pub fn with_text(self, text: impl Into<Column>) -> Self {
        Self { text: text.into(), ..self }
    }

    /// Sets the column of the second text of a pair.
    pub fn with_pair(self, pair: impl Into<Column>) -> Self {
        Self { pair: Some(pair.into()), ..self }
    }

    /// Sets the column of the label, and what it holds.
    pub fn with_label(self, label: impl Into<Column>, kind: LabelKind) -> Self {
        Self { label: label.into(), kind, ..self }
    }

    /// Treats the first row of a table as data. Columns are then selected by index.
    pub fn without_header(self) -> Self {
        Self { has_header: false, ..self }
    }
}

/// A file of labelled texts, read lazily: 16 bytes per row are kept in memory, whatever its length.
///
/// The extension decides the format:
///
/// - `.csv`: fields in double quotes may hold commas and line breaks;
/// - `.tsv`: separated by tabs, without quoting (as in GLUE's files);
/// - `.jsonl`, `.ndjson`, `.json`: one JSON object per line; blank lines are skipped.
///
/// As a [`Dataset`] it goes into Burn's `DataLoaderBuilder`, or into a [`LabelledLoader`](super::LabelledLoader).
///
/// ```
/// use burn::data::dataset::Dataset;
/// use burn_bert::training::{Label, LabelledTexts, TextColumns};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.csv");
/// std::fs::write(&path, "text,label\n\"good, really\",positive\nno,negative\n")?;
/// let texts = LabelledTexts::open(&path, &TextColumns::default())?;
/// assert_eq!(texts.names().names(), ["negative", "positive"]);
/// assert_eq!(texts.get(0)?.text, "good, really");
/// assert_eq!(texts.get(0)?.label, Label::Class(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LabelledTexts {
    path: PathBuf,
    columns: TextColumns,
    rows: Rows,
    index: RowIndex,
    names: LabelNames,
}

impl LabelledTexts {
    /// Opens a file and goes through it once: every row is checked, and the names of its classes are collected.
    ///
    /// Names get their ids in sorted order, as in transformers' example scripts; labels that are all integers are
    /// the ids.
    ///
    /// # Errors
    ///
    /// - [`Error::Row`], with the file and the line, if a row lacks a column or its label is not of the kind;
    /// - [`Error::Config`] if the extension is none of the above, or a column is not in the header;
    /// - [`Error::Io`], [`Error::NotUtf8`], and [`Error::File`] if there is no row.
    pub fn open(path: impl AsRef<Path>, columns: &TextColumns) -> Result<Self> {
        Self::read(path.as_ref(), columns, None)
    }

    /// Opens a file whose classes are those of another file, or of a model.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open), and [`Error::Row`] if a label is none of `names`.
    pub fn open_with_names(
        path: impl AsRef<Path>,
        columns: &TextColumns,
        names: &LabelNames,
    ) -> Result<Self> {
        Self::read(path.as_ref(), columns, Some(names.clone()))
    }

    fn read(path: &Path, columns: &TextColumns, names: Option<LabelNames>) -> Result<Self> {
        let rows = Rows::open(path, columns)?;
        let mut found = FoundNames::default();
        let index = rows.index(columns.kind, |label, line| match &names {
            Some(names) => {
                label.look_up(columns.kind, names).map(drop).map_err(|problem| bad_row(path, line, problem))
            }
            None => {
                found.add(label.names());
                Ok(())
            }
        })?;
        if index.starts.is_empty() {
            return Err(Error::no_text(path));
        }
        let names = names.unwrap_or_else(|| found.finish());
        Ok(Self { path: path.to_path_buf(), columns: columns.clone(), rows, index, names })
    }

    /// The names of the classes; empty for regression.
    pub fn names(&self) -> &LabelNames {
        &self.names
    }

    /// The size of each row in bytes, an estimate of the length of its text for [length
    /// bucketing](super::LabelledLoader::with_length_bucketing).
    pub fn sizes(&self) -> Vec<usize> {
        self.index.sizes()
    }
}

impl Dataset<LabelledText> for LabelledTexts {
    fn get(&self, index: usize) -> Result<LabelledText, DatasetError> {
        let start = self.index.starts[index];
        let text = || -> Result<LabelledText> {
            let (text, pair, label) = match &self.rows {
                Rows::Table { table, places } => {
                    let record = table.record(start)?;
                    let record: Vec<&str> = record.iter().collect();
                    places.text(&record, self.columns.kind)
                }
                Rows::Json { lines, keys } => {
                    let mut lines = lines.lines_at(start)?;
                    let line = lines.next_line()?.map_or("", |(_, line)| line);
                    keys.text(line, self.columns.kind)
                }
            }
            .map_err(|problem| bad_row(&self.path, start.line, problem))?;
            let label = label.look_up(self.columns.kind, &self.names);
            let label = label.map_err(|problem| bad_row(&self.path, start.line, problem))?;
            Ok(LabelledText { text, pair, label })
        };
        text().map_err(DatasetError::new)
    }

    fn len(&self) -> usize {
        self.index.starts.len()
    }
}

/// What a row holds, or what is wrong with it.
type Row = Result<(String, Option<String>, RawLabel), String>;

enum Rows {
    Table { table: Table, places: Columns<usize> },
    Json { lines: LineFile, keys: Columns<String> },
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table { places, .. } => f.debug_tuple("Table").field(places).finish(),
            Self::Json { keys, .. } => f.debug_tuple("Json").field(keys).finish(),
        }
    }
}

/// Where text, second text and label are.
#[derive(Debug)]
struct Columns<T> {
    text: T,
    pair: Option<T>,
    label: T,
}

impl TextColumns {
    fn locate<T>(&self, locate: impl Fn(&Column) -> Result<T>) -> Result<Columns<T>> {
        let pair = self.pair.as_ref().map(&locate).transpose()?;
        Ok(Columns { text: locate(&self.text)?, pair, label: locate(&self.label)? })
    }
}

impl Columns<usize> {
    fn text(&self, record: &[&str], kind: LabelKind) -> Row {
        let field = |place: usize| {
            record
                .get(place)
                .copied()
                .ok_or_else(|| format!("has {} fields, but none at index {place}", record.len()))
        };
        let pair = self.pair.map(field).transpose()?;
        let label = RawLabel::from_field(field(self.label)?, kind)?;
        Ok((field(self.text)?.to_string(), pair.map(String::from), label))
    }
}

impl Columns<String> {
    fn text(&self, line: &str, kind: LabelKind) -> Row {
        let object: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| format!("is not a JSON object: {error}"))?;
        let field = |key: &String| object.get(key).ok_or_else(|| format!("has no field {key:?}"));
        let text = |key: &String| match field(key)? {
            Value::String(text) => Ok(text.clone()),
            other => Err(format!("has {other} in the field {key:?}, which is not a string")),
        };
        let pair = self.pair.as_ref().map(text).transpose()?;
        Ok((text(&self.text)?, pair, RawLabel::from_json(field(&self.label)?, kind)?))
    }
}

impl Rows {
    fn open(path: &Path, columns: &TextColumns) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let invalid = |field, problem: String| Error::Config { field, problem };
        match extension.to_ascii_lowercase().as_str() {
            "jsonl" | "ndjson" | "json" => {
                let keys = columns.locate(|column| match column {
                    Column::Name(name) => Ok(name.clone()),
                    Column::Index(index) => {
                        let problem = format!("include index {index}, but JSON fields are selected by name");
                        Err(invalid("columns", problem))
                    }
                })?;
                Ok(Self::Json { lines: LineFile::open(path)?, keys })
            }
            extension @ ("csv" | "tsv") => {
                let table = Table::open(path, extension == "tsv", columns.has_header)?;
                let place = |name: &String| match &table.header {
                    Some(header) => {
                        let place = header.iter().position(|other| other == name);
                        place.ok_or_else(|| {
                            format!("include {name:?}, but {} has only {header:?}", path.display())
                        })
                    }
                    None => {
                        Err(format!("include {name:?}, but without a header columns are selected by index"))
                    }
                };
                let places = columns.locate(|column| match column {
                    Column::Index(place) => Ok(*place),
                    Column::Name(name) => place(name).map_err(|problem| invalid("columns", problem)),
                })?;
                Ok(Self::Table { table, places })
            }
            other => {
                let problem = format!("of {} is {other:?}, but must be csv, tsv or jsonl", path.display());
                Err(invalid("extension", problem))
            }
        }
    }

    /// Goes through all rows; `check` is given each label and its line.
    fn index(
        &self,
        kind: LabelKind,
        mut check: impl FnMut(&RawLabel, u64) -> Result<()>,
    ) -> Result<RowIndex> {
        match self {
            Self::Table { table, places } => table.index(|record, line| {
                let record: Vec<&str> = record.iter().collect();
                let row = places.text(&record, kind);
                let (_, _, label) = row.map_err(|problem| bad_row(table.path(), line, problem))?;
                check(&label, line)
            }),
            Self::Json { lines: file, keys } => {
                let mut lines = file.lines_at(START)?;
                let mut starts = Vec::new();
                while let Some((start, line)) = lines.next_line()? {
                    if line.trim().is_empty() {
                        continue;
                    }
                    let row = keys.text(line, kind);
                    let (_, _, label) = row.map_err(|problem| bad_row(file.path(), start.line, problem))?;
                    check(&label, start.line)?;
                    starts.push(start);
                }
                Ok(RowIndex { starts, end: lines.position().byte })
            }
        }
    }
}
