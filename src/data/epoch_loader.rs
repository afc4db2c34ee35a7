use super::batches::{Batches, EpochOrder, Purpose, TryBatcher};
use crate::distributed::Ranks;
use crate::error::{Error, Result};
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::prelude::*;
use std::fmt;
use std::mem::take;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that are prepared ahead, each of which is in memory.
const AHEAD: usize = 4;

/// Batches of any dataset, for Burn's `SupervisedTraining` and for custom loops.
///
/// An epoch is one pass over the dataset, or a fixed number of batches. Its order, masked tokens and, in Burn's trainer,
/// dropout depend on the seed and the number of the epoch only.
///
/// Each [`iter`](DataLoader::iter) is the next epoch; a clone begins again at the first. A thread makes a few batches ahead; an
/// error is returned in place of its batch and ends the epoch.
///
/// ```
/// use burn::data::dataloader::DataLoader;
/// use burn::prelude::*;
/// use burn_bert::data::{Batches, EpochLoader, LabelledTexts, SequenceBatcher, Columns};
/// use burn_bert::text::BertTokenizer;
///
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nno\n")?;
/// let (tokenizer, device) = (BertTokenizer::from_pretrained(dir)?, Device::default());
/// std::fs::write(dir.join("train.csv"), "text,label\ngood,positive\nno good,negative\n")?;
/// let texts = LabelledTexts::open(dir.join("train.csv"), &Columns::default())?;
/// let batcher = SequenceBatcher::new(tokenizer, texts.names().len());
/// let lengths = texts.sizes();
/// let batches = Batches::new(texts, batcher).with_lengths(lengths);
/// let loader = EpochLoader::new(batches, 2, &device)?.with_shuffling(42);
/// for batch in loader.iter() {
///     assert_eq!(batch?.input.dims(), [2, 4]); // [CLS] no good [SEP]
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EpochLoader<B: TryBatcher> {
    batches: Arc<Batches<B>>,
    order: EpochOrder,
    device: Device,
    /// Those that share a validation, or this process alone.
    ranks: Ranks,
    /// Only copies that the trainer makes for its devices seed them.
    seeds_device: bool,
    next_epoch: AtomicUsize,
}

impl<B: TryBatcher> EpochLoader<B> {
    /// Batches of `batch_size` items in the order of the dataset, for validation; in a near one if they
    /// [have texts](Batches::with_texts). Returns [`Error::Config`] if
    /// `batch_size` is 0, [`Error::Empty`] if there is no item, [`Error::Data`] if there is not one length, source or list of
    /// texts per item.
    pub fn new(batches: Batches<B>, batch_size: usize, device: &Device) -> Result<Self> {
        batches.check()?;
        if batches.is_empty() {
            return Err(Error::Empty { input: "dataset", shape: vec![0] });
        }
        let order = EpochOrder { items: batches.items.clone(), batch_size, ranks: 1, ..Default::default() };
        order.check()?;
        let (batches, device) = (Arc::new(batches), device.clone());
        let (ranks, next_epoch) = (Ranks::single(), AtomicUsize::new(0));
        Ok(Self { batches, order, device, ranks, seeds_device: false, next_epoch })
    }

    fn with(mut self, change: impl FnOnce(&mut EpochOrder)) -> Result<Self> {
        change(&mut self.order);
        self.order.check()?;
        // A clone begins at the first epoch, whatever was read before the change.
        Ok(self.clone())
    }

    /// Shuffles each pass by a seed, for training.
    pub fn with_shuffling(mut self, seed: u64) -> Self {
        (self.order.seed, self.order.is_shuffled) = (seed, true);
        self.clone()
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

    /// Shares the validation of a [`Training`](crate::training::Training) on ranks with the same data: each validates every N-th
    /// batch and sends the outputs to the others, so that all have the losses and metrics of one process. A loop of its own gets
    /// all batches, in another order.
    pub fn share(self, ranks: &Ranks) -> Self {
        Self { ranks: ranks.clone(), ..self.clone() }
    }

    /// Skips the epochs that a run has finished.
    pub fn starting_after(mut self, epochs: usize) -> Self {
        self.order.first_epoch = epochs;
        self.clone()
    }

    /// Sets how many items all ranks together have read in the epochs that [`starting_after`](Self::starting_after) skips, if
    /// there were not always as many ranks as now, so that epochs of a number of batches go on at the same place in the data.
    pub fn with_items_read(mut self, items: usize) -> Self {
        self.order.items_read = Some(items);
        self.clone()
    }

    fn send(&self, epoch: usize, sender: &SyncSender<Sent<B::Batch>>) {
        let mut done = 0;
        // Drawn before ranks change the order of batches, so that a batch masks the same tokens on any number of them.
        let with_seed = |items: Vec<usize>| {
            let seed = self.order.seed(Purpose::Batch, epoch, done);
            done += items.len();
            (items, seed)
        };
        let mut batches: Vec<_> = self.order.batches(epoch).into_iter().map(with_seed).collect();
        let (rank, ranks) = (self.ranks.rank(), self.ranks.size());
        for round in batches.chunks_mut(ranks) {
            let (count, own) = (round.len(), rank.min(round.len() - 1));
            round[..=own].rotate_right(1); // its own batch comes first
            for (place, (items, seed)) in round.iter_mut().enumerate() {
                let items = take(items);
                let (size, round) = (items.len(), if place == 0 { count } else { 0 });
                let batch = self.batches.read(items, *seed, &self.device);
                let is_last = batch.is_err();
                // If it cannot be sent, the receiver was dropped: nobody takes the rest.
                if sender.send((size, round, batch)).is_err() || is_last {
                    return;
                }
            }
        }
    }
}

/// From its first epoch on.
impl<B: TryBatcher> Clone for EpochLoader<B> {
    fn clone(&self) -> Self {
        Self {
            batches: self.batches.clone(),
            order: self.order.clone(),
            device: self.device.clone(),
            ranks: self.ranks.clone(),
            seeds_device: self.seeds_device,
            next_epoch: AtomicUsize::new(self.order.first_epoch),
        }
    }
}

impl<B: TryBatcher> fmt::Debug for EpochLoader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut loader = f.debug_struct("EpochLoader");
        loader.field("order", &self.order).field("device", &self.device);
        loader.field("next_epoch", &self.next_epoch).finish_non_exhaustive()
    }
}

impl<B: TryBatcher> DataLoader<B::Batch> for EpochLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B::Batch> + 'a> {
        // Relaxed: epochs are only counted, and nothing else is ordered by it.
        let epoch = self.next_epoch.fetch_add(1, Ordering::Relaxed);
        // Without shuffling the loader validates, which must not change the dropout of the next epoch.
        if self.seeds_device && self.order.is_shuffled {
            self.device.seed(self.order.seed(Purpose::Dropout, epoch, 0));
        }
        // A thread, so that the next batches are read and tokenised while a step computes.
        let (sender, batches) = sync_channel(AHEAD);
        let loader = self.clone();
        let thread = Some(thread::spawn(move || loader.send(epoch, &sender)));
        Box::new(Epoch { loader: self, batches, thread, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.order.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<B::Batch>> {
        Arc::new(Self { device: device.clone(), seeds_device: true, ..self.clone() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B::Batch>> {
        let mut slice = Self { seeds_device: true, ..self.clone() };
        // Of a slice, the places count from its own start.
        let before = self.order.range.as_ref().map_or(0, |range| range.start);
        slice.order.range = Some(before + start..before + end);
        Arc::new(slice)
    }
}

/// The number of items in a batch; of batches in the round of ranks that it begins, or 0; and the batch.
type Sent<T> = (usize, usize, Result<T, DatasetError>);

/// The batches of one epoch, from a thread that ends once this is dropped. If it panics, so does the taker.
struct Epoch<'a, B: TryBatcher> {
    loader: &'a EpochLoader<B>,
    batches: Receiver<Sent<B::Batch>>,
    thread: Option<JoinHandle<()>>,
    /// Items in the batches so far.
    done: usize,
}

impl<B: TryBatcher> Iterator for Epoch<'_, B> {
    type Item = Result<B::Batch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Ok((count, round, batch)) = self.batches.recv() else {
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
            return None;
        };
        self.loader.ranks.begin_output(round);
        self.done += count;
        Some(batch)
    }
}

impl<B: TryBatcher> DataLoaderIterator<B::Batch> for Epoch<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.loader.num_items(), Some("items".into()))
    }
}
