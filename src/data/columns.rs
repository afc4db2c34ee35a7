//! The columns of a file.

use super::label::LabelKind;
use std::convert::Infallible;
use std::str::FromStr;

/// The columns of a file of [`LabelledTexts`](super::LabelledTexts) or [`SentencePairs`](super::SentencePairs), which say what
/// they are by default. Columns that are not chosen are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    pub(super) texts: Option<Vec<Column>>,
    pub(super) label: Option<Column>,
    pub(super) kind: LabelKind,
    pub(super) has_header: bool,
}

/// With a header.
impl Default for Columns {
    fn default() -> Self {
        Self { texts: None, label: None, kind: LabelKind::Class, has_header: true }
    }
}

impl Columns {
    /// Sets the columns of the texts: of a text or a pair of texts, or of all sentences.
    pub fn with_texts<C: Into<Column>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        Self { texts: Some(columns.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the column of the label.
    pub fn with_label(self, column: impl Into<Column>) -> Self {
        Self { label: Some(column.into()), ..self }
    }

    /// Sets what the labels of [`LabelledTexts`](super::LabelledTexts) are; one class by default.
    pub fn with_kind(self, kind: LabelKind) -> Self {
        Self { kind, ..self }
    }

    /// Treats the first row of a table as data. Columns are then selected by index.
    pub fn without_header(self) -> Self {
        Self { has_header: false, ..self }
    }
}

/// A column of a table, or a field of a JSON object, of [`Columns`]; [`LabelledTexts`](super::LabelledTexts) has an example.
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

impl Column {
    /// As messages name it.
    pub(super) fn described(&self) -> String {
        match self {
            Self::Name(name) => format!("field {name:?}"),
            Self::Index(index) => format!("column {index}"),
        }
    }
}

/// A number of things, such as `1 field` or `2 fields`.
pub(super) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
