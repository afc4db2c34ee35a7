//! Items, and what makes batches of them.

use crate::error::{Error, Result};
use burn::data::dataset::{Dataset, DatasetError};
use burn::prelude::*;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// Makes batches of items: a [`Batcher`](burn::data::dataloader::batcher::Batcher) that returns errors, for [`Batches`].
/// [`EpochLoader`](super::EpochLoader) has an example.
pub trait TryBatcher: Send + Sync + 'static {
    /// An item of the dataset.
    type Item: Send + Sync + 'static;
    /// A batch of the model.
    type Batch: Send + 'static;

    /// Makes a batch of items on a device, or returns the error of an item.
    fn try_batch(&self, items: Vec<Self::Item>, device: &Device) -> Result<Self::Batch>;

    /// As [`try_batch`](Self::try_batch), with everything random, such as the masked tokens, drawn from `seed`. By default
    /// nothing is random.
    fn try_batch_seeded(&self, items: Vec<Self::Item>, seed: u64, device: &Device) -> Result<Self::Batch> {
        let _ = seed;
        self.try_batch(items, device)
    }
}

/// A dataset with what makes batches of its items, for an [`EpochLoader`](super::EpochLoader), which has an example. It is itself
/// data for a [`Trainer`](crate::training::Trainer) of any model that reads such batches.
pub struct Batches<B: TryBatcher> {
    dataset: Arc<dyn Dataset<B::Item>>,
    batcher: Arc<B>,
    pub(super) items: Items,
}

/// The items of a dataset that are read, by their places in it, and what is known of each item of the dataset.
#[derive(Clone, Debug)]
pub(super) struct Items {
    pub(super) places: Arc<Vec<usize>>,
    pub(super) lengths: Option<Arc<Vec<usize>>>,
    sources: Option<Arc<Vec<usize>>>,
    /// Hashes of the texts of each item, of which no two of a step are to be equal.
    pub(super) texts: Option<Arc<Vec<Vec<u64>>>>,
}

impl<B: TryBatcher> Batches<B> {
    /// Batches of a dataset.
    pub fn new(dataset: impl Dataset<B::Item> + 'static, batcher: B) -> Self {
        let places = Arc::new((0..dataset.len()).collect());
        let items = Items { places, lengths: None, sources: None, texts: None };
        Self { dataset: Arc::new(dataset), batcher: Arc::new(batcher), items }
    }

    /// Sets the length of each item, in any unit, to group items of similar lengths, which reduces padding. Items are grouped
    /// within fifty batches, and only if they are shuffled, so the order stays random. Only where the loss of an item does not
    /// depend on the others of its batch.
    pub fn with_lengths(mut self, lengths: Vec<usize>) -> Self {
        self.items.lengths = Some(Arc::new(lengths));
        self
    }

    /// Sets the number of what each item was made from: all items of one source are trained on, or all are validated on.
    pub fn with_sources(mut self, sources: Vec<usize>) -> Self {
        self.items.sources = Some(Arc::new(sources));
        self
    }

    /// Sets what must not occur twice in a batch, of all ranks together, for losses to which all others of a batch are negatives:
    /// for each item, hashes of its texts. The last batches of an epoch may have equal texts, if the data leave no other choice.
    /// Only if items are shuffled.
    pub fn with_texts(mut self, texts: Vec<Vec<u64>>) -> Self {
        self.items.texts = Some(Arc::new(texts));
        self
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.places.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.places.is_empty()
    }

    /// Returns [`Error::Data`] if lengths, sources or texts are not one per item of the dataset.
    pub(crate) fn check(&self) -> Result<()> {
        let items = self.dataset.len();
        for (what, count) in [
            ("lengths", self.items.lengths.as_ref().map(|lengths| lengths.len())),
            ("sources", self.items.sources.as_ref().map(|sources| sources.len())),
            ("texts", self.items.texts.as_ref().map(|texts| texts.len())),
        ] {
            if let Some(found) = count.filter(|&count| count != items) {
                let problem = format!("number {found}, but there must be one per item: {items}");
                return Err(Error::data(what, problem));
            }
        }
        Ok(())
    }

    pub(super) fn read(
        &self,
        places: Vec<usize>,
        seed: u64,
        device: &Device,
    ) -> Result<B::Batch, DatasetError> {
        let items = self.dataset.get_many(places)?;
        self.batcher.try_batch_seeded(items, seed, device).map_err(DatasetError::new)
    }

    fn select(&self, places: Vec<usize>) -> Self {
        let items = Items { places: Arc::new(places), ..self.items.clone() };
        Self { dataset: self.dataset.clone(), batcher: self.batcher.clone(), items }
    }

    /// All but a share of the sources, and that share, drawn by a seed: for training and for validation. Returns
    /// [`Error::Config`] if that leaves one of them without an item.
    pub fn split(self, share: f64, seed: u64) -> Result<(Self, Self)> {
        let Items { places, sources, .. } = &self.items;
        let source = |place: usize| sources.as_ref().map_or(place, |sources| sources[place]);
        // Sorted and each once, so that the draw depends on the seed alone.
        let drawn: BTreeSet<usize> = places.iter().map(|&place| source(place)).collect();
        let mut drawn: Vec<usize> = drawn.into_iter().collect();
        let count = (share * drawn.len() as f64).round() as usize;
        if count == 0 || count >= drawn.len() {
            let problem = format!(
                "is {share}, which leaves {count} of {} items for validation; there must be some for both: use more data, \
                 another share, validation data of their own, or none",
                drawn.len()
            );
            return Err(Error::Config { field: "validation_share", problem });
        }
        drawn.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let held_out: BTreeSet<usize> = drawn.drain(..count).collect();
        let (valid, train) = places.iter().partition(|&&place| held_out.contains(&source(place)));
        Ok((self.select(train), self.select(valid)))
    }

    /// For an evaluation: at most `most` items, drawn by a seed, and sorted by length, longest first, if that is wanted.
    pub(crate) fn evaluated(self, most: Option<usize>, seed: u64, is_sorted: bool) -> Self {
        let mut places = self.items.places.to_vec();
        if let Some(most) = most.filter(|&most| most < places.len()) {
            places.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
            places.truncate(most);
            places.sort_unstable(); // in the order of the dataset, as all of it would be
        }
        // The longest first: a batch that does not fit into memory fails at once, and not at the end.
        if let Some(lengths) = self.items.lengths.as_ref().filter(|_| is_sorted) {
            places.sort_by_key(|&place| Reverse(lengths[place]));
        }
        self.select(places).trained(false, false)
    }

    /// For training: in an order that depends on the lengths or the texts only where that is wanted.
    pub(crate) fn trained(mut self, by_lengths: bool, by_texts: bool) -> Self {
        self.items.lengths.take_if(|_| !by_lengths);
        self.items.texts.take_if(|_| !by_texts);
        self
    }
}

/// All items: a resumed run knows the data that it began with by the checksum of this text.
impl<B: TryBatcher<Item: Debug>> Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.items.places.iter().map(|&place| self.dataset.get(place).ok())).finish()
    }
}
