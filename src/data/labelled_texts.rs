//! Labelled texts in CSV, TSV and JSON lines, and their batches.

use super::batches::TryBatcher;
use super::label::{Classes, Label, LabelKind, LabelNames, MAX_VALUE, class_id, places, write_counts};
use super::labelled_file::{Column, Header, LabelledFile, counted};
use crate::error::{Error, Result};
use crate::model::SequenceClassificationBatch;
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::prelude::*;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A text or a pair of texts with its label: an item of [`LabelledTexts`].
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledText {
    /// The text.
    pub text: String,
    /// The second text of a pair.
    pub pair: Option<String>,
    /// The label.
    pub label: Label,
}

/// The columns of a file of [`LabelledTexts`].
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

/// Labelled texts in memory, of a file or of the caller: the texts and 72 bytes per row; while it is read, the file as well.
///
/// The extension of a file decides its format:
///
/// - `.csv`: fields in double quotes may hold commas and line breaks;
/// - `.tsv`: separated by tabs, without quoting (as in GLUE's files);
/// - `.jsonl`, `.ndjson`, `.json`: one JSON object per line; blank lines are skipped.
///
/// A [`Dataset`](burn::data::dataset::Dataset) for an [`EpochLoader`](super::EpochLoader) or Burn's `DataLoaderBuilder`.
///
/// ```
/// use burn::data::dataset::Dataset;
/// use burn_bert::data::{Label, LabelKind, LabelledTexts, TextColumns};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("train.csv");
/// std::fs::write(&path, "review,stars\n\"good, really\",positive\nno,negative\n")?;
/// let columns = TextColumns::default().with_text("review").with_label("stars", LabelKind::Class);
/// let texts = LabelledTexts::open(&path, &columns)?;
/// assert_eq!(texts.names().names(), ["negative", "positive"]);
/// assert_eq!(texts.get(0)?.text, "good, really");
/// assert_eq!(texts.get(0)?.label, Label::Class(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LabelledTexts {
    texts: Vec<LabelledText>,
    names: LabelNames,
}

impl LabelledTexts {
    /// Texts that are in memory already, with the names of their classes; no names for numbers. [`RankedPairs`] has an example.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without a text; [`Error::Data`], with the text, if a class has no name, a number is not in [−1e15, 1e15],
    /// or its label is of another kind than the first one's, or only some have a second text.
    pub fn new(texts: Vec<LabelledText>, names: LabelNames) -> Result<Self> {
        let Some(first) = texts.first() else {
            return Err(Error::Empty { input: "texts", shape: vec![0] });
        };
        for (place, text) in texts.iter().enumerate() {
            let refused = |problem| Err(Error::data(format!("texts[{place}]"), problem));
            if let Label::Value(value) = text.label
                && (value.is_nan() || value.abs() > MAX_VALUE)
            {
                return refused(format!("has the label {value}, which is not in [-1e15, 1e15]"));
            }
            if let Some(id) = text.label.ids().iter().find(|id| **id >= names.len()) {
                return refused(format!("has the label {id}, but the classes are {:?}", names.names()));
            }
            if std::mem::discriminant(&text.label) != std::mem::discriminant(&first.label) {
                let [own, other] = [&text.label, &first.label];
                return refused(format!("has the label {own:?}, but texts[0] has {other:?}"));
            }
            if text.pair.is_some() != first.pair.is_some() {
                return refused("and texts[0] must both have a second text, or neither".into());
            }
        }
        Ok(Self { texts, names })
    }

    /// Reads a file and the names of its classes.
    ///
    /// Labels are names, whose ids follow their sorted order as in transformers' example scripts, or all of the ids 0 to
    /// n − 1 of `LABEL_0`, `LABEL_1`, …. With any other number among the labels (−1, 1.0, 00, or a gap) name the classes with
    /// [`open_with_names`](Self::open_with_names).
    ///
    /// # Errors
    ///
    /// - [`Error::Row`], with the file and the line, if a row lacks a column or its label is not of the kind;
    /// - [`Error::Data`] if the extension is none of the above, a column is not in the header or is there twice, or labels are
    ///   numbers but not ids;
    /// - [`Error::File`] if it is no regular file, has no row or more than 4 GiB; [`Error::Io`], [`Error::NotUtf8`].
    pub fn open(path: impl AsRef<Path>, columns: &TextColumns) -> Result<Self> {
        Self::read(path.as_ref(), columns, None)
    }

    /// Reads a file with the classes of another file, or of a model. A label is one of `names`, or an id where these
    /// are `LABEL_0`, `LABEL_1`, …. A JSON integer is an id, and refused if one of `names` is a number. Returns the
    /// errors of [`open`](Self::open), and [`Error::Row`] if a label is none of these.
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
        // Ids were given in the order of the file; the names are only sorted once all are known.
        let (names, ids) = classes.finish(path)?;
        texts.iter_mut().for_each(|text| text.label.rename(&ids));
        Ok(Self { texts, names })
    }

    /// The same texts with the classes of a model, whatever their order. Returns [`Error::Data`] if the model lacks one.
    pub(crate) fn of_model(mut self, id2label: &[String]) -> Result<Self> {
        let places = places(&self.names, id2label)?;
        self.texts.iter_mut().for_each(|text| text.label.rename(&places));
        Ok(Self { names: LabelNames::new(id2label)?, ..self })
    }

    /// The names of the classes; empty for regression.
    pub fn names(&self) -> &LabelNames {
        &self.names
    }

    /// The size of each text or pair in bytes, an estimate of its length for [length
    /// bucketing](super::Batches::with_lengths).
    pub fn sizes(&self) -> Vec<usize> {
        let size = |text: &LabelledText| text.text.len() + text.pair.as_ref().map_or(0, String::len);
        self.texts.iter().map(size).collect()
    }
}

in_memory!(LabelledTexts.texts: LabelledText);

/// Pairs of a query and a text with a relevance in [0, 1], to train a model that ranks texts (a cross-encoder).
///
/// ```
/// use burn_bert::data::{Label, LabelNames, LabelledText, LabelledTexts, RankedPairs};
///
/// let pair = |text: &str, relevance| LabelledText {
///     text: "how do cats sleep".into(),
///     pair: Some(text.into()),
///     label: Label::Value(relevance),
/// };
/// let pairs = vec![pair("Cats sleep curled up.", 1.0), pair("Ben Nevis is a mountain.", 0.0)];
/// let pairs = RankedPairs::new(LabelledTexts::new(pairs, LabelNames::none())?)?;
/// # let _ = pairs;
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RankedPairs {
    pub(crate) pairs: LabelledTexts,
}

impl RankedPairs {
    /// Returns [`Error::Data`], with the pair, if there is no second text or the label is no number in [0, 1].
    pub fn new(pairs: LabelledTexts) -> Result<Self> {
        let is_ranked = |pair: &LabelledText| {
            pair.pair.is_some() && matches!(pair.label, Label::Value(value) if (0.0..=1.0).contains(&value))
        };
        match pairs.texts.iter().position(|pair| !is_ranked(pair)) {
            Some(place) => {
                let problem = format!(
                    "is {:?}, but for ranking must have a second text and a relevance in [0, 1] (LabelKind::Value)",
                    pairs.texts[place]
                );
                Err(Error::data(format!("texts[{place}]"), problem))
            }
            None => Ok(Self { pairs }),
        }
    }
}

/// The number of texts, and of each class its id, name and count; of numbers their range.
impl fmt::Display for LabelledTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", counted(self.texts.len(), "text"))?;
        // All labels are of one kind.
        if let Some(Label::Value(_)) = self.texts.first().map(|text| &text.label) {
            let values = self.texts.iter().filter_map(|text| match text.label {
                Label::Value(value) => Some(value),
                _ => None,
            });
            let (least, most) = values.fold((f32::MAX, f32::MIN), |(a, b), v| (a.min(v), b.max(v)));
            return write!(f, " with numbers from {least} to {most}");
        }
        write!(f, " of {} classes", self.names.len())?;
        write_counts(f, &self.names, self.texts.iter().flat_map(|text| text.label.ids()).copied())
    }
}

/// Tokenises texts or pairs and pads them to the longest of the batch.
///
/// Texts longer than the tokenizer's [`model_max_length`](BertTokenizer::model_max_length) are cut at the end.
#[derive(Clone, Debug)]
pub struct SequenceBatcher {
    tokenizer: Arc<BertTokenizer>,
    num_labels: usize,
    is_ranking: bool,
}

impl SequenceBatcher {
    /// Batches for a model with `num_labels` labels (1 for regression).
    pub fn new(tokenizer: BertTokenizer, num_labels: usize) -> Self {
        Self { tokenizer: Arc::new(tokenizer), num_labels, is_ranking: false }
    }

    /// Batches of pairs for a [ranking](crate::pipeline::Pipeline::rank) model: labels are relevance scores
    /// in [0, 1], trained with binary cross-entropy.
    pub fn for_ranking(tokenizer: BertTokenizer) -> Self {
        Self { is_ranking: true, ..Self::new(tokenizer, 1) }
    }

    fn encode(&self, items: &[LabelledText]) -> Result<Vec<Encoding>> {
        let pairs: Vec<(&str, &str)> =
            items.iter().filter_map(|item| Some((item.text.as_str(), item.pair.as_deref()?))).collect();
        if pairs.is_empty() && !self.is_ranking {
            let texts: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
            return self.tokenizer.encode_batch(&texts);
        }
        if pairs.len() < items.len() {
            let or_none = if self.is_ranking { "" } else { ", or none" };
            let (given, all) = (pairs.len(), items.len());
            let problem = format!("is given for {given} of {all} texts; give all a second text{or_none}");
            return Err(Error::data("the second text", problem));
        }
        self.tokenizer.encode_pairs(&pairs)
    }

    /// A text's classes as zeros and ones, one for each label.
    fn multi_hot(&self, ids: &[usize]) -> Result<Vec<f64>> {
        let mut targets = vec![0.0; self.num_labels];
        for &id in ids {
            let problem = || format!("is out of range: the model has {} labels", self.num_labels);
            let target = targets.get_mut(id);
            *target.ok_or_else(|| Error::data(format!("label {id}"), problem()))? = 1.0;
        }
        Ok(targets)
    }
}

impl TryBatcher for SequenceBatcher {
    type Item = LabelledText;
    type Batch = SequenceClassificationBatch;

    /// Errors: those of the tokenizer; [`Error::Empty`] without a text; [`Error::Data`] if one of several classes is not below
    /// the number of labels, the labels are of several kinds, or only some texts have a second one; for ranking, if a
    /// label is no number in [0, 1], or a text has no second one. The model checks the range of single classes.
    fn try_batch(&self, items: Vec<LabelledText>, device: &Device) -> Result<SequenceClassificationBatch> {
        let TextBatch { input, padding } = self.tokenizer.batch(&self.encode(&items)?, device)?;
        let (mut ids, mut classes, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for item in &items {
            match &item.label {
                Label::Class(id) => ids.push(class_id(*id)?),
                Label::Classes(ids) => classes.push(self.multi_hot(ids)?),
                Label::Value(value) => values.push([f64::from(*value)]),
            }
        }
        let refused = |problem: &str| Err(Error::data("the labels of a batch", problem));
        match [ids.len(), classes.len(), values.len()] {
            // Relevance is the probability of one class, so its targets are those of a multi-label model.
            [0, 0, _] if self.is_ranking => SequenceClassificationBatch::multi_label(input, padding, &values),
            _ if self.is_ranking => refused(
                "are classes, but must be numbers in [0, 1] for ranking; read them with LabelKind::Value",
            ),
            [_, 0, 0] => SequenceClassificationBatch::single_label(input, padding, &ids),
            [0, _, 0] => SequenceClassificationBatch::multi_label(input, padding, &classes),
            [0, 0, _] => SequenceClassificationBatch::regression(input, padding, &values),
            _ => refused("mix kinds of labels; use only classes, class lists or numbers"),
        }
    }
}

batcher!(SequenceBatcher: LabelledText => SequenceClassificationBatch);
