//! Batches of labelled data for Burn's trainer.

use super::super::epochs::{EpochLoader, Epochs, Source, epoch_loader};
use super::batcher::TryBatcher;
use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use burn::prelude::*;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::fmt;
use std::sync::Arc;

/// Batches among which texts are sorted by length, as in transformers' `LengthGroupedSampler`.
const BUCKET: usize = 50;

/// Batches of a dataset, for Burn's `SupervisedTraining`.
///
/// Each iteration is one epoch over the whole dataset, in its order, or in a random order that depends on the seed and
/// the number of the epoch only. With a seed each epoch also seeds the device, for dropout, so that a run that is
/// resumed with [`starting_after`](Self::starting_after) continues exactly as if it had not been stopped. A thread
/// reads, tokenises and collates a few batches ahead; an error is returned in place of its batch.
///
/// ```
/// use burn::data::dataloader::DataLoader;
/// use burn::prelude::*;
/// use burn_bert::text::BertTokenizer;
/// use burn_bert::training::{LabelledLoader, LabelledTexts, SequenceBatcher, TextColumns};
///
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nno\n")?;
/// std::fs::write(dir.join("train.csv"), "text,label\ngood,positive\nno good,negative\n")?;
/// let texts = LabelledTexts::open(dir.join("train.csv"), &TextColumns::default())?;
/// let batcher = SequenceBatcher::new(BertTokenizer::from_pretrained(dir)?, texts.names().len());
/// let lengths = texts.sizes();
/// let loader = LabelledLoader::new(texts, batcher, 2, &Device::default())?
///     .with_shuffling(42)
///     .with_length_bucketing(lengths)?;
/// for batch in loader.iter() {
///     assert_eq!(batch?.input.dims(), [2, 4]); // [CLS] no good [SEP]
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LabelledLoader<B: TryBatcher> {
    loader: EpochLoader<LabelledSource<B>>,
}

struct LabelledSource<B: TryBatcher> {
    dataset: Arc<dyn Dataset<B::Item>>,
    batcher: Arc<B>,
    batch_size: usize,
    /// `None` for the order of the dataset.
    seed: Option<u64>,
    /// The length of each item, to batch those of like lengths.
    lengths: Option<Arc<Vec<usize>>>,
}

impl<B: TryBatcher> LabelledLoader<B> {
    /// Batches of `batch_size` items in the order of the dataset, for validation.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `batch_size` is 0, [`Error::Empty`] if there is no item.
    pub fn new(
        dataset: impl Dataset<B::Item> + 'static,
        batcher: B,
        batch_size: usize,
        device: &Device,
    ) -> Result<Self> {
        let (dataset, batcher) = (Arc::new(dataset), Arc::new(batcher));
        let source = LabelledSource { dataset, batcher, batch_size, seed: None, lengths: None };
        Ok(Self { loader: EpochLoader::new(source, device)? })
    }

    /// Shuffles each epoch by a seed, for training.
    pub fn with_shuffling(self, seed: u64) -> Self {
        self.with_source(|source| LabelledSource { seed: Some(seed), ..source })
    }

    /// Groups items of similar lengths into batches, to reduce padding. `lengths` has one for each item, in any unit.
    /// Items are grouped within fifty batches, and only if they are shuffled, so the order stays random.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if there is not one length per item.
    pub fn with_length_bucketing(self, lengths: Vec<usize>) -> Result<Self> {
        let items = self.loader.source().dataset.len();
        if lengths.len() != items {
            let problem = format!("number {}, but there must be one per item: {items}", lengths.len());
            return Err(Error::data("lengths", problem));
        }
        Ok(self.with_source(|source| LabelledSource { lengths: Some(Arc::new(lengths)), ..source }))
    }

    /// Skips the first `epochs` epochs.
    pub fn starting_after(self, epochs: usize) -> Self {
        Self { loader: self.loader.starting_at(epochs) }
    }

    fn with_source(self, change: impl FnOnce(LabelledSource<B>) -> LabelledSource<B>) -> Self {
        Self { loader: self.loader.with_source(change(self.loader.source().clone())) }
    }
}

impl<B: TryBatcher> Clone for LabelledSource<B> {
    fn clone(&self) -> Self {
        let (dataset, batcher, lengths) = (self.dataset.clone(), self.batcher.clone(), self.lengths.clone());
        Self { dataset, batcher, lengths, ..*self }
    }
}

/// At the same epoch; from there on each counts its own.
impl<B: TryBatcher> Clone for LabelledLoader<B> {
    fn clone(&self) -> Self {
        Self { loader: self.loader.clone() }
    }
}

impl<B: TryBatcher> fmt::Debug for LabelledLoader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LabelledLoader").field("loader", &self.loader).finish()
    }
}

epoch_loader!(LabelledLoader<B> => B::Batch, B: TryBatcher);

impl<B: TryBatcher> Source for LabelledSource<B> {
    type Batch = B::Batch;

    fn epochs(&self) -> Epochs {
        Epochs { num_items: self.dataset.len(), batch_size: self.batch_size, unit: "items", seed: self.seed }
    }

    fn order(&self, epoch: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.dataset.len()).collect();
        let Some(seed) = self.seed else { return order };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(epoch as u64);
        order.shuffle(&mut rng);
        if let Some(lengths) = &self.lengths {
            for bucket in order.chunks_mut(BUCKET.saturating_mul(self.batch_size)) {
                bucket.sort_by_key(|&item| std::cmp::Reverse(lengths[item]));
                // The last batch of an epoch may be smaller, so it stays where it is.
                let mut batches: Vec<Vec<usize>> =
                    bucket.chunks_exact(self.batch_size).map(<[usize]>::to_vec).collect();
                batches.shuffle(&mut rng);
                let places = bucket.iter_mut();
                places.zip(batches.into_iter().flatten()).for_each(|(place, item)| *place = item);
            }
        }
        order
    }

    fn batch(&self, items: &[usize], _first: usize, device: &Device) -> Result<B::Batch, DatasetError> {
        let items = self.dataset.get_many(items.to_vec())?;
        self.batcher.try_batch(items, device).map_err(DatasetError::new)
    }
}
