//! Pairs of sentences to batches.

use super::batcher::TryBatcher;
use crate::error::{Error, Result};
use crate::model::SentencePairBatch;
use crate::text::{BertTokenizer, TextBatch};
use burn::data::dataloader::batcher::Batcher;
use burn::prelude::*;
use std::sync::Arc;

/// Two sentences, what they have in common or not, for training with a [`SentencePairBatcher`]; [`SentencePairs`] reads them.
///
/// [`SentencePairs`]: super::SentencePairs
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
    /// A pair without a hard negative and a label.
    pub fn new(anchor: impl Into<String>, positive: impl Into<String>) -> Self {
        Self { anchor: anchor.into(), positive: positive.into(), negatives: Vec::new(), label: None }
    }
}

/// Tokenises pairs for the training of a [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding).
///
/// The candidates of a batch are its positives, then the first negative of each pair, then the second, and so on. For a
/// [`MultipleNegativesRankingLoss`](crate::model::MultipleNegativesRankingLoss) the pairs of a batch should have different
/// positives: the positive of one is a negative of all others.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::text::BertTokenizer;
/// use burn_bert::training::{SentencePair, SentencePairBatcher, TryBatcher};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsun\nrain\n")?;
/// let batcher = SentencePairBatcher::new(BertTokenizer::from_pretrained(dir.path())?);
/// let pairs = vec![SentencePair::new("sun", "sun sun"), SentencePair::new("rain", "rain rain")];
/// let batch = batcher.try_batch(pairs, &Device::default())?;
/// assert_eq!(batch.candidates.dims(), [2, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SentencePairBatcher {
    tokenizer: Arc<BertTokenizer>,
}

impl SentencePairBatcher {
    /// Batches for the model that the tokenizer belongs to. Sentences longer than its
    /// [`model_max_length`](BertTokenizer::model_max_length) are truncated at the end.
    pub fn new(tokenizer: BertTokenizer) -> Self {
        Self { tokenizer: Arc::new(tokenizer) }
    }
}

impl TryBatcher for SentencePairBatcher {
    type Item = SentencePair;
    type Batch = SentencePairBatch;

    /// # Errors
    ///
    /// Those of the tokenizer; [`Error::Empty`] without a pair; [`Error::Data`] if pairs differ in the number of their negatives,
    /// only some have a label, or one is not finite.
    fn try_batch(&self, items: Vec<SentencePair>, device: &Device) -> Result<SentencePairBatch> {
        if items.is_empty() {
            return Err(Error::Empty { input: "pairs", shape: vec![0] });
        }
        let columns = items[0].negatives.len();
        if let Some(other) = items.iter().find(|item| item.negatives.len() != columns) {
            let problem = format!("has {}, but another of the batch has {columns}", other.negatives.len());
            return Err(Error::data(format!("the list of negatives of {:?}", other.anchor), problem));
        }
        let labels: Vec<f32> = items.iter().filter_map(|item| item.label).collect();
        if !labels.is_empty() && labels.len() < items.len() {
            let problem =
                format!("are given for {} of {} pairs; give all a label, or none", labels.len(), items.len());
            return Err(Error::data("the labels", problem));
        }
        let batch = |sentences: Vec<&str>| -> Result<_> {
            let encodings = self.tokenizer.encode_batch(&sentences)?;
            let TextBatch { input, padding } = self.tokenizer.batch(&encodings, device)?;
            Ok((input, padding))
        };
        let positives = items.iter().map(|item| item.positive.as_str());
        let negatives =
            (0..columns).flat_map(|column| items.iter().map(move |item| &*item.negatives[column]));
        let anchors = batch(items.iter().map(|item| item.anchor.as_str()).collect())?;
        let batch = SentencePairBatch::new(anchors, batch(positives.chain(negatives).collect())?)?;
        if labels.is_empty() { Ok(batch) } else { batch.with_labels(&labels) }
    }
}

/// For Burn's `DataLoaderBuilder`; panics where [`try_batch`](TryBatcher::try_batch) returns an error.
impl Batcher<SentencePair, SentencePairBatch> for SentencePairBatcher {
    fn batch(&self, items: Vec<SentencePair>, device: &Device) -> SentencePairBatch {
        self.try_batch(items, device).unwrap_or_else(|error| panic!("{error}"))
    }
}
