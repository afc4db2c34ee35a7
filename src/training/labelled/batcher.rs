//! Labelled texts and tokens to batches.

use super::label::Label;
use super::texts::LabelledText;
use super::tokens::LabelledTokens;
use crate::error::{Error, Result};
use crate::model::{SequenceClassificationBatch, TokenClassificationBatch};
use crate::text::{BertTokenizer, Encoding, TextBatch};
use burn::prelude::*;
use std::sync::Arc;

/// The label of a word piece that the loss ignores, as in PyTorch, transformers and [`TokenClassificationBatch`].
/// [`TokenBatcher`] sets it.
pub const IGNORED_LABEL: i64 = -100;

/// Makes the batches of a [`LabelledLoader`](super::LabelledLoader): a [`Batcher`](burn::data::dataloader::batcher::Batcher) that returns errors.
pub trait TryBatcher: Send + Sync + 'static {
    /// An item of the dataset.
    type Item: Send + Sync + 'static;
    /// A batch of the model.
    type Batch: Send + 'static;

    /// Makes a batch of items on a device.
    ///
    /// # Errors
    ///
    /// The error of an item.
    fn try_batch(&self, items: Vec<Self::Item>, device: &Device) -> Result<Self::Batch>;
}

/// Makes a [`TryBatcher`] one of Burn's batchers.
macro_rules! batcher {
    ($batcher:ident) => {
        /// For Burn's `DataLoaderBuilder`; panics where [`try_batch`](TryBatcher::try_batch) returns an error.
        impl burn::data::dataloader::batcher::Batcher<<Self as TryBatcher>::Item, <Self as TryBatcher>::Batch>
            for $batcher
        {
            fn batch(
                &self,
                items: Vec<<Self as TryBatcher>::Item>,
                device: &Device,
            ) -> <Self as TryBatcher>::Batch {
                self.try_batch(items, device).unwrap_or_else(|error| panic!("{error}"))
            }
        }
    };
}
pub(super) use batcher;

/// Tokenises texts or pairs and pads them to the longest of the batch.
///
/// Texts longer than the tokenizer's [`model_max_length`](BertTokenizer::model_max_length) are cut at the end. Give
/// the tokenizer [`with_pad_to_multiple_of`](BertTokenizer::with_pad_to_multiple_of) for fewer shapes.
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

    /// Batches of pairs for a model that [ranks](crate::model::BertForSequenceClassification::rank): numbers in [0, 1] are
    /// the relevance of the second text for the first, and are learned with binary cross-entropy.
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
            let problem = format!(
                "is given for {} of {} texts; give all a second text{or_none}",
                pairs.len(),
                items.len()
            );
            return Err(Error::data("the second text", problem));
        }
        self.tokenizer.encode_pairs(&pairs)
    }

    /// The marks of a text's classes, one for each label.
    fn marks(&self, ids: &[usize]) -> Result<Vec<f64>> {
        let mut marks = vec![0.0; self.num_labels];
        for &id in ids {
            let problem = || format!("is out of range: the model has {} labels", self.num_labels);
            let mark = marks.get_mut(id);
            *mark.ok_or_else(|| Error::data(format!("label {id}"), problem()))? = 1.0;
        }
        Ok(marks)
    }
}

/// A number that no model has as a class.
fn no_class(id: usize) -> Error {
    Error::data(format!("label {id}"), format!("is above {}", u32::MAX))
}

impl TryBatcher for SequenceBatcher {
    type Item = LabelledText;
    type Batch = SequenceClassificationBatch;

    /// # Errors
    ///
    /// Those of the tokenizer; [`Error::Empty`] without a text; [`Error::Data`] if one of several classes is not below
    /// the number of labels, the labels are of several kinds, or only some texts have a second one; for ranking, if a
    /// label is no number in [0, 1], or a text has no second one. One class per text is compared with the number of
    /// labels by the model.
    fn try_batch(&self, items: Vec<LabelledText>, device: &Device) -> Result<SequenceClassificationBatch> {
        let TextBatch { input, padding } = self.tokenizer.batch(&self.encode(&items)?, device)?;
        let (mut ids, mut marks, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for item in &items {
            match &item.label {
                Label::Class(id) => ids.push(i64::try_from(*id).map_err(|_| no_class(*id))?),
                Label::Classes(classes) => marks.push(self.marks(classes)?),
                Label::Value(value) => values.push([f64::from(*value)]),
            }
        }
        let refused = |problem: &str| Err(Error::data("the labels of a batch", problem));
        match [ids.len(), marks.len(), values.len()] {
            [0, 0, _] if self.is_ranking => SequenceClassificationBatch::multi_label(input, padding, &values),
            _ if self.is_ranking => refused(
                "are classes, but must be numbers in [0, 1] for ranking; read them with LabelKind::Value",
            ),
            [_, 0, 0] => SequenceClassificationBatch::single_label(input, padding, &ids),
            [0, _, 0] => SequenceClassificationBatch::multi_label(input, padding, &marks),
            [0, 0, _] => SequenceClassificationBatch::regression(input, padding, &values),
            _ => refused("mix kinds of labels; use only classes, class lists or numbers"),
        }
    }
}

batcher!(SequenceBatcher);

/// Splits words into pieces and aligns their tags: the first piece of a word has its tag, all others have
/// [`IGNORED_LABEL`] (transformers' `run_ner.py`, 5.23). Used like a [`SequenceBatcher`] in a
/// [`LabelledLoader`](super::LabelledLoader).
#[derive(Clone, Debug)]
pub struct TokenBatcher {
    tokenizer: Arc<BertTokenizer>,
}

impl TokenBatcher {
    /// Batches for the model that the tokenizer belongs to.
    pub fn new(tokenizer: BertTokenizer) -> Self {
        Self { tokenizer: Arc::new(tokenizer) }
    }
}

/// The labels of the pieces of one sentence.
fn align(item: &LabelledTokens, encoding: &Encoding) -> Result<Vec<i64>> {
    let mut last = None;
    let label = |&word: &Option<u32>| {
        let is_first = word != last;
        last = word;
        let tag = word.filter(|_| is_first).map(|word| item.tags[word as usize]);
        tag.map_or(Ok(IGNORED_LABEL), |tag| i64::try_from(tag).map_err(|_| no_class(tag)))
    };
    encoding.word_ids().iter().map(label).collect()
}

impl TryBatcher for TokenBatcher {
    type Item = LabelledTokens;
    type Batch = TokenClassificationBatch;

    /// # Errors
    ///
    /// Those of the tokenizer; [`Error::Empty`] without a sentence; [`Error::Data`] if the numbers of words and tags
    /// differ. The model compares tags with its number of labels.
    fn try_batch(&self, items: Vec<LabelledTokens>, device: &Device) -> Result<TokenClassificationBatch> {
        if let Some(item) = items.iter().find(|item| item.tokens.len() != item.tags.len()) {
            let problem = format!("must have one tag each, but the tags are {:?}", item.tags);
            return Err(Error::data(format!("the words {:?}", item.tokens), problem));
        }
        let encodings = items.iter().map(|item| self.tokenizer.encode_words(&item.tokens));
        let encodings = encodings.collect::<Result<Vec<_>>>()?;
        let TextBatch { input, padding } = self.tokenizer.batch(&encodings, device)?;
        let [_, seq] = input.dims();
        let mut labels = Vec::with_capacity(items.len());
        for (item, encoding) in items.iter().zip(&encodings) {
            let mut row = align(item, encoding)?;
            row.resize(seq, IGNORED_LABEL);
            labels.push(row);
        }
        TokenClassificationBatch::new(input, padding, &labels)
    }
}

batcher!(TokenBatcher);
