//! Labelled texts and tokens to batches.

use super::label::Label;
use super::texts::LabelledText;
use super::tokens::LabelledTokens;
use crate::embeddings::{BertEmbeddingsInput, PaddingMask};
use crate::error::{Error, Result};
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::data::dataloader::batcher::Batcher;
use burn::prelude::*;
use std::sync::Arc;

/// The label of a word piece that counts in no loss, as in PyTorch and transformers.
pub const IGNORED_LABEL: i64 = -100;

/// Texts with one label each.
#[derive(Clone, Debug)]
pub struct SequenceBatch {
    /// The tokens and their types, padded at the end.
    pub input: BertEmbeddingsInput,
    /// Where a text is padded, [B, S]; `None` if none is.
    pub padding: Option<PaddingMask>,
    /// The labels.
    pub labels: SequenceLabels,
}

/// The labels of a [`SequenceBatch`].
#[derive(Clone, Debug)]
pub enum SequenceLabels {
    /// The id of each text's class, `[B]`.
    Classes(Tensor<1, Int>),
    /// 1 for each class of a text and 0 for the others, [B, L].
    ManyClasses(Tensor<2>),
    /// A number for each text, [B, 1].
    Values(Tensor<2>),
}

/// Sentences with one label a word.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// The word pieces, padded at the end.
    pub input: BertEmbeddingsInput,
    /// Where a sentence is padded, [B, S]; `None` if none is.
    pub padding: Option<PaddingMask>,
    /// The tag of each word at its first piece, [`IGNORED_LABEL`] everywhere else, [B, S].
    pub labels: Tensor<2, Int>,
}

/// What a [`LabelledLoader`](super::LabelledLoader) makes its batches with: a [`Batcher`] whose errors are values.
pub trait TryBatcher: Send + Sync + 'static {
    /// What a dataset holds.
    type Item: Send + Sync + 'static;
    /// What a model is trained on.
    type Batch: Send + 'static;

    /// Makes a batch of items on a device.
    ///
    /// # Errors
    ///
    /// What is wrong with an item.
    fn try_batch(&self, items: Vec<Self::Item>, device: &Device) -> Result<Self::Batch>;
}

/// Tokenises texts or pairs and pads them to the longest of the batch.
///
/// Texts longer than the tokenizer's [`model_max_length`](BertTokenizer::model_max_length) are cut at the end. Give
/// the tokenizer [`with_pad_to_multiple_of`](BertTokenizer::with_pad_to_multiple_of) for fewer shapes.
#[derive(Clone, Debug)]
pub struct SequenceBatcher {
    tokenizer: Arc<BertTokenizer>,
    num_labels: usize,
}

impl SequenceBatcher {
    /// Batches for a model of so many labels (1 for regression).
    pub fn new(tokenizer: BertTokenizer, num_labels: usize) -> Self {
        Self { tokenizer: Arc::new(tokenizer), num_labels }
    }

    fn encode(&self, items: &[LabelledText]) -> Result<Vec<Encoding>> {
        let pairs: Option<Vec<(&str, &str)>> =
            items.iter().map(|item| Some((item.text.as_str(), item.pair.as_deref()?))).collect();
        match pairs {
            Some(pairs) => self.tokenizer.encode_pairs(&pairs),
            None => {
                let texts: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
                self.tokenizer.encode_batch(&texts)
            }
        }
    }

    fn labels(&self, items: &[LabelledText], device: &Device) -> Result<SequenceLabels> {
        let (batch, classes) = (items.len(), self.num_labels);
        let invalid = |problem: String| Error::Config { field: "label", problem };
        let class = |id: usize| match id < classes {
            true => Ok(id),
            false => Err(invalid(format!("is the class {id}, but the model has {classes}"))),
        };
        match items.first().map(|item| &item.label) {
            Some(Label::Class(_)) | None => {
                let ids = items.iter().map(|item| match item.label {
                    Label::Class(id) => Ok(class(id)? as i32),
                    _ => Err(invalid("is a class here and something else there".into())),
                });
                let ids = TensorData::new(ids.collect::<Result<Vec<i32>>>()?, [batch]);
                Ok(SequenceLabels::Classes(Tensor::from_data(ids, device)))
            }
            Some(Label::Classes(_)) => {
                let mut marks = vec![0.0_f32; batch * classes];
                for (row, item) in items.iter().enumerate() {
                    let Label::Classes(ids) = &item.label else {
                        return Err(invalid("is a list here and something else there".into()));
                    };
                    for &id in ids {
                        marks[row * classes + class(id)?] = 1.0;
                    }
                }
                let marks = TensorData::new(marks, [batch, classes]);
                Ok(SequenceLabels::ManyClasses(Tensor::from_data(marks, device)))
            }
            Some(Label::Value(_)) => {
                let values = items.iter().map(|item| match item.label {
                    Label::Value(value) => Ok(value),
                    _ => Err(invalid("is a number here and something else there".into())),
                });
                let values = TensorData::new(values.collect::<Result<Vec<f32>>>()?, [batch, 1]);
                Ok(SequenceLabels::Values(Tensor::from_data(values, device)))
            }
        }
    }
}

impl TryBatcher for SequenceBatcher {
    type Item = LabelledText;
    type Batch = SequenceBatch;

    /// # Errors
    ///
    /// Those of the tokenizer; [`Error::Empty`] without a text; [`Error::Config`] if a label is not below the number
    /// of labels, or the labels are of several kinds.
    fn try_batch(&self, items: Vec<LabelledText>, device: &Device) -> Result<SequenceBatch> {
        let TextBatch { input, padding } = self.tokenizer.batch(&self.encode(&items)?, device)?;
        Ok(SequenceBatch { input, padding, labels: self.labels(&items, device)? })
    }
}

/// For Burn's `DataLoaderBuilder`; panics where [`try_batch`](TryBatcher::try_batch) returns an error.
impl Batcher<LabelledText, SequenceBatch> for SequenceBatcher {
    fn batch(&self, items: Vec<LabelledText>, device: &Device) -> SequenceBatch {
        self.try_batch(items, device).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Cuts words into pieces and aligns their tags: the first piece of a word has its tag, all others have
/// [`IGNORED_LABEL`] (transformers' `run_ner.py`, 5.23).
#[derive(Clone, Debug)]
pub struct TokenBatcher {
    tokenizer: Arc<BertTokenizer>,
    num_labels: usize,
}

impl TokenBatcher {
    /// Batches for a model of so many labels.
    pub fn new(tokenizer: BertTokenizer, num_labels: usize) -> Self {
        Self { tokenizer: Arc::new(tokenizer), num_labels }
    }

    /// The labels of the pieces of one sentence.
    fn align(&self, item: &LabelledTokens, encoding: &Encoding) -> Result<Vec<i32>> {
        let mut last = None;
        let label = |&word: &Option<u32>| {
            let is_first = word.is_some() && word != last;
            last = word;
            let Some(tag) = word.filter(|_| is_first).map(|word| item.tags[word as usize]) else {
                return Ok(IGNORED_LABEL as i32);
            };
            if tag >= self.num_labels {
                let problem = format!("is the class {tag}, but the model has {}", self.num_labels);
                return Err(Error::Config { field: "tags", problem });
            }
            Ok(tag as i32)
        };
        encoding.word_ids().iter().map(label).collect()
    }
}

impl TryBatcher for TokenBatcher {
    type Item = LabelledTokens;
    type Batch = TokenBatch;

    /// # Errors
    ///
    /// Those of the tokenizer; [`Error::Empty`] without a sentence; [`Error::Config`] if a tag is not below the number
    /// of labels, or words and tags are not as many.
    fn try_batch(&self, items: Vec<LabelledTokens>, device: &Device) -> Result<TokenBatch> {
        if let Some(item) = items.iter().find(|item| item.tokens.len() != item.tags.len()) {
            let problem = format!("are {}, but there are {} tokens", item.tags.len(), item.tokens.len());
            return Err(Error::Config { field: "tags", problem });
        }
        let encodings = items.iter().map(|item| self.tokenizer.encode_words(&item.tokens));
        let encodings = encodings.collect::<Result<Vec<_>>>()?;
        let TextBatch { input, padding } = self.tokenizer.batch(&encodings, device)?;
        let [batch, seq] = input.dims();
        let mut labels = Vec::with_capacity(batch * seq);
        for (item, encoding) in items.iter().zip(&encodings) {
            let mut row = self.align(item, encoding)?;
            row.resize(seq, IGNORED_LABEL as i32);
            labels.extend(row);
        }
        let labels = Tensor::from_data(TensorData::new(labels, [batch, seq]), device);
        Ok(TokenBatch { input, padding, labels })
    }
}

/// For Burn's `DataLoaderBuilder`; panics where [`try_batch`](TryBatcher::try_batch) returns an error.
impl Batcher<LabelledTokens, TokenBatch> for TokenBatcher {
    fn batch(&self, items: Vec<LabelledTokens>, device: &Device) -> TokenBatch {
        self.try_batch(items, device).unwrap_or_else(|error| panic!("{error}"))
    }
}
