//! Labelled texts in CSV, TSV and JSON lines.

use super::super::label_names::LabelNames;
use super::file::{LabelledFile, delimiter};
use super::label::{Classes, Label, LabelKind};
use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use csv::StringRecord;
use std::path::Path;

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

/// A file of labelled texts, read into memory: the texts themselves and 72 bytes per row; while it is read, the file as
/// well.
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
    texts: Vec<LabelledText>,
    names: LabelNames,
}

impl LabelledTexts {
    /// Reads a file and the names of its classes.
    ///
    /// Names get their ids in sorted order, as in transformers' example scripts; labels that are all integers are
    /// the ids.
    ///
    /// # Errors
    ///
    /// - [`Error::Row`], with the file and the line, if a row lacks a column or its label is not of the kind;
    /// - [`Error::Data`] if the extension is none of the above, or a column is not in the header or is there twice;
    /// - [`Error::File`] if it is a FIFO or a device, has no row or more than 4 GiB; [`Error::Io`], [`Error::NotUtf8`].
    pub fn open(path: impl AsRef<Path>, columns: &TextColumns) -> Result<Self> {
        Self::read(path.as_ref(), columns, None)
    }

    /// Reads a file whose classes are those of another file, or of a model.
    ///
    /// A label is one of `names`. An integer of JSON, and any number where the names are `LABEL_0`, `LABEL_1`, …, is an
    /// id.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open), and [`Error::Row`] if a label is none of these.
    pub fn open_with_names(
        path: impl AsRef<Path>,
        columns: &TextColumns,
        names: &LabelNames,
    ) -> Result<Self> {
        Self::read(path.as_ref(), columns, Some(names))
    }

    fn read(path: &Path, columns: &TextColumns, names: Option<&LabelNames>) -> Result<Self> {
        let mut classes = Classes::new(names);
        let delimiter = delimiter(path)?;
        let file = LabelledFile::read(path)?;
        let texts = match delimiter {
            Some(delimiter) => columns.of_table(&file, delimiter, &mut classes),
            None => columns.of_json(&file, &mut classes),
        };
        let mut texts = file.not_empty(texts?)?;
        let (names, ids) = classes.finish();
        for text in &mut texts {
            match &mut text.label {
                Label::Class(id) => *id = ids[*id],
                Label::Classes(classes) => {
                    classes.iter_mut().for_each(|id| *id = ids[*id]);
                    classes.sort_unstable();
                    classes.dedup();
                }
                Label::Value(_) => {}
            }
        }
        Ok(Self { texts, names })
    }

    /// The names of the classes; empty for regression.
    pub fn names(&self) -> &LabelNames {
        &self.names
    }

    /// The size of each text or pair in bytes, an estimate of its length for [length
    /// bucketing](super::LabelledLoader::with_length_bucketing).
    pub fn sizes(&self) -> Vec<usize> {
        let size = |text: &LabelledText| text.text.len() + text.pair.as_ref().map_or(0, String::len);
        self.texts.iter().map(size).collect()
    }
}

impl Dataset<LabelledText> for LabelledTexts {
    fn get(&self, index: usize) -> Result<LabelledText, DatasetError> {
        Ok(self.texts[index].clone())
    }

    fn len(&self) -> usize {
        self.texts.len()
    }
}

impl TextColumns {
    /// The rows of a comma-separated file, or of a tab-separated one, in which quotes mean nothing.
    fn of_table(
        &self,
        file: &LabelledFile,
        delimiter: u8,
        classes: &mut Classes,
    ) -> Result<Vec<LabelledText>> {
        let columns = |header: Option<&StringRecord>, _: usize| {
            let place = |column: &Column| column.place(header, &file.path);
            Ok((place(&self.text)?, self.pair.as_ref().map(place).transpose()?, place(&self.label)?))
        };
        file.table(delimiter, self.has_header, columns, |&(text, pair, label), row| {
            let pair = pair.map(|pair| row.field(pair)).transpose()?.map(String::from);
            let label = classes.in_field(row.field(label)?, self.kind)?;
            Ok(LabelledText { text: row.field(text)?.to_string(), pair, label })
        })
    }

    fn of_json(&self, file: &LabelledFile, classes: &mut Classes) -> Result<Vec<LabelledText>> {
        let (text, label) = (self.text.key(&file.path)?, self.label.key(&file.path)?);
        let pair = self.pair.as_ref().map(|pair| pair.key(&file.path)).transpose()?;
        file.json_lines(|object| {
            let label = classes.in_json(object.field(label)?, self.kind)?;
            let pair = pair.map(|pair| object.text(pair)).transpose()?;
            Ok(LabelledText { text: object.text(text)?, pair, label })
        })
    }
}

impl Column {
    /// The index of the column in a table.
    pub(super) fn place(&self, header: Option<&StringRecord>, path: &Path) -> Result<usize> {
        let name = match self {
            Self::Index(place) => return Ok(*place),
            Self::Name(name) => name,
        };
        let mut places = header.into_iter().flatten().zip(0..).filter(|(other, _)| other.trim() == name);
        let problem = match (header, places.next(), places.next()) {
            (None, ..) => "is selected by name, but without a header columns are selected by index".into(),
            (_, Some((_, place)), None) => return Ok(place),
            (_, Some(_), Some(_)) => "is in the header twice; rename one, or select it by index".into(),
            (Some(header), None, _) => {
                format!("is not in the header, which is {:?}", header.iter().collect::<Vec<_>>())
            }
        };
        Err(Error::data(format!("column {name:?} of {}", path.display()), problem))
    }

    /// The field of a JSON object.
    pub(super) fn key(&self, path: &Path) -> Result<&str> {
        match self {
            Self::Name(name) => Ok(name),
            Self::Index(index) => Err(Error::data(
                format!("column {index} of {}", path.display()),
                "is selected by index, but JSON fields are selected by name",
            )),
        }
    }
}
