//! Pairs of sentences to batches.

use super::batcher::TryBatcher;
use crate::error::{Error, Result};
use crate::model::SentencePairBatch;
use crate::text::{BertTokenizer, TextBatch};
use burn::data::dataloader::batcher::Batcher;
use burn::prelude::*;
use std::sync::Arc;

/// Two sentences that belong together, for contrastive training with a [`SentencePairBatcher`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentencePair {
    /// The first sentence, for example a question.
    pub anchor: String,
    /// The sentence that it belongs to, for example the answer.
    pub positive: String,
    /// A hard negative: a similar sentence that it does not belong to.
    pub negative: Option<String>,
}

impl SentencePair {
    /// A pair without a hard negative.
    pub fn new(anchor: impl Into<String>, positive: impl Into<String>) -> Self {
        Self { anchor: anchor.into(), positive: positive.into(), negative: None }
    }
}

/// Tokenises pairs for the contrastive training of a
/// [`BertForSentenceEmbedding`](crate::model::BertForSentenceEmbedding).
///
/// The candidates of a batch are its positives, then its negatives. The pairs of a batch should have different
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
    /// Those of the tokenizer; [`Error::Empty`] without a pair.
    fn try_batch(&self, items: Vec<SentencePair>, device: &Device) -> Result<SentencePairBatch> {
        if items.is_empty() {
            return Err(Error::Empty { input: "pairs", shape: vec![0] });
        }
        let batch = |sentences: Vec<&str>| -> Result<_> {
            let encodings = self.tokenizer.encode_batch(&sentences)?;
            let TextBatch { input, padding } = self.tokenizer.batch(&encodings, device)?;
            Ok((input, padding))
        };
        let positives = items.iter().map(|item| item.positive.as_str());
        let negatives = items.iter().filter_map(|item| item.negative.as_deref());
        let anchors = batch(items.iter().map(|item| item.anchor.as_str()).collect())?;
        SentencePairBatch::new(anchors, batch(positives.chain(negatives).collect())?)
    }
}

/// For Burn's `DataLoaderBuilder`; panics where [`try_batch`](TryBatcher::try_batch) returns an error.
impl Batcher<SentencePair, SentencePairBatch> for SentencePairBatcher {
    fn batch(&self, items: Vec<SentencePair>, device: &Device) -> SentencePairBatch {
        self.try_batch(items, device).unwrap_or_else(|error| panic!("{error}"))
    }
}
