use super::examples::{Example, Examples, check};
use super::labelled_file::{Column, Columns, LabelledFile};
use super::labels::{Classes, Label, LabelKind, class_id, multi_hot_len};
use crate::error::{Error, Result};
use crate::model::SequenceClassificationBatch;
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::prelude::*;
use std::path::Path;
use tokenizers::utils::parallelism::MaybeParallelRefIterator;

/// A text or a pair of texts with its label: an item of [`LabelledTexts`]; [`Examples`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledText {
    /// The text.
    pub text: String,
    /// The second text of a pair.
    pub pair: Option<String>,
    /// The label.
    pub label: Label,
}

/// Labelled texts in memory: the texts and 72 bytes per row; while it is read, the file as well.
///
/// The extension of a file decides its format: `.csv`, with commas and line breaks in double quotes; `.tsv`, without quoting (as
/// GLUE's); `.jsonl`, `.ndjson` or `.json`, with one object per line. By default the text is in the column `text`, and one class
/// in `label`. [`Examples`] has an example.
pub type LabelledTexts = Examples<LabelledText>;

impl Example for LabelledText {
    const NAME: &'static str = "texts";

    fn check(&self, first: &Self) -> Result<(), String> {
        let (own, kind) = (&self.label, self.label.kind());
        if let Some(number) = own.number() {
            kind.number(Some(number))
                .map_err(|wanted| format!("has the label {number}, which is not {wanted}"))?;
        }
        if kind != first.label.kind() {
            return Err(format!("has the label {own:?}, but texts[0] has {:?}", first.label));
        }
        if self.pair.is_some() != first.pair.is_some() {
            return Err("and texts[0] must both have a second text, or neither".into());
        }
        if kind == LabelKind::Relevance && self.pair.is_none() {
            return Err("has a relevance, but no second text; choose its column too".into());
        }
        Ok(())
    }

    fn number(&self) -> Option<f32> {
        self.label.number()
    }

    fn has_empty_text(&self) -> bool {
        [&self.text].into_iter().chain(&self.pair).any(|text| text.trim().is_empty())
    }

    fn classes(&self) -> &[usize] {
        self.label.ids()
    }

    fn rename(&mut self, ids: &[usize]) {
        self.label.rename(ids);
    }

    fn size(&self) -> usize {
        self.text.len() + self.pair.as_ref().map_or(0, String::len)
    }
}

impl LabelledTexts {
    pub(crate) fn kind(&self) -> LabelKind {
        self.items.first().map_or(LabelKind::Class, |text| text.label.kind())
    }

    /// Reads a file and the names of its classes.
    ///
    /// Labels are names, whose ids follow their sorted order as in transformers' example scripts, or all of the ids 0 to
    /// n − 1 of `LABEL_0`, `LABEL_1`, …; for other numbers name the classes with [`open_with_names`](Self::open_with_names).
    ///
    /// # Errors
    ///
    /// [`Error::Row`], with the file and the line, if a row lacks a column or its label is not of the kind; [`Error::Data`] if the
    /// extension is none of the above, a column is not in the header or is there twice, or labels are numbers but not ids;
    /// [`Error::File`] if it is not a regular file, has no row or more than 4 GiB; [`Error::Io`], [`Error::NotUtf8`].
    pub fn open(path: impl AsRef<Path>, columns: &Columns) -> Result<Self> {
        Self::read(path.as_ref(), columns, None)
    }

    /// Reads a file with the classes of another file, or of a model. A label is one of `names`, or an id where these
    /// are `LABEL_0`, `LABEL_1`, …; a JSON integer is an id, refused if one of `names` is a number. Returns the errors of
    /// [`open`](Self::open), also for a label that is none of these.
    pub fn open_with_names(path: impl AsRef<Path>, columns: &Columns, names: &[String]) -> Result<Self> {
        Self::read(path.as_ref(), columns, Some(names))
    }

    fn read(path: &Path, columns: &Columns, names: Option<&[String]>) -> Result<Self> {
        let file = LabelledFile::read(path)?;
        let rows = file.rows(!columns.without_header)?;
        let mut classes = Classes::new(columns.kind, names);
        let (text, pair) = match columns.texts.as_deref() {
            None => (rows.column_but_for_case("text")?, None),
            Some([text]) => (rows.column(text)?, None),
            Some([text, pair]) => (rows.column(text)?, Some(rows.column(pair)?)),
            Some(texts) => {
                let problem = format!("are {}, but must be one, or two of a pair", texts.len());
                return Err(Error::data("the columns of texts", problem));
            }
        };
        let labels: Vec<Column> = match &columns.labels[..] {
            [] => vec![rows.column_but_for_case("label")?],
            labels => labels.iter().map(|label| rows.column(label)).collect::<Result<_>>()?,
        };
        let multi_hot = match &labels[..] {
            [_] if columns.kind != LabelKind::Classes => None,
            [label] => {
                let rows = file.rows(!columns.without_header)?;
                let len = rows.find_map(|row| multi_hot_len(row.field(label).ok()?));
                let ids = |len| (0..len).map(|id: usize| id.to_string()).collect();
                len.map(|len| names.map_or_else(|| ids(len), |names| names.to_vec()))
            }
            several => {
                let name =
                    |(id, label): (usize, _)| rows.name(label).map_or_else(|| id.to_string(), String::from);
                Some((0..).zip(several).map(name).collect::<Vec<_>>())
            }
        };
        if let Some(names) = multi_hot {
            let problem = |problem| Error::data(format!("a column of {}", path.display()), problem);
            classes.set_multi_hot(&names).map_err(problem)?;
        }
        let mut read = vec![(&text, "text")];
        read.extend(pair.as_ref().map(|pair| (pair, "second text")));
        read.extend(labels.iter().map(|label| (label, "label")));
        let roles = rows.roles(&read);
        let texts = rows.read(|row| {
            let label = match &labels[..] {
                [label] => row.label(label, &mut classes)?,
                several => {
                    let bits = several.iter().map(|label| row.field(label).cloned());
                    classes.classes(&bits.collect::<Result<Vec<_>, _>>()?)?
                }
            };
            let pair = pair.as_ref().map(|pair| row.text(pair)).transpose()?;
            Ok(LabelledText { text: row.text(&text)?, pair, label })
        })?;
        let (file, columns) = (path.to_path_buf(), columns.clone());
        let reread = move |names: &[String]| Self::read(&file, &columns, Some(names)).map(drop);
        Ok(Self::from_file(path, texts, classes, reread)?.with_columns(roles, Vec::new()))
    }
}

impl LabelledText {
    /// Tokenises texts or pairs and pads them to the longest, for a model with `num_labels` labels (1 for regression and
    /// reranking). [`EpochLoader`](super::EpochLoader) has an example. Texts longer than the tokenizer's
    /// [`model_max_length`](BertTokenizer::model_max_length) are cut at the end.
    ///
    /// Errors: those of the tokenizer; [`Error::Empty`] without a text; [`Error::Data`] if one of several classes is not below
    /// `num_labels`, or the texts do not fit each other. The model checks the range of single classes.
    pub fn batch(
        texts: &[Self],
        tokenizer: &BertTokenizer,
        num_labels: usize,
        device: &Device,
    ) -> Result<SequenceClassificationBatch> {
        check(texts)?;
        let encodings: Vec<_> = texts.maybe_par_iter().map(|text| text.encode(tokenizer)).collect();
        let encodings = encodings.into_iter().collect::<Result<Vec<_>>>()?;
        let TextBatch { input, padding } = tokenizer.batch(&encodings, device)?;
        let labels = || texts.iter().map(|item| &item.label);
        let targets = || labels().map(|label| label.targets(num_labels)).collect::<Result<Vec<_>>>();
        // All are of its kind, which was checked.
        match texts[0].label.kind() {
            LabelKind::Class => {
                let ids: Vec<i64> = labels().flat_map(Label::ids).map(|&id| class_id(id)).collect();
                SequenceClassificationBatch::single_label(input, padding, &ids)
            }
            LabelKind::Value => SequenceClassificationBatch::regression(input, padding, &targets()?),
            // Relevance is the probability of one class, so its targets are those of a multi-label model.
            LabelKind::Classes | LabelKind::Relevance => {
                SequenceClassificationBatch::multi_label(input, padding, &targets()?)
            }
        }
    }

    /// The tokens of the text, or of both texts.
    pub(crate) fn encode(&self, tokenizer: &BertTokenizer) -> Result<Encoding> {
        match &self.pair {
            Some(pair) => tokenizer.encode_pair(&self.text, pair),
            None => tokenizer.encode(&self.text),
        }
    }
}
