//! Labelled texts in CSV, TSV and JSON lines.

use super::super::label_names::LabelNames;
use super::file::LabelledFile;
use super::label::{Classes, Label, LabelKind};
use super::rows::{Column, Header};
use crate::error::Result;
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
/// As a [`Dataset`](burn::data::dataset::Dataset) it goes into Burn's `DataLoaderBuilder`, or into a [`LabelledLoader`](super::LabelledLoader).
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
    /// - [`Error::Row`](crate::Error::Row), with the file and the line, if a row lacks a column or its label is not of the
    ///   kind;
    /// - [`Error::Data`](crate::Error::Data) if the extension is none of the above, or a column is not in the header or is
    ///   there twice;
    /// - [`Error::File`](crate::Error::File) if it is a FIFO or a device, has no row or more than 4 GiB;
    ///   [`Error::Io`](crate::Error::Io), [`Error::NotUtf8`](crate::Error::NotUtf8).
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
    /// Those of [`open`](Self::open), and [`Error::Row`](crate::Error::Row) if a label is none of these.
    pub fn open_with_names(
        path: impl AsRef<Path>,
        columns: &TextColumns,
        names: &LabelNames,
    ) -> Result<Self> {
        Self::read(path.as_ref(), columns, Some(names))
    }

    fn read(path: &Path, columns: &TextColumns, names: Option<&LabelNames>) -> Result<Self> {
        let mut classes = Classes::new(names);
        let places = |header: &Header| {
            let pair = columns.pair.as_ref().map(|pair| header.column(pair)).transpose()?;
            Ok((header.column(&columns.text)?, pair, header.column(&columns.label)?))
        };
        let mut texts = LabelledFile::rows(path, columns.has_header, places, |(text, pair, label), row| {
            let label = row.label(label, &mut classes, columns.kind)?;
            let pair = pair.as_ref().map(|pair| row.text(pair)).transpose()?;
            Ok(LabelledText { text: row.text(text)?, pair, label })
        })?;
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

in_memory!(LabelledTexts.texts: LabelledText);
