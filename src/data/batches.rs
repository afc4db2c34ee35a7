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
use std::ops::Range;
use std::sync::Arc;

/// Batches among which items are sorted by length, as in transformers' `LengthGroupedSampler`, or searched for other texts.
const BUCKET: usize = 50;

/// The order of an epoch is in memory, eight bytes an item.
const MAX_EPOCH: usize = 1 << 28;

/// Burn's [`Batcher`](burn::data::dataloader::batcher::Batcher) with errors, for [`Batches`]. [`EpochLoader`](super::EpochLoader)
/// has an example.
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
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    places: Arc<Vec<usize>>,
    lengths: Option<Arc<Vec<usize>>>,
    sources: Option<Arc<Vec<usize>>>,
    /// Hashes of the texts of each item, of which no two of a step are to be equal.
    texts: Option<Arc<Vec<Vec<u64>>>>,
}

impl<B: TryBatcher> Batches<B> {
    /// Batches of a dataset.
    pub fn new(dataset: impl Dataset<B::Item> + 'static, batcher: B) -> Self {
        let items = Items { places: Arc::new((0..dataset.len()).collect()), ..Default::default() };
        Self { dataset: Arc::new(dataset), batcher: Arc::new(batcher), items }
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
        self.items.places.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.places.is_empty()
    }

    /// Returns [`Error::Data`] if lengths, sources or texts are not one per item of the dataset.
    pub(super) fn check(&self) -> Result<()> {
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

    pub(super) fn read(&self, places: Vec<usize>, seed: u64, to: &Device) -> Result<B::Batch, DatasetError> {
        let items = self.dataset.get_many(places)?;
        self.batcher.try_batch_seeded(items, seed, to).map_err(DatasetError::new)
    }

    fn select(&self, places: Vec<usize>) -> Self {
        let items = Items { places: Arc::new(places), ..self.items.clone() };
        Self { dataset: self.dataset.clone(), batcher: self.batcher.clone(), items }
    }

    /// All but a share of the sources, and that share, drawn by a seed: for training and for validation. Returns
    /// [`Error::Config`] if that leaves one of them without an item, [`Error::Data`] if there is not one source per item.
    pub fn split(self, share: f64, seed: u64) -> Result<(Self, Self)> {
        self.check()?;
        let Items { places, sources, .. } = &self.items;
        let source = |place: usize| sources.as_ref().map_or(place, |sources| sources[place]);
        // Sorted and each once, so that the draw depends on the seed alone.
        let drawn: BTreeSet<usize> = places.iter().map(|&place| source(place)).collect();
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
        let (valid, train) = places.iter().partition(|&&place| held_out.contains(&source(place)));
        Ok((self.select(train), self.select(valid)))
    }

    /// For an evaluation: at most `most` items, drawn by a seed, and sorted by length, longest first, if lengths are known.
    pub(crate) fn evaluated(self, most: Option<usize>, seed: u64) -> Result<Self> {
        self.check()?;
        let mut places = self.items.places.to_vec();
        if let Some(most) = most.filter(|&most| most < places.len()) {
            places.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
            places.truncate(most);
            places.sort_unstable(); // in the order of the dataset, as all of it would be
        }
        // The longest first: a batch that does not fit into memory fails at once, and not at the end.
        if let Some(lengths) = &self.items.lengths {
            places.sort_by_key(|&place| Reverse(lengths[place]));
        }
        Ok(self.select(places))
    }

    /// In an order that depends on the lengths or the texts only where that is wanted.
    pub(crate) fn of_settings(mut self, by_lengths: bool, by_texts: bool) -> Self {
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

/// What a random stream is for. Streams of different purposes are independent of each other.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(super) enum Purpose {
    Order = 0,
    Buckets = 0x6275_636b_6574_7321,
    Batch = 0x6d61_736b_6261_7463,
    Dropout = 0x6472_6f70_6f75_7421,
}

/// The order of items and their division into batches, ranks and devices, by these fields and the epoch's number alone: so ranks
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
    /// Which of the rank's items in an epoch are this device's; `None` for all.
    pub(super) range: Option<Range<usize>>,
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
    fn step_items(&self) -> usize {
        // Saturating: a batch size beyond all items is one batch.
        self.batch_size.saturating_mul(self.ranks)
    }

    /// Items of an epoch, of all ranks.
    fn epoch_items(&self) -> usize {
        self.batches_per_epoch.map_or(self.items.places.len(), |batches| batches * self.step_items())
    }

    /// Items of all ranks before an epoch. Wrapping: whoever starts after usize::MAX epochs gets some epoch.
    fn items_before(&self, epoch: usize) -> usize {
        let items = |epochs: usize| epochs.wrapping_mul(self.epoch_items());
        let read = self.items_read.unwrap_or_else(|| items(self.first_epoch));
        read.wrapping_add(items(epoch.wrapping_sub(self.first_epoch)))
    }

    /// Items of an epoch that are this rank's and device's.
    pub(super) fn len(&self) -> usize {
        let (steps, rest) = (self.epoch_items() / self.step_items(), self.epoch_items() % self.step_items());
        // The rest of an incomplete step is dealt out in turn, from rank 0 on.
        let of_rank = steps * self.batch_size + (rest + self.ranks - 1 - self.rank) / self.ranks;
        self.range.as_ref().map_or(of_rank, Range::len)
    }

    /// The items of each batch of an epoch. Every rank has as many batches.
    pub(super) fn batches(&self, epoch: usize) -> Vec<Vec<usize>> {
        let items = self.items(epoch);
        let size = self.step_items();
        let steps = steps(items.len(), size, self.ranks);
        let batches = (0..steps).map(|step| {
            let end = if step + 1 == steps { items.len() } else { (step + 1) * size };
            // In turn, because items of a step are sorted by length: so all ranks have about as many tokens.
            items[step * size..end].iter().skip(self.rank).step_by(self.ranks).copied()
        });
        match &self.range {
            None => batches.map(Iterator::collect).collect(),
            Some(range) => {
                // A device's share begins anywhere, so its batches are cut anew.
                let items: Vec<usize> = batches.flatten().skip(range.start).take(range.len()).collect();
                items.chunks(self.batch_size).map(<[usize]>::to_vec).collect()
            }
        }
    }

    /// The items of an epoch, of all ranks. Epochs follow each other through the passes over all items.
    fn items(&self, epoch: usize) -> Vec<usize> {
        let (before, places) = (self.items_before(epoch), &self.items.places);
        let pass = |pass: usize| {
            let mut order = places.to_vec();
            if self.is_shuffled {
                order.shuffle(&mut stream(self.seed, Purpose::Order, pass));
            }
            order
        };
        // Epochs need not end where passes do: this one may begin and end within a pass.
        let passes = (0..).flat_map(|number| pass((before / places.len()).wrapping_add(number)));
        let mut items: Vec<usize> = passes.skip(before % places.len()).take(self.epoch_items()).collect();
        if let Some(lengths) = self.items.lengths.as_ref().filter(|_| self.is_shuffled) {
            let mut rng = stream(self.seed, Purpose::Buckets, epoch);
            let size = self.step_items();
            for bucket in items.chunks_mut(size.saturating_mul(BUCKET)) {
                bucket.sort_by_key(|&item| Reverse(lengths[item]));
                // The last batch of an epoch may be smaller, so it stays where it is.
                let mut steps: Vec<Vec<usize>> = bucket.chunks_exact(size).map(<[usize]>::to_vec).collect();
                steps.shuffle(&mut rng);
                bucket.iter_mut().zip(steps.into_iter().flatten()).for_each(|(place, item)| *place = item);
            }
        }
        match &self.items.texts {
            Some(texts) => distinct(&items, self.step_items(), texts),
            None => items,
        }
    }

    /// A seed for the batch that begins with this rank's and device's item number `done` of an epoch; without shuffling the same
    /// in every epoch, so that every validation masks the same tokens.
    pub(super) fn seed(&self, purpose: Purpose, epoch: usize, done: usize) -> u64 {
        // Counted over all epochs and ranks: no two batches of a run draw from one stream.
        let before = if self.is_shuffled { self.items_before(epoch) } else { 0 };
        let start = self.range.as_ref().map_or(0, |range| range.start);
        let own = (start + done).wrapping_mul(self.ranks).wrapping_add(self.rank);
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
