//! Pairs and triplets of sentences in CSV, TSV and JSON lines.

use super::file::{LabelledFile, Object, delimiter};
use super::label::{Classes, Label, LabelKind};
use super::pairs::SentencePair;
use super::texts::Column;
use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use csv::StringRecord;
use std::path::Path;

/// The names by which a column of labels is known, sentence-transformers'.
const LABELS: [&str; 4] = ["label", "labels", "score", "scores"];

/// The columns of a file of sentences, for [`SentencePairs`].
///
/// By default a column `label`, `labels`, `score` or `scores` has the labels, and all others are the sentences in their order:
/// anchor, positive and negatives, or the two sentences of a pair (sentence-transformers 6.2).
///
/// ```
/// use burn_bert::training::SentenceColumns;
///
/// let triplets = SentenceColumns::default().with_sentences(["query", "answer", "wrong answer"]);
/// let scored = SentenceColumns::default().with_sentences([1, 2]).with_label(0).without_header();
/// # let _ = (triplets, scored);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentenceColumns {
    sentences: Option<Vec<Column>>,
    label: Option<Column>,
    has_header: bool,
}

impl Default for SentenceColumns {
    fn default() -> Self {
        Self { sentences: None, label: None, has_header: true }
    }
}

impl SentenceColumns {
    /// Sets the columns of the sentences; other columns are not read.
    pub fn with_sentences<C: Into<Column>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        Self { sentences: Some(columns.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the column of the label.
    pub fn with_label(self, column: impl Into<Column>) -> Self {
        Self { label: Some(column.into()), ..self }
    }

    /// Treats the first row of a table as data. Columns are then selected by index.
    pub fn without_header(self) -> Self {
        Self { has_header: false, ..self }
    }
}

/// A file of pairs, triplets, or anchors with several negatives, read into memory. The formats are those of
/// [`LabelledTexts`](super::LabelledTexts).
///
/// As a [`Dataset`] it goes into Burn's `DataLoaderBuilder`, or into a [`LabelledLoader`](super::LabelledLoader), with a
/// [`SentencePairBatcher`](super::SentencePairBatcher).
///
/// ```
/// use burn::data::dataset::Dataset;
/// use burn_bert::training::{SentenceColumns, SentencePairs};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.csv");
/// std::fs::write(&path, "sentence1,sentence2,score\nA cat sleeps.,\"A cat, asleep.\",0.9\n")?;
/// let pairs = SentencePairs::open(&path, &SentenceColumns::default())?;
/// let pair = pairs.get(0)?;
/// assert_eq!((pair.positive.as_str(), pair.label), ("A cat, asleep.", Some(0.9)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SentencePairs {
    pairs: Vec<SentencePair>,
}

/// Where the sentences and the label of a row are.
struct Places<T> {
    sentences: Vec<T>,
    label: Option<T>,
}

impl SentencePairs {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// - [`Error::Row`], with the file and the line, if a row lacks a column, has another number of them than the first, has an
    ///   empty sentence or a label that is not a finite number;
    /// - [`Error::Data`] if the extension is not csv, tsv or jsonl, there are less than two columns of sentences, or a column is
    ///   not in the header or is there twice;
    /// - [`Error::File`] if it is a FIFO or a device, has no row or more than 4 GiB; [`Error::Io`], [`Error::NotUtf8`].
    pub fn open(path: impl AsRef<Path>, columns: &SentenceColumns) -> Result<Self> {
        let path = path.as_ref();
        let delimiter = delimiter(path)?;
        let file = LabelledFile::read(path)?;
        let pairs = match delimiter {
            Some(delimiter) => columns.of_table(&file, delimiter),
            None => columns.of_json(&file),
        };
        Ok(Self { pairs: file.not_empty(pairs?)? })
    }

    /// Whether the pairs have labels.
    pub fn has_labels(&self) -> bool {
        self.pairs.iter().any(|pair| pair.label.is_some())
    }

    /// The number of negatives of each anchor.
    pub fn num_negatives(&self) -> usize {
        self.pairs.first().map_or(0, |pair| pair.negatives.len())
    }

    /// The size of the sentences of each row in bytes, an estimate of their length for [length
    /// bucketing](super::LabelledLoader::with_length_bucketing).
    pub fn sizes(&self) -> Vec<usize> {
        let size = |pair: &SentencePair| {
            let negatives: usize = pair.negatives.iter().map(String::len).sum();
            pair.anchor.len() + pair.positive.len() + negatives
        };
        self.pairs.iter().map(size).collect()
    }
}

impl Dataset<SentencePair> for SentencePairs {
    fn get(&self, index: usize) -> Result<SentencePair, DatasetError> {
        Ok(self.pairs[index].clone())
    }

    fn len(&self) -> usize {
        self.pairs.len()
    }
}

impl SentenceColumns {
    fn of_table(&self, file: &LabelledFile, delimiter: u8) -> Result<Vec<SentencePair>> {
        let columns = |header: Option<&StringRecord>, width: usize| {
            let names: Vec<&str> = header.into_iter().flatten().map(str::trim).collect();
            self.places(&file.path, &names, |column| column.place(header, &file.path), (0..width).collect())
        };
        file.table(delimiter, self.has_header, columns, |places, row| {
            let sentence = |&place: &usize| Ok((format!("column {place}"), row.field(place)?.to_string()));
            let label = |place: usize| Classes::new(None).in_field(row.field(place)?, LabelKind::Value);
            pair(places.sentences.iter().map(sentence), places.label.map(label))
        })
    }

    fn of_json(&self, file: &LabelledFile) -> Result<Vec<SentencePair>> {
        let mut first: Option<(Places<String>, usize)> = None;
        let places_of = |object: &Object| {
            let names: Vec<&str> = object.names().collect();
            let places = self.places(&file.path, &names, |column| Ok(column.key(&file.path)?.to_string()), {
                names.iter().copied().map(String::from).collect()
            });
            places.map(|places| (places, names.len()))
        };
        // The columns are those of the first row. What is wrong with them is an error of the file, not of the row.
        let mut failed = None;
        let pairs = file.json_lines(|object| {
            if first.is_none() {
                match places_of(object) {
                    Ok(places) => first = Some(places),
                    Err(error) => failed = Some(error),
                }
            }
            let Some((places, count)) = &first else { return Err("has unfit columns".into()) };
            if self.sentences.is_none() && object.names().count() != *count {
                let found = object.names().collect::<Vec<_>>();
                return Err(format!("has the fields {found:?}, but the first row has {count}"));
            }
            let sentence = |name: &String| Ok((format!("field {name:?}"), object.text(name)?));
            let label = |name: &String| Classes::new(None).in_json(object.field(name)?, LabelKind::Value);
            pair(places.sentences.iter().map(sentence), places.label.as_ref().map(label))
        });
        failed.map_or(pairs, Err)
    }

    /// The columns among `all`, which are called `names`, if they have names.
    fn places<T: PartialEq>(
        &self,
        path: &Path,
        names: &[&str],
        place: impl Fn(&Column) -> Result<T>,
        all: Vec<T>,
    ) -> Result<Places<T>> {
        let usual = || names.iter().find(|name| LABELS.contains(name)).map(|&name| Column::from(name));
        let label = self.label.clone().or_else(usual).map(|column| place(&column)).transpose()?;
        let sentences: Vec<T> = match &self.sentences {
            Some(columns) => columns.iter().map(&place).collect::<Result<_>>()?,
            None => all.into_iter().filter(|place| Some(place) != label.as_ref()).collect(),
        };
        if sentences.len() < 2 {
            let problem = format!(
                "are {names:?}, of which {} has sentences; there must be two or more beside the label",
                sentences.len()
            );
            return Err(Error::data(format!("the columns of {}", path.display()), problem));
        }
        Ok(Places { sentences, label })
    }
}

/// A row from its sentences, each with the name of its column, and its label.
fn pair(
    sentences: impl Iterator<Item = Result<(String, String), String>>,
    label: Option<Result<Label, String>>,
) -> Result<SentencePair, String> {
    let mut sentences = sentences.map(|sentence| match sentence? {
        (column, text) if text.trim().is_empty() => Err(format!("has no sentence in {column}")),
        (_, text) => Ok(text),
    });
    let mut next = || sentences.next().expect("two sentences or more");
    let (anchor, positive) = (next()?, next()?);
    let negatives = sentences.collect::<Result<_, _>>()?;
    let label = match label.transpose()? {
        Some(Label::Value(value)) => Some(value),
        _ => None,
    };
    Ok(SentencePair { anchor, positive, negatives, label })
}
