//! Items, and what makes batches of them, in which order.

use crate::error::{Error, Result};
use crate::layers::{check_sizes, ensure};
use burn::data::dataset::{Dataset, DatasetError};
use burn::prelude::*;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Batches among which items are sorted by length, as in transformers' `LengthGroupedSampler`, or searched for other texts.
const BUCKET: usize = 50;

/// The order of an epoch is in memory, eight bytes an item.
const MAX_EPOCH: usize = 1 << 28;

/// A dataset, with what makes a batch of a model from some of its items, for an [`EpochLoader`](super::EpochLoader), which has an
/// example. It is itself data for a [`Trainer`](crate::training::Trainer) of any model that reads such batches. Clones share both.
pub struct Batches<B> {
    source: Arc<dyn Source<B>>,
    pub(super) items: Items,
}

impl<B> Clone for Batches<B> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone(), items: self.items.clone() }
    }
}

/// A dataset with its function that makes batches, of whatever type its items are.
trait Source<B>: Send + Sync {
    fn batch(&self, indices: Vec<usize>, seed: u64, device: &Device) -> Result<B, DatasetError>;
    fn show(&self, index: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn len(&self) -> usize;
}

struct Made<D, T, F>(D, F, PhantomData<fn(T)>);

impl<B, T, D, F> Source<B> for Made<D, T, F>
where
    T: Debug + Send + Sync,
    D: Dataset<T>,
    F: Fn(&[T], u64, &Device) -> Result<B> + Send + Sync,
{
    fn batch(&self, indices: Vec<usize>, seed: u64, device: &Device) -> Result<B, DatasetError> {
        (self.1)(&self.0.get_many(indices)?, seed, device).map_err(DatasetError::new)
    }

    fn show(&self, index: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get(index).ok().fmt(f)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The items of a dataset that are read, by their indices in it, and what is known of each item of the dataset.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    indices: Arc<Vec<usize>>,
    lengths: Option<Arc<Vec<usize>>>,
    sources: Option<Arc<Vec<usize>>>,
    /// Hashes of the texts of each item, of which no two of a step are to be equal.
    texts: Option<Arc<Vec<Vec<u64>>>>,
}

impl<B: 'static> Batches<B> {
    /// Batches of a dataset, which `make` makes of some of its items on a device.
    pub fn new<T: Debug + Send + Sync + 'static>(
        dataset: impl Dataset<T> + 'static,
        make: impl Fn(&[T], &Device) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        Self::seeded(dataset, move |items, _, device| make(items, device))
    }

    /// As [`new`](Self::new), with everything random in a batch, such as the masked tokens, drawn from the seed that `make` gets.
    pub fn seeded<T: Debug + Send + Sync + 'static>(
        dataset: impl Dataset<T> + 'static,
        make: impl Fn(&[T], u64, &Device) -> Result<B> + Send + Sync + 'static,
    ) -> Self {
        let items = Items { indices: Arc::new((0..dataset.len()).collect()), ..Default::default() };
        Self { source: Arc::new(Made(dataset, make, PhantomData)), items }
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
        let items = self.source.len();
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

    pub(super) fn read(&self, indices: Vec<usize>, seed: u64, to: &Device) -> Result<B, DatasetError> {
        self.source.batch(indices, seed, to)
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> Self {
        self.select(self.items.indices[range].to_vec())
    }

    /// The same of some items of the dataset.
    fn select(&self, indices: Vec<usize>) -> Self {
        Self {
            source: self.source.clone(),
            items: Items { indices: Arc::new(indices), ..self.items.clone() },
        }
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

    /// In an order that depends on the lengths or the texts only where that is wanted.
    pub(crate) fn ordered(mut self, by_lengths: bool, by_texts: bool) -> Self {
        self.items.lengths.take_if(|_| !by_lengths);
        self.items.texts.take_if(|_| !by_texts);
        self
    }
}

/// All items: a resumed run knows the data that it began with by the checksum of this text.
impl<B> Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |&index| fmt::from_fn(move |f| self.source.show(index, f));
        f.debug_list().entries(self.items.indices.iter().map(shown)).finish()
    }
}

/// What a random stream is for. Streams of different purposes are independent of each other.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Purpose {
    Order = 0,
    Buckets = 0x6275_636b_6574_7321,
    Batch = 0x6d61_736b_6261_7463,
    Dropout = 0x6472_6f70_6f75_7421,
}

/// The order of items and their division into batches and ranks, by these fields and the epoch's number alone: so ranks
/// agree without communication, and a resumed run continues as it would have.
#[derive(Clone, Debug, Default)]
pub(super) struct EpochOrder {
    pub(super) items: Items,
    /// Of one rank; the last batch of an epoch may have fewer.
    pub(super) batch_size: usize,
    /// `None` for one pass over the items.
    pub(super) batches_per_epoch: Option<usize>,
    pub(super) first_epoch: usize,
    /// Items of all ranks before it; by default those of as many epochs as there are before it.
    pub(super) items_read: Option<usize>,
    pub(super) seed: u64,
    pub(super) is_shuffled: bool,
    pub(super) rank: usize,
    pub(super) ranks: usize,
}

impl EpochOrder {
    pub(super) fn check(&self) -> Result<()> {
        let &Self { batch_size, rank, ranks, .. } = self;
        check_sizes([("batch_size", batch_size, usize::MAX)])?;
        ensure(rank < ranks, "rank", || format!("is {rank}, but must be below ranks, {ranks}"))?;
        if let Some(batches) = self.batches_per_epoch {
            let is_allowed = (1..=MAX_EPOCH / self.step_items()).contains(&batches);
            let allowed = format!("at least 1, of at most {MAX_EPOCH} items together");
            ensure(is_allowed, "batches_per_epoch", || format!("is {batches}, but must be {allowed}"))?;
        }
        // A rank without an item takes no step, and the others would wait for it.
        let items = self.epoch_items();
        ensure(items >= ranks, "ranks", || format!("is {ranks}, but an epoch has only {items} items"))
    }

    /// Items of one step, of all ranks.
    pub(super) fn step_items(&self) -> usize {
        // Saturating: a batch size beyond all items is one batch.
        self.batch_size.saturating_mul(self.ranks)
    }

    /// Items of an epoch, of all ranks.
    fn epoch_items(&self) -> usize {
        self.batches_per_epoch.map_or(self.items.indices.len(), |batches| batches * self.step_items())
    }

    /// Items of all ranks before an epoch. Wrapping: whoever starts after usize::MAX epochs gets some epoch.
    pub(super) fn items_before(&self, epoch: usize) -> usize {
        let items = |epochs: usize| epochs.wrapping_mul(self.epoch_items());
        let read = self.items_read.unwrap_or_else(|| items(self.first_epoch));
        read.wrapping_add(items(epoch.wrapping_sub(self.first_epoch)))
    }

    /// Items of an epoch that are this rank's.
    pub(super) fn len(&self) -> usize {
        let (steps, rest) = (self.epoch_items() / self.step_items(), self.epoch_items() % self.step_items());
        // The rest of an incomplete step is dealt out in turn, from rank 0 on.
        steps * self.batch_size + (rest + self.ranks - 1 - self.rank) / self.ranks
    }

    /// The batches of an epoch, as many on every rank.
    pub(super) fn num_batches(&self) -> usize {
        if self.items.indices.is_empty() {
            return 0;
        }
        steps(self.epoch_items(), self.step_items(), self.ranks)
    }

    /// The items of each batch of an epoch.
    pub(super) fn batches(&self, epoch: usize) -> Vec<Vec<usize>> {
        let (size, steps) = (self.step_items(), self.num_batches());
        if steps == 0 {
            return Vec::new();
        }
        let items = self.items(epoch);
        let batches = (0..steps).map(|step| {
            let end = if step + 1 == steps { items.len() } else { (step + 1) * size };
            // In turn, because items of a step are sorted by length: so all ranks have about as many tokens.
            items[step * size..end].iter().skip(self.rank).step_by(self.ranks).copied().collect()
        });
        batches.collect()
    }

    /// The items of an epoch, of all ranks. Epochs follow each other through the passes over all items.
    fn items(&self, epoch: usize) -> Vec<usize> {
        let (before, indices) = (self.items_before(epoch), &self.items.indices);
        let pass = |pass: usize| {
            let mut order = indices.to_vec();
            if self.is_shuffled {
                order.shuffle(&mut stream(self.seed, Purpose::Order, pass));
            }
            order
        };
        // Epochs need not end where passes do: this one may begin and end within a pass.
        let passes = (0..).flat_map(|number| pass((before / indices.len()).wrapping_add(number)));
        let mut items: Vec<usize> = passes.skip(before % indices.len()).take(self.epoch_items()).collect();
        if let Some(lengths) = self.items.lengths.as_ref().filter(|_| self.is_shuffled) {
            let mut rng = stream(self.seed, Purpose::Buckets, epoch);
            let size = self.step_items();
            for bucket in items.chunks_mut(size.saturating_mul(BUCKET)) {
                bucket.sort_by_key(|&item| Reverse(lengths[item]));
                // The last batch of an epoch may be smaller, so it stays where it is.
                let mut steps: Vec<Vec<usize>> = bucket.chunks_exact(size).map(<[usize]>::to_vec).collect();
                steps.shuffle(&mut rng);
                bucket.iter_mut().zip(steps.into_iter().flatten()).for_each(|(index, item)| *index = item);
            }
        }
        match &self.items.texts {
            Some(texts) => distinct(&items, self.step_items(), texts),
            None => items,
        }
    }

    /// A seed for the batch that begins with this rank's item number `done` of an epoch; without shuffling the same
    /// in every epoch, so that every validation masks the same tokens.
    pub(super) fn seed(&self, purpose: Purpose, epoch: usize, done: usize) -> u64 {
        // Counted over all epochs and ranks: no two batches of a run draw from one stream.
        let before = if self.is_shuffled { self.items_before(epoch) } else { 0 };
        let own = done.wrapping_mul(self.ranks).wrapping_add(self.rank);
        stream(self.seed, purpose, before.wrapping_add(own)).next_u64()
    }
}

/// The steps of an epoch of so many items, `size` in each, on some ranks.
pub(crate) fn steps(items: usize, size: usize, ranks: usize) -> usize {
    let (full, rest) = (items / size, items % size);
    // A rest that leaves some rank without an item joins the step before it: all ranks take part in every step.
    if full > 0 && rest < ranks { full } else { full + 1 }
}

fn stream(seed: u64, purpose: Purpose, number: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ purpose as u64);
    // Streams do not overlap, while the seed plus the number would be the seed of another run.
    rng.set_stream(number as u64);
    rng
}

/// Moves items such that no two of a batch share a text, of which `texts` has hashes, as long as there are others to choose from
/// nearby. Source: `NoDuplicatesBatchSampler` of sentence-transformers 6.2, whose last batches have fewer items instead.
fn distinct(items: &[usize], batch_size: usize, texts: &[Vec<u64>]) -> Vec<usize> {
    let mut left: VecDeque<usize> = items.iter().copied().collect();
    let mut chosen = Vec::with_capacity(items.len());
    while !left.is_empty() {
        let (mut seen, mut skipped) = (HashSet::<u64>::new(), Vec::new());
        let end = chosen.len() + batch_size.min(left.len());
        while chosen.len() < end
            // Where most items share a text, a batch would otherwise look at all that are left.
            && skipped.len() < BUCKET * batch_size
            && let Some(item) = left.pop_front()
        {
            if texts[item].iter().any(|text| seen.contains(text)) {
                skipped.push(item);
            } else {
                seen.extend(&texts[item]);
                chosen.push(item);
            }
        }
        // All that were looked at share a text with one of the batch.
        let missing = end - chosen.len();
        chosen.extend(skipped.drain(..missing));
        // From the last on, so that they keep their order.
        skipped.into_iter().rev().for_each(|item| left.push_front(item));
    }
    chosen
}
