use super::examples::{Example, Examples, check, counted};
use super::labelled_file::{Column, Columns, FileRows, LabelledFile};
use super::labels::{Classes, LabelKind};
use crate::error::{Error, Result};
use crate::model::SentencePairBatch;
use crate::text::{BertTokenizer, TextBatch};
use burn::prelude::*;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::Path;

// What columns are by their names, without case: as in sentence-transformers 6.2, and the usual ones besides.

/// Columns of labels.
const LABELS: [&str; 5] = ["label", "labels", "score", "scores", "similarity"];
/// Columns that number the rows, besides those whose names end in `_id`; pandas writes its index without a name.
const IDS: [&str; 5] = ["", "id", "idx", "index", "unnamed: 0"];
/// Columns of anchors, positives and negatives: the order in which sentences are read.
const ORDER: [&[&str]; 3] = [
    &["anchor", "question", "query", "hypothesis"],
    &["positive", "answer", "response", "entailment"],
    &["negative", "contradiction"],
];

/// Pairs, triplets, or anchors with several negatives in memory, of files as those of [`LabelledTexts`](super::LabelledTexts).
///
/// By default a column `label`, `labels`, `score`, `scores` or `similarity` holds the labels, and all others the sentences in
/// order: anchor, positive and negatives (sentence-transformers 6.2). Columns without a name, or called `id`, `idx`, `index` or
/// `…_id`, are not read; [`summary`](Examples::summary) says what each was read as. If the sentences are chosen, so must be the label.
/// [`Examples`] has an example.
pub type SentencePairs = Examples<SentencePair>;

impl SentencePairs {
    /// Reads pairs of sentences from a CSV, TSV or JSON lines file. Errors are those of
    /// [`LabelledTexts::open`](super::LabelledTexts::open); [`Error::Row`] also if a row has another number of columns than the
    /// first, an empty sentence or a label that is not a finite number; [`Error::Data`] also if there are fewer than two columns of
    /// sentences, several may hold the labels, or a column that was not chosen has numbers alone.
    pub fn open(path: impl AsRef<Path>, columns: &Columns) -> Result<Self> {
        let file = LabelledFile::read(path.as_ref())?;
        let rows = file.rows(!columns.without_header)?;
        let (sentences, label_column, notes) = Self::find(columns, &rows, path.as_ref())?;
        let role = |index: usize| match label_column {
            Some(_) => "sentence",
            None => ["anchor", "positive"].get(index).copied().unwrap_or("negative"),
        };
        let mut read: Vec<_> =
            sentences.iter().enumerate().map(|(index, column)| (column, role(index))).collect();
        read.extend(label_column.as_ref().map(|label| (label, "label")));
        let roles = rows.roles(&read);
        let (width, names) = (rows.all().len(), rows.names.clone().unwrap_or_default());
        let pairs = rows.read(|row| {
            // A JSON object may have other fields than the first one, which nobody chose.
            if columns.texts.is_none() && row.len() != width {
                return Err(format!("has {}, but the first row has {width}", counted(row.len(), "field")));
            }
            let mut texts = sentences.iter().map(|column| match row.text(column)? {
                text if text.trim().is_empty() => Err(format!("has no sentence in {}", column.described())),
                text => Ok(text),
            });
            let mut next = || texts.next().expect("two sentences or more");
            let (anchor, positive) = (next()?, next()?);
            let negatives = texts.collect::<Result<_, _>>()?;
            // Numbers alone: no class is ever looked up.
            let label = |column| row.label(column, &mut Classes::new(LabelKind::Value, None));
            let label = label_column.as_ref().map(label).transpose()?.and_then(|label| label.number());
            Ok(SentencePair { anchor, positive, negatives, label })
        })?;
        // Of columns that nobody chose: a similarity or a number of the row is not a sentence.
        let is_number = |text: &String| text.trim().parse::<f64>().is_ok();
        let numbers = (0..sentences.len())
            .find(|&index| pairs.iter().all(|pair| pair.sentences().nth(index).is_some_and(is_number)));
        if let Some(index) = numbers.filter(|_| columns.texts.is_none()) {
            let problem = "has numbers alone, and would be read as sentences; name it label or score if it holds the labels, \
                           or choose the columns";
            let column = match &sentences[index] {
                Column::Index(index) => {
                    names.get(*index).map_or(index.to_string(), |name| format!("{name:?}"))
                }
                Column::Name(name) => format!("{name:?}"),
            };
            return Err(Error::data(format!("column {column} of {}", path.as_ref().display()), problem));
        }
        Ok(Self::new(pairs, Vec::new())?.with_columns(roles, notes))
    }

    /// Whether the pairs have labels.
    pub fn has_labels(&self) -> bool {
        self.items.iter().any(|pair| pair.label.is_some())
    }

    /// The number of negatives of each anchor.
    pub fn num_negatives(&self) -> usize {
        self.items.first().map_or(0, |pair| pair.negatives.len())
    }

    /// Hashes of the sentences of each pair, for [`Batches::with_texts`](super::Batches::with_texts).
    pub(crate) fn text_hashes(&self) -> Vec<Vec<u64>> {
        self.items.iter().map(|pair| pair.sentences().map(|text| hash(text)).collect()).collect()
    }

    /// The columns of the sentences and of the label, and what is notable about them.
    fn find(
        columns: &Columns,
        rows: &FileRows,
        path: &Path,
    ) -> Result<(Vec<Column>, Option<Column>, Vec<String>)> {
        let names: Vec<&str> = rows.names.iter().flatten().map(String::as_str).collect();
        let refused = |problem| Err(Error::data(format!("the columns of {}", path.display()), problem));
        let label = match (&columns.labels[..], &columns.texts) {
            ([label], _) => Some(rows.column(label)?),
            ([], Some(_)) => None,
            // Sentences that are chosen exclude a label that is not, since any other column is not read.
            ([], None) => {
                match names.iter().filter(|name| is_one_of(name, &LABELS)).collect::<Vec<_>>()[..] {
                    [] => None,
                    [&name] => Some(rows.column(&name.into())?),
                    ref several => {
                        return refused(format!(
                            "are {names:?}, of which {several:?} may have labels; choose the sentences and the label"
                        ));
                    }
                }
            }
            _ => return refused("of labels are several, but a pair has one".into()),
        };
        let sentences: Vec<Column> = match &columns.texts {
            Some(columns) => columns.iter().map(|column| rows.column(column)).collect::<Result<_>>()?,
            None => {
                let is_id = |column: &Column| rows.name(column).is_some_and(is_id);
                rows.all()
                    .into_iter()
                    .filter(|column| Some(column) != label.as_ref() && !is_id(column))
                    .collect()
            }
        };
        if sentences.len() < 2 {
            return refused(format!(
                "are {names:?}, of which {} has sentences; there must be two or more beside the label",
                sentences.len()
            ));
        }
        let misplaced = sentences.iter().enumerate().find_map(|(index, column)| {
            let name = rows.name(column)?;
            let usual = ORDER.iter().position(|names| is_one_of(name, names)).filter(|&usual| usual != index)?;
            Some(format!(
                "column {name:?} is number {} of the sentences, but by its name number {}: the first is the anchor, the \
                 second its positive; if they are not meant so, choose the columns in their order",
                index + 1,
                usual + 1
            ))
        });
        // What is chosen has the order that is meant, and sentences that are compared have none.
        let misplaced = misplaced.filter(|_| columns.texts.is_none() && label.is_none());
        Ok((sentences, label, misplaced.into_iter().collect()))
    }
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name.trim()))
}

fn is_id(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    is_one_of(&name, &IDS) || ["_id", "_ids", "_idx"].iter().any(|end| name.ends_with(end))
}

fn hash(text: &str) -> u64 {
    // Without the random keys of the default: ranks must agree on the order of the pairs.
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

impl Example for SentencePair {
    const NAME: &'static str = "pairs";

    fn check(&self, first: &Self) -> Result<(), String> {
        match self.label {
            _ if self.negatives.len() != first.negatives.len() => {
                let [own, other] = [self, first].map(|pair| counted(pair.negatives.len(), "negative"));
                Err(format!("has {own}, but pairs[0] has {other}"))
            }
            label if label.is_some() != first.label.is_some() => {
                Err("and pairs[0] must both have a label, or neither".into())
            }
            Some(label) if !label.is_finite() => Err(format!("has the label {label}, which is not finite")),
            _ => Ok(()),
        }
    }

    fn number(&self) -> Option<f32> {
        self.label
    }

    fn size(&self) -> usize {
        let negatives: usize = self.negatives.iter().map(String::len).sum();
        self.anchor.len() + self.positive.len() + negatives
    }
}

/// Two sentences that belong together or are compared, with hard negatives: an item of [`SentencePairs`]. [`Examples`] has an
/// example.
#[derive(Clone, Debug, PartialEq)]
pub struct SentencePair {
    /// The first sentence, for example a question.
    pub anchor: String,
    /// The sentence that it belongs to, for example the answer; with a label, the sentence that it is compared with.
    pub positive: String,
    /// Hard negatives: similar sentences that it does not belong to.
    pub negatives: Vec<String>,
    /// How similar the sentences are.
    pub label: Option<f32>,
}

impl SentencePair {
    /// The anchor, the positive and the negatives.
    fn sentences(&self) -> impl Iterator<Item = &String> {
        [&self.anchor, &self.positive].into_iter().chain(&self.negatives)
    }

    pub(crate) fn sentences_mut(&mut self) -> impl Iterator<Item = &mut String> {
        [&mut self.anchor, &mut self.positive].into_iter().chain(&mut self.negatives)
    }

    /// A pair without a hard negative and a label.
    pub fn new(anchor: impl Into<String>, positive: impl Into<String>) -> Self {
        Self { anchor: anchor.into(), positive: positive.into(), negatives: Vec::new(), label: None }
    }

    /// Tokenises pairs for [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding), cut at the tokenizer's
    /// [`model_max_length`](BertTokenizer::model_max_length). The candidates are the positives, then the first negative of each
    /// pair, then the second, and so on.
    ///
    /// Errors: those of the tokenizer; [`Error::Empty`] without a pair; [`Error::Data`] if pairs differ in the number of their
    /// negatives, only some have a label, or one is not finite.
    pub fn batch(pairs: &[Self], tokenizer: &BertTokenizer, device: &Device) -> Result<SentencePairBatch> {
        check(pairs)?;
        // All have as many, which was checked.
        let columns = pairs[0].negatives.len();
        let labels: Vec<f32> = pairs.iter().filter_map(|pair| pair.label).collect();
        // All candidates in one batch: the encoder runs once over them.
        let anchors: Vec<&str> = pairs.iter().map(|pair| pair.anchor.as_str()).collect();
        let positives = pairs.iter().map(|pair| pair.positive.as_str());
        let negatives =
            (0..columns).flat_map(|column| pairs.iter().map(move |pair| &*pair.negatives[column]));
        let candidates: Vec<&str> = positives.chain(negatives).collect();
        let texts = [&anchors, &candidates].map(|texts| texts.iter().map(|text| hash(text)).collect());
        let batch = |sentences: &[&str]| -> Result<_> {
            let TextBatch { input, padding } =
                tokenizer.batch(&tokenizer.encode_batch(sentences)?, device)?;
            Ok((input, padding))
        };
        let batch = SentencePairBatch::new(batch(&anchors)?, batch(&candidates)?)?;
        let batch = SentencePairBatch { texts: Some(texts), ..batch };
        if labels.is_empty() { Ok(batch) } else { batch.with_labels(&labels) }
    }

    /// Whether a sentence is cut at the tokenizer's limit.
    pub(crate) fn is_cut(&self, tokenizer: &BertTokenizer) -> Result<bool> {
        for sentence in self.sentences() {
            if tokenizer.encode(sentence)?.is_truncated() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
