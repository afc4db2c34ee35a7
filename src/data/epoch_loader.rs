use super::batches::Batches;
use crate::error::{Error, Result};
use crate::layers::{check_sizes, ensure};
use burn::data::dataset::DatasetError;
use burn::prelude::*;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};
use std::mem::take;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that are prepared ahead and kept in memory, so that one that takes long to prepare is not waited for. Not tuned.
const AHEAD: usize = 4;

/// The most items of an epoch, whose order is in memory: 2 GiB, eight bytes an item.
const MAX_EPOCH: usize = 1 << 28;

/// Batches among which items are sorted by length, as in transformers' `LengthGroupedSampler`, or searched for other texts.
const BUCKET: usize = 50;

/// Batches of any dataset in epochs, for training loops, [`Trainer`](crate::training::Trainer)'s among them; for Burn's `Learner`
/// by [`ForLearner::data`](crate::training::ForLearner::data).
///
/// An epoch is one pass over the dataset, or a fixed number of batches. Its order and masked tokens depend on the seed and the
/// number of the epoch alone. A thread makes a few batches ahead; an error is returned in place of its batch and ends the epoch.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::data::{Batches, Columns, EpochLoader, LabelledText, LabelledTexts};
/// use burn_bert::text::BertTokenizer;
///
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nno\n")?;
/// let (tokenizer, device) = (BertTokenizer::from_pretrained(dir)?, Device::default());
/// std::fs::write(dir.join("train.csv"), "text,label\ngood,positive\nno good,negative\n")?;
/// let texts = LabelledTexts::open(dir.join("train.csv"), &Columns::default())?;
/// let (lengths, num_labels) = (texts.sizes(), texts.names().len());
/// let batches = Batches::new(texts, move |texts, device| LabelledText::batch(texts, &tokenizer, num_labels, device));
/// let loader = EpochLoader::new(batches.with_lengths(lengths), 2, &device)?.with_shuffling(42);
/// for epoch in 0..3 {
///     for batch in loader.epoch(epoch) {
///         assert_eq!(batch?.input.dims(), [2, 4]); // [CLS] no good [SEP]
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EpochLoader<B> {
    batches: Batches<B>,
    order: Order,
    device: Device,
}

impl<B> Clone for EpochLoader<B> {
    fn clone(&self) -> Self {
        Self { batches: self.batches.clone(), device: self.device.clone(), ..*self }
    }
}

impl<B: Send + 'static> EpochLoader<B> {
    /// Batches of `batch_size` items in the order of the dataset, for validation; in a near one if they
    /// [have texts](Batches::with_texts). Returns [`Error::Config`] if
    /// `batch_size` is 0, [`Error::Empty`] if there is no item, [`Error::Data`] if there is not one length, source or list of
    /// texts per item.
    pub fn new(batches: Batches<B>, batch_size: usize, device: &Device) -> Result<Self> {
        batches.check()?;
        if batches.is_empty() {
            return Err(Error::Empty { input: "dataset", shape: vec![0] });
        }
        let order = Order { batch_size, ranks: 1, ..Order::default() };
        Self { batches, order, device: device.clone() }.with(|_| {})
    }

    fn with(mut self, change: impl FnOnce(&mut Order)) -> Result<Self> {
        change(&mut self.order);
        self.check()?;
        Ok(self)
    }

    /// Shuffles each pass by a seed, for training.
    pub fn with_shuffling(mut self, seed: u64) -> Self {
        (self.order.seed, self.order.is_shuffled) = (seed, true);
        self
    }

    /// Makes an epoch this many batches in place of one pass, to validate and save more or less often. The next epoch
    /// goes on where one ended, with all its batches full. Returns [`Error::Config`] if it is 0, or an epoch has more
    /// than 2²⁸ items.
    pub fn with_batches_per_epoch(self, batches: usize) -> Result<Self> {
        self.with(|order| order.batches_per_epoch = Some(batches))
    }

    /// This rank's share of every epoch, for data-parallel training: of each `ranks` × `batch_size` items every rank
    /// takes `batch_size`, in turn, so all have as many batches. Ranks must agree on everything but `rank`. Returns
    /// [`Error::Config`] if `rank` is not below `ranks`, or an epoch has fewer items than `ranks`.
    pub fn shard(self, rank: usize, ranks: usize) -> Result<Self> {
        self.with(|order| (order.rank, order.ranks) = (rank, ranks))
    }

    /// Says how many items all ranks together read in the epochs before one, from which a run goes on: they may have been of
    /// another number of batches or ranks.
    pub fn starting_at(mut self, epoch: usize, items: usize) -> Self {
        (self.order.first_epoch, self.order.items_read) = (epoch, Some(items));
        self
    }

    /// The batches of an epoch, counted from 0.
    pub fn epoch(&self, epoch: usize) -> Epoch<B> {
        self.selected(epoch, 0..self.num_batches())
    }

    /// The batches of an epoch that have these numbers, each as in the whole epoch.
    pub(crate) fn selected(
        &self,
        epoch: usize,
        numbers: impl Iterator<Item = usize> + Send + 'static,
    ) -> Epoch<B> {
        // A thread, so that the next batches are read and tokenised while a step computes.
        let (sender, batches) = sync_channel(AHEAD);
        let loader = self.clone();
        let thread = thread::spawn(move || {
            let mut batches = loader.items_of_batches(epoch);
            for number in numbers {
                // All before it are full.
                let done = number.wrapping_mul(loader.order.batch_size);
                let seed = loader.seed(Purpose::Batch, epoch, done);
                let batch = loader.batches.read(take(&mut batches[number]), seed, &loader.device);
                let is_last = batch.is_err();
                // If it cannot be sent, the receiver was dropped: nobody takes the rest.
                if sender.send(batch).is_err() || is_last {
                    return;
                }
            }
        });
        Epoch { batches, thread: Some(thread) }
    }

    /// The loader with as many items in a batch, if that is given.
    pub(crate) fn with_batch_size(self, batch_size: Option<usize>) -> Result<Self> {
        self.with(|order| order.batch_size = batch_size.unwrap_or(order.batch_size))
    }

    /// Items in a batch of this rank.
    pub(crate) fn batch_size(&self) -> usize {
        self.order.batch_size
    }

    /// Whether all labels are equal, if they are known.
    pub(crate) fn has_one_label(&self) -> bool {
        self.batches.has_one_label()
    }

    /// A seed for all that is random in the steps of an epoch on this rank, such as dropout.
    pub(crate) fn step_seed(&self, epoch: usize) -> u64 {
        self.seed(Purpose::Dropout, epoch, 0)
    }

    /// The loader with another device.
    pub(crate) fn on(&self, device: &Device) -> Self {
        Self { device: device.clone(), ..self.clone() }
    }

    fn check(&self) -> Result<()> {
        let Order { batch_size, rank, ranks, .. } = self.order;
        check_sizes([("batch_size", batch_size, usize::MAX)])?;
        ensure(rank < ranks, "rank", || format!("is {rank}, but must be below ranks, {ranks}"))?;
        if let Some(batches) = self.order.batches_per_epoch {
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
        self.order.batch_size.saturating_mul(self.order.ranks)
    }

    /// Items of an epoch, of all ranks.
    fn epoch_items(&self) -> usize {
        self.order.batches_per_epoch.map_or(self.batches.len(), |batches| batches * self.step_items())
    }

    /// Items of all ranks before an epoch. Wrapping: whoever starts after usize::MAX epochs gets some epoch.
    pub(crate) fn items_before(&self, epoch: usize) -> usize {
        let items = |epochs: usize| epochs.wrapping_mul(self.epoch_items());
        let read = self.order.items_read.unwrap_or_else(|| items(self.order.first_epoch));
        read.wrapping_add(items(epoch.wrapping_sub(self.order.first_epoch)))
    }

    /// The number of batches of an epoch, which all ranks have in common.
    pub fn num_batches(&self) -> usize {
        steps(self.epoch_items(), self.step_items(), self.order.ranks)
    }

    /// The items of each batch of an epoch.
    fn items_of_batches(&self, epoch: usize) -> Vec<Vec<usize>> {
        let (size, steps, items) = (self.step_items(), self.num_batches(), self.items(epoch));
        let batches = (0..steps).map(|step| {
            let end = if step + 1 == steps { items.len() } else { (step + 1) * size };
            // In turn, because items of a step are sorted by length: so all ranks have about as many tokens.
            items[step * size..end].iter().skip(self.order.rank).step_by(self.order.ranks).copied().collect()
        });
        batches.collect()
    }

    /// The items of an epoch, of all ranks. Epochs follow each other through the passes over all items.
    fn items(&self, epoch: usize) -> Vec<usize> {
        let (before, indices) = (self.items_before(epoch), &self.batches.items.indices);
        let pass = |pass: usize| {
            let mut order = indices.to_vec();
            if self.order.is_shuffled {
                order.shuffle(&mut stream(self.order.seed, Purpose::Order, pass));
            }
            order
        };
        // Epochs need not end where passes do: this one may begin and end within a pass.
        let passes = (0..).flat_map(|number| pass((before / indices.len()).wrapping_add(number)));
        let mut items: Vec<usize> = passes.skip(before % indices.len()).take(self.epoch_items()).collect();
        if let Some(lengths) = self.batches.items.lengths.as_ref().filter(|_| self.order.is_shuffled) {
            let mut rng = stream(self.order.seed, Purpose::Buckets, epoch);
            let size = self.step_items();
            for bucket in items.chunks_mut(size.saturating_mul(BUCKET)) {
                bucket.sort_by_key(|&item| Reverse(lengths[item]));
                // The last batch of an epoch may be smaller, so it stays where it is.
                let mut steps: Vec<Vec<usize>> = bucket.chunks_exact(size).map(<[usize]>::to_vec).collect();
                steps.shuffle(&mut rng);
                bucket.iter_mut().zip(steps.into_iter().flatten()).for_each(|(index, item)| *index = item);
            }
        }
        match &self.batches.items.texts {
            Some(texts) => distinct(&items, self.step_items(), texts),
            None => items,
        }
    }

    /// A seed for the batch that begins with this rank's item number `done` of an epoch; without shuffling the same
    /// in every epoch, so that every validation masks the same tokens.
    fn seed(&self, purpose: Purpose, epoch: usize, done: usize) -> u64 {
        // Counted over all epochs and ranks: no two batches of a run draw from one stream.
        let before = if self.order.is_shuffled { self.items_before(epoch) } else { 0 };
        let own = done.wrapping_mul(self.order.ranks).wrapping_add(self.order.rank);
        stream(self.order.seed, purpose, before.wrapping_add(own)).next_u64()
    }
}

/// What a random stream is for. Streams of different purposes are independent of each other.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Purpose {
    Order = 0,
    Buckets = 0x6275_636b_6574_7321,
    Batch = 0x6d61_736b_6261_7463,
    Dropout = 0x6472_6f70_6f75_7421,
}

/// The order of items and their division into batches and ranks, by these fields and the epoch's number alone: so ranks
/// agree without communication, and a resumed run continues as it would have.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// Items in a batch of one rank; the last batch of an epoch may have fewer.
    batch_size: usize,
    /// `None` for one pass over the items.
    batches_per_epoch: Option<usize>,
    first_epoch: usize,
    /// Items of all ranks before it; by default those of as many epochs as there are before it.
    items_read: Option<usize>,
    seed: u64,
    is_shuffled: bool,
    rank: usize,
    ranks: usize,
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

/// The batches of an epoch of an [`EpochLoader`], from a thread that ends once this is dropped. If it panics, so does the taker.
#[derive(Debug)]
pub struct Epoch<B> {
    batches: Receiver<Result<B, DatasetError>>,
    thread: Option<JoinHandle<()>>,
}

impl<B> Iterator for Epoch<B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.recv();
        if batch.is_err()
            && let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
        {
            resume_unwind(panic);
        }
        batch.ok()
    }
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
