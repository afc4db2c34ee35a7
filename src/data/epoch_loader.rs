//! Batches of a dataset, epoch after epoch.

use super::epoch_order::{EpochOrder, Finished, Purpose};
use crate::distributed::Ranks;
use crate::error::{Error, Result};
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::{Dataset, DatasetError};
use burn::prelude::*;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Batches that are prepared ahead, each of which is in memory.
const AHEAD: usize = 4;

/// Makes the batches of an [`EpochLoader`]: a [`Batcher`](burn::data::dataloader::batcher::Batcher) that returns errors.
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

/// Batches of any dataset, for Burn's `SupervisedTraining` and for custom loops.
///
/// An epoch is one pass over the dataset, or a fixed number of batches. Its order, masked tokens and, in Burn's trainer,
/// dropout depend on the seed and the number of the epoch only, so a run that is resumed with
/// [`starting_after`](Self::starting_after) continues exactly as if it had not been stopped.
///
/// Each [`iter`](DataLoader::iter) is the next epoch; a clone begins again at the first. A thread reads, tokenises and
/// collates a few batches ahead; an error is returned in place of its batch and ends the epoch.
///
/// ```
/// use burn::data::dataloader::DataLoader;
/// use burn::prelude::*;
/// use burn_bert::data::{EpochLoader, LabelledTexts, SequenceBatcher, TextColumns};
/// use burn_bert::text::BertTokenizer;
///
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nno\n")?;
/// let (tokenizer, device) = (BertTokenizer::from_pretrained(dir)?, Device::default());
/// std::fs::write(dir.join("train.csv"), "text,label\ngood,positive\nno good,negative\n")?;
/// let texts = LabelledTexts::open(dir.join("train.csv"), &TextColumns::default())?;
/// let batcher = SequenceBatcher::new(tokenizer, texts.names().len());
/// let lengths = texts.sizes();
/// let loader = EpochLoader::new(texts, batcher, 2, &device)?.with_shuffling(42).with_length_bucketing(lengths)?;
/// for batch in loader.iter() {
///     assert_eq!(batch?.input.dims(), [2, 4]); // [CLS] no good [SEP]
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EpochLoader<B: TryBatcher> {
    source: Source<B>,
    /// Only copies that the trainer makes for its devices seed them.
    seeds_device: bool,
    state: Mutex<State<B::Batch>>,
}

/// What makes the batches, in a thread.
struct Source<B: TryBatcher> {
    dataset: Arc<dyn Dataset<B::Item>>,
    batcher: Arc<B>,
    order: EpochOrder,
    device: Device,
    /// Those that share a validation.
    ranks: Option<Ranks>,
}

/// How far a loader has come.
struct State<T> {
    next_epoch: usize,
    /// A thread that prepares the batches of this epoch and those after it already.
    ahead: Option<(usize, Batches<T>)>,
}

/// Batches, with the number of items in each.
type Batches<T> = Prefetch<(usize, Result<T, DatasetError>)>;

impl<B: TryBatcher> EpochLoader<B> {
    /// Batches of `batch_size` items in the order of the dataset, for validation. Returns [`Error::Config`] if
    /// `batch_size` is 0, [`Error::Empty`] if there is no item.
    pub fn new(
        dataset: impl Dataset<B::Item> + 'static,
        batcher: B,
        batch_size: usize,
        device: &Device,
    ) -> Result<Self> {
        let num_items = dataset.len();
        if num_items == 0 {
            return Err(Error::Empty { input: "dataset", shape: vec![0] });
        }
        let order = EpochOrder {
            num_items,
            batch_size,
            batches_per_epoch: None,
            finished: Finished::default(),
            seed: 0,
            is_shuffled: false,
            lengths: None,
            texts: None,
            rank: 0,
            ranks: 1,
            range: None,
        };
        order.check()?;
        let (dataset, batcher) = (Arc::new(dataset), Arc::new(batcher));
        Ok(Self::of(Source { dataset, batcher, order, device: device.clone(), ranks: None }))
    }

    fn of(source: Source<B>) -> Self {
        let state = Mutex::new(State { next_epoch: source.order.finished.epochs, ahead: None });
        Self { source, seeds_device: false, state }
    }

    /// Shuffles each pass by a seed, for training.
    pub fn with_shuffling(self, seed: u64) -> Self {
        let order = EpochOrder { seed, is_shuffled: true, ..self.source.order };
        Self::of(Source { order, ..self.source })
    }

    /// Makes an epoch this many batches in place of one pass, to validate and save more or less often. The next epoch
    /// goes on where one ended, with all its batches full. Returns [`Error::Config`] if it is 0, or an epoch has more
    /// than 2²⁸ items.
    pub fn with_batches_per_epoch(self, batches: usize) -> Result<Self> {
        self.checked(|order| EpochOrder { batches_per_epoch: Some(batches), ..order })
    }

    /// Groups items of similar lengths into batches, to reduce padding. `lengths` has one for each item, in any unit.
    /// Items are grouped within fifty batches, and only if they are shuffled, so the order stays random. Returns
    /// [`Error::Data`] if there is not one length per item.
    pub fn with_length_bucketing(self, lengths: Vec<usize>) -> Result<Self> {
        self.check_count("lengths", lengths.len())?;
        self.checked(|order| EpochOrder { lengths: Some(Arc::new(lengths)), ..order })
    }

    /// Keeps items with a text in common out of one batch, of all ranks together, for losses to which all others of a batch are
    /// negatives. `texts` has hashes of the texts of each item. The last batches of an epoch may have equal texts, if the data
    /// leave no other choice. Only if items are shuffled. Returns [`Error::Data`] if there is not one list per item.
    pub fn with_distinct_texts(self, texts: Vec<Vec<u64>>) -> Result<Self> {
        self.check_count("texts", texts.len())?;
        self.checked(|order| EpochOrder { texts: Some(Arc::new(texts)), ..order })
    }

    fn check_count(&self, what: &str, found: usize) -> Result<()> {
        let items = self.source.order.num_items;
        if found == items {
            return Ok(());
        }
        Err(Error::data(what, format!("number {found}, but there must be one per item: {items}")))
    }

    /// This rank's share of every epoch, for data-parallel training: of each `ranks` × `batch_size` items every rank
    /// takes `batch_size`, in turn, so all have as many batches and, with [length
    /// bucketing](Self::with_length_bucketing), about as many tokens in each. Ranks must agree on everything but
    /// `rank`. Returns [`Error::Config`] if `rank` is not below `ranks`, or an epoch has fewer items than `ranks`.
    pub fn shard(self, rank: usize, ranks: usize) -> Result<Self> {
        self.checked(|order| EpochOrder { rank, ranks, ..order })
    }

    fn checked(self, change: impl FnOnce(EpochOrder) -> EpochOrder) -> Result<Self> {
        let order = change(self.source.order);
        order.check()?;
        Ok(Self::of(Source { order, ..self.source }))
    }

    /// Shares the validation of a [`Training`](crate::training::Training) on ranks: each validates every N-th batch and sends
    /// the outputs to the others, so that all have the losses and metrics of one process. Ranks must have the same data. A loop
    /// that computes every batch itself gets all of them, in another order.
    pub fn share(self, ranks: &Ranks) -> Self {
        Self::of(Source { ranks: Some(ranks.clone()), ..self.source })
    }

    /// Skips what a run has [finished](Finished), such as a number of epochs.
    pub fn starting_after(self, finished: impl Into<Finished>) -> Self {
        let order = EpochOrder { finished: finished.into(), ..self.source.order };
        Self::of(Source { order, ..self.source })
    }

    fn copy_with(&self, device: &Device, order: EpochOrder) -> Arc<dyn DataLoader<B::Batch>> {
        let source = Source { device: device.clone(), order, ..self.source.clone() };
        Arc::new(Self { seeds_device: true, ..Self::of(source) })
    }

    // Poisoning is ignored: the state is whole between any two statements.
    fn lock(&self) -> MutexGuard<'_, State<B::Batch>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: TryBatcher> Source<B> {
    /// The batches of an epoch, then of the next, and so on.
    fn batches(self, first: usize) -> impl Iterator<Item = (usize, Result<B::Batch, DatasetError>)> {
        // Without an item there is no batch in any epoch to wait for.
        let epochs = if self.order.len() == 0 { 0..0 } else { first..usize::MAX };
        epochs.flat_map(move |epoch| {
            let source = self.clone();
            let mut done = 0;
            let with_seed = |items: Vec<usize>| {
                let seed = source.order.seed(Purpose::Batch, epoch, done);
                done += items.len();
                (items, seed)
            };
            let mut batches: Vec<_> = self.order.batches(epoch).into_iter().map(with_seed).collect();
            if let Some(ranks) = &self.ranks {
                for round in batches.chunks_mut(ranks.size()) {
                    let own = ranks.rank().min(round.len() - 1);
                    round[..=own].rotate_right(1); // its own batch comes first
                }
            }
            batches.into_iter().map(move |(items, seed)| {
                let count = items.len();
                let items = source.dataset.get_many(items);
                let batch = items.and_then(|items| {
                    source.batcher.try_batch_seeded(items, seed, &source.device).map_err(DatasetError::new)
                });
                (count, batch)
            })
        })
    }
}

impl<B: TryBatcher> Clone for Source<B> {
    fn clone(&self) -> Self {
        let (dataset, batcher) = (self.dataset.clone(), self.batcher.clone());
        let (order, device) = (self.order.clone(), self.device.clone());
        Self { dataset, batcher, order, device, ranks: self.ranks.clone() }
    }
}

/// From its first epoch on.
impl<B: TryBatcher> Clone for EpochLoader<B> {
    fn clone(&self) -> Self {
        Self { seeds_device: self.seeds_device, ..Self::of(self.source.clone()) }
    }
}

impl<B: TryBatcher> fmt::Debug for EpochLoader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut loader = f.debug_struct("EpochLoader");
        loader.field("order", &self.source.order).field("device", &self.source.device);
        loader.field("next_epoch", &self.lock().next_epoch).finish_non_exhaustive()
    }
}

impl<B: TryBatcher> DataLoader<B::Batch> for EpochLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B::Batch> + 'a> {
        let mut state = self.lock();
        let epoch = state.next_epoch;
        state.next_epoch = epoch.wrapping_add(1);
        // The thread of the last epoch may have begun this one already, unless that epoch was not read to its end.
        let ahead = state.ahead.take().filter(|&(begins, _)| begins == epoch);
        let batches = ahead.map_or_else(
            || {
                let source = self.source.clone();
                Prefetch::new(AHEAD, move || source.batches(epoch))
            },
            |(_, batches)| batches,
        );
        let order = &self.source.order;
        // Without shuffling the loader validates, which must not change the dropout of the next epoch.
        if self.seeds_device && order.is_shuffled {
            self.source.device.seed(order.seed(Purpose::Dropout, epoch, 0));
        }
        Box::new(Epoch { loader: self, batches: Some(batches), epoch, done: 0, taken: 0 })
    }

    fn num_items(&self) -> usize {
        self.source.order.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<B::Batch>> {
        self.copy_with(device, self.source.order.clone())
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B::Batch>> {
        let order = self.source.order.clone();
        let before = order.range.as_ref().map_or(0, |range| range.start);
        let range = Some(before + start..before + end);
        self.copy_with(&self.source.device, EpochOrder { range, ..order })
    }
}

/// The batches of one epoch.
struct Epoch<'a, B: TryBatcher> {
    loader: &'a EpochLoader<B>,
    /// `None` after an error.
    batches: Option<Batches<B::Batch>>,
    epoch: usize,
    /// Items in the batches so far, and the number of these.
    done: usize,
    taken: usize,
}

impl<B: TryBatcher> Iterator for Epoch<'_, B> {
    type Item = Result<B::Batch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done == self.loader.num_items() {
            return None;
        }
        let (count, batch) = self.batches.as_mut()?.next()?;
        if let Some(ranks) = &self.loader.source.ranks {
            let left = (self.loader.num_items() - self.done).div_ceil(self.loader.source.order.batch_size);
            let is_first = self.taken.is_multiple_of(ranks.size());
            ranks.begin_output(if is_first { left.min(ranks.size()) } else { 0 });
        }
        self.taken += 1;
        self.done += count;
        if batch.is_err() {
            self.batches = None;
        }
        Some(batch)
    }
}

/// A thread that has come to the end of the epoch goes on with the next.
impl<B: TryBatcher> Drop for Epoch<'_, B> {
    fn drop(&mut self) {
        if self.done == self.loader.num_items()
            && let Some(batches) = self.batches.take()
        {
            self.loader.lock().ahead = Some((self.epoch.wrapping_add(1), batches));
        }
    }
}

impl<B: TryBatcher> DataLoaderIterator<B::Batch> for Epoch<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.loader.num_items(), Some("items".into()))
    }
}

/// An iterator that runs in a thread, a bounded number of items ahead. The thread ends with the iterator, or when this is
/// dropped. If it panics, so does the taker.
struct Prefetch<T> {
    /// `None` once the iterator ended.
    items: Option<Receiver<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    fn new<I: Iterator<Item = T>>(ahead: usize, iterator: impl FnOnce() -> I + Send + 'static) -> Self {
        let (sender, items) = sync_channel(ahead);
        let thread = thread::spawn(move || {
            for item in iterator() {
                // The receiver was dropped: nobody takes the rest.
                if sender.send(item).is_err() {
                    break;
                }
            }
        });
        Self { items: Some(items), thread: Some(thread) }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let item = self.items.as_ref()?.recv().ok();
        if item.is_none() {
            self.items = None;
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
        }
        item
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.items = None; // so that the thread's next send fails
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is of an item that nobody asked for.
            let _ = thread.join();
        }
    }
}
