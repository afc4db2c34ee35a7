//! Items, and what makes batches of them.

use crate::error::{Error, Result};
use crate::layers::ensure;
use burn::data::dataset::{Dataset, DatasetError};
use burn::prelude::*;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// A dataset, with what makes a batch of a model from some of its items, for an [`EpochLoader`](super::EpochLoader), which has an
/// example. It is itself data for a [`Trainer`](crate::training::Trainer) of any model that reads such batches. Clones share both.
pub struct Batches<B> {
    make: Arc<Make<B>>,
    show: Arc<Show>,
    /// The number of items of the dataset.
    size: usize,
    pub(super) items: Items,
}

impl<B> Clone for Batches<B> {
    fn clone(&self) -> Self {
        Self { make: self.make.clone(), show: self.show.clone(), items: self.items.clone(), ..*self }
    }
}

/// Makes a batch of items with these indices, whatever their type, with a seed.
type Make<B> = dyn Fn(Vec<usize>, u64, &Device) -> Result<B, DatasetError> + Send + Sync;

/// Writes an item by its `Debug`.
type Show = dyn Fn(usize, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync;

/// The items of a dataset that are read, by their indices in it, and what is known of each item of the dataset.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    pub(super) indices: Arc<Vec<usize>>,
    pub(super) lengths: Option<Arc<Vec<usize>>>,
    sources: Option<Arc<Vec<usize>>>,
    /// Hashes of the texts of each item, of which no two of a step are to be equal.
    pub(super) texts: Option<Arc<Vec<Vec<u64>>>>,
    labels: Option<Arc<Vec<f32>>>,
}

impl<B: 'static> Batches<B> {
    /// Batches of a dataset, which `make` makes of some of its items on a device.
    pub fn new<T: Debug + Send + Sync + 'static>(
        dataset: impl Dataset<T> + 'static,
        make: impl Fn(&[T], &Device) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        Self::seeded(dataset, move |items, _, device| make(items, device))
    }

    /// Batches of a dataset in which something is random, such as the masked tokens: `make` also gets a seed to draw it from.
    pub fn seeded<T: Debug + Send + Sync + 'static>(
        dataset: impl Dataset<T> + 'static,
        make: impl Fn(&[T], u64, &Device) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        let (size, dataset) = (dataset.len(), Arc::new(dataset));
        let shown = dataset.clone();
        Self {
            make: Arc::new(move |indices, seed, device| {
                make(&dataset.get_many(indices)?, seed, device).map_err(DatasetError::new)
            }),
            show: Arc::new(move |index, f| shown.get(index).ok().fmt(f)),
            size,
            items: Items { indices: Arc::new((0..size).collect()), ..Default::default() },
        }
    }

    /// Sets the length of each item, in any unit: shuffled items of similar lengths are then grouped, within fifty batches, which
    /// reduces padding. Only where the loss of an item does not depend on the others of its batch.
    pub fn with_lengths(mut self, lengths: Vec<usize>) -> Self {
        self.items.lengths = Some(Arc::new(lengths));
        self
    }

    /// Sets the number of what each item was made from: all items of one source are trained on, or all are validated on.
    pub fn with_sources(mut self, sources: Vec<usize>) -> Self {
        self.items.sources = Some(Arc::new(sources));
        self
    }

    /// Sets hashes of the texts of each item, none of which occurs twice in a batch of all ranks, for losses to which the others of a
    /// batch are negatives. The last batches of an epoch may have equal texts, if the data leave no other choice.
    pub fn with_texts(mut self, texts: Vec<Vec<u64>>) -> Self {
        self.items.texts = Some(Arc::new(texts));
        self
    }

    /// Sets the label of each item.
    pub(crate) fn with_labels(mut self, labels: Vec<f32>) -> Self {
        self.items.labels = Some(Arc::new(labels));
        self
    }

    pub(super) fn has_one_label(&self) -> bool {
        let Some(labels) = &self.items.labels else { return false };
        let mut labels = self.items.indices.iter().map(|&index| labels[index]);
        labels.next().is_some_and(|first| labels.all(|label| label == first))
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.indices.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.indices.is_empty()
    }

    /// Returns [`Error::Data`] if lengths, sources or texts are not one per item of the dataset.
    pub(super) fn check(&self) -> Result<()> {
        for (what, count) in [
            ("lengths", self.items.lengths.as_ref().map(|lengths| lengths.len())),
            ("sources", self.items.sources.as_ref().map(|sources| sources.len())),
            ("texts", self.items.texts.as_ref().map(|texts| texts.len())),
        ] {
            if let Some(found) = count.filter(|&count| count != self.size) {
                let problem = format!("number {found}, but there must be one per item: {}", self.size);
                return Err(Error::data(what, problem));
            }
        }
        Ok(())
    }

    pub(super) fn read(&self, indices: Vec<usize>, seed: u64, to: &Device) -> Result<B, DatasetError> {
        (self.make)(indices, seed, to)
    }

    /// A batch of the first items, at most so many.
    pub(crate) fn first(&self, count: usize, to: &Device) -> Result<B, DatasetError> {
        self.read(self.items.indices.iter().copied().take(count).collect(), 0, to)
    }

    /// The batches of some items of the dataset alone.
    fn select(&self, indices: Vec<usize>) -> Self {
        let items = Items { indices: Arc::new(indices), ..self.items.clone() };
        Self { items, ..self.clone() }
    }

    /// All but a share of the sources, and that share, drawn by a seed: for training and for validation. Returns
    /// [`Error::Config`] if that leaves one of them without an item, [`Error::Data`] if there is not one source per item.
    pub fn split(self, share: f64, seed: u64) -> Result<(Self, Self)> {
        self.check()?;
        let Items { indices, sources, .. } = &self.items;
        let source = |index: usize| sources.as_ref().map_or(index, |sources| sources[index]);
        // Sorted and each once, so that the draw depends on the seed alone.
        let drawn: BTreeSet<usize> = indices.iter().map(|&index| source(index)).collect();
        let mut drawn: Vec<usize> = drawn.into_iter().collect();
        // The nearest number, so that a small share of few sources is not nothing.
        let count = (share * drawn.len() as f64).round() as usize;
        ensure((1..drawn.len()).contains(&count), "validation_share", || {
            format!(
                "is {share}, which leaves {count} of {} items for validation; there must be some for both: use more data, \
                 another share, validation data of their own, or none",
                drawn.len()
            )
        })?;
        drawn.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let held_out: BTreeSet<usize> = drawn.drain(..count).collect();
        let (valid, train) = indices.iter().partition(|&&index| held_out.contains(&source(index)));
        Ok((self.select(train), self.select(valid)))
    }

    /// For an evaluation: at most `most` items, drawn by a seed, and sorted by length, longest first, if lengths are known.
    pub(crate) fn evaluated(self, most: Option<usize>, seed: u64) -> Result<Self> {
        self.check()?;
        let mut indices = self.items.indices.to_vec();
        if let Some(most) = most.filter(|&most| most < indices.len()) {
            indices.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
            indices.truncate(most);
            indices.sort_unstable(); // in the order of the dataset, as all of it would be
        }
        // The longest first: a batch that does not fit into memory fails at once, and not at the end.
        if let Some(lengths) = &self.items.lengths {
            indices.sort_by_key(|&index| Reverse(lengths[index]));
        }
        Ok(self.select(indices))
    }

    /// Drops the lengths, the texts, or both, on which the order of an epoch then does not depend.
    pub(crate) fn ordered(mut self, by_lengths: bool, by_texts: bool) -> Self {
        self.items.lengths.take_if(|_| !by_lengths);
        self.items.texts.take_if(|_| !by_texts);
        self
    }
}

/// All items: a resumed run knows the data that it began with by the checksum of this text.
impl<B> Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |&index| fmt::from_fn(move |f| (self.show)(index, f));
        f.debug_list().entries(self.items.indices.iter().map(shown)).finish()
    }
}
