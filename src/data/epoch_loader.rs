use super::batches::{Batches, EpochOrder, Purpose};
use crate::error::{Error, Result};
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::prelude::*;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that are prepared ahead, each of which is in memory.
const AHEAD: usize = 4;

/// Batches of any dataset in epochs, for training loops, [`Trainer`](crate::training::Trainer)'s among them, and Burn's `Learner`.
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
    order: EpochOrder,
    device: Device,
    /// What Burn's [`DataLoader::iter`] reads next.
    next_epoch: Arc<AtomicUsize>,
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
        let order = EpochOrder { items: batches.items.clone(), batch_size, ranks: 1, ..Default::default() };
        order.check()?;
        Ok(Self { batches, order, device: device.clone(), next_epoch: Arc::default() })
    }

    fn with(mut self, change: impl FnOnce(&mut EpochOrder)) -> Result<Self> {
        change(&mut self.order);
        self.order.check()?;
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
        self.next_epoch = Arc::new(AtomicUsize::new(epoch));
        self
    }

    /// Items that all ranks together have read before an epoch.
    pub(crate) fn items_before(&self, epoch: usize) -> usize {
        self.order.items_before(epoch)
    }

    /// The batches of an epoch, counted from 0.
    pub fn epoch(&self, epoch: usize) -> Epoch<B> {
        self.part_of_epoch(epoch, 0, 1)
    }

    /// Of the batches of an epoch, those numbered `part`, `part` + `parts`, and so on, each as in the whole epoch.
    pub(crate) fn part_of_epoch(&self, epoch: usize, part: usize, parts: usize) -> Epoch<B> {
        // A thread, so that the next batches are read and tokenised while a step computes.
        let (sender, batches) = sync_channel(AHEAD);
        let loader = self.on(&self.device);
        let thread = Some(thread::spawn(move || loader.send(epoch, part, parts, &sender)));
        Epoch { batches, thread, done: 0, items: self.order.len() }
    }

    fn send(&self, epoch: usize, part: usize, parts: usize, sender: &SyncSender<Sent<B>>) {
        let mut done = 0;
        // Drawn for all parts, so that a batch masks the same tokens in any number of them.
        let with_seed = |items: Vec<usize>| {
            let seed = self.order.seed(Purpose::Batch, epoch, done);
            done += items.len();
            (items, seed)
        };
        let batches = self.order.batches(epoch).into_iter().map(with_seed);
        for (items, seed) in batches.skip(part).step_by(parts) {
            let size = items.len();
            let batch = self.batches.read(items, seed, &self.device);
            let is_last = batch.is_err();
            // If it cannot be sent, the receiver was dropped: nobody takes the rest.
            if sender.send((size, batch)).is_err() || is_last {
                return;
            }
        }
    }

    /// The number of batches of an epoch, as many on every rank.
    pub(crate) fn num_batches(&self) -> usize {
        self.order.num_batches()
    }

    /// A seed for all that is random in the steps of an epoch on this rank, such as dropout.
    pub(crate) fn step_seed(&self, epoch: usize) -> u64 {
        self.order.seed(Purpose::Dropout, epoch, 0)
    }

    /// The same on a device.
    pub(crate) fn on(&self, device: &Device) -> Self {
        let (order, next_epoch) = (self.order.clone(), self.next_epoch.clone());
        Self { batches: self.batches.clone(), order, device: device.clone(), next_epoch }
    }
}

/// For Burn's `Learner`: each [`iter`](DataLoader::iter) is the next epoch.
impl<B: Send + 'static> DataLoader<B> for EpochLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B> + 'a> {
        // Relaxed: epochs are only counted, and nothing else is ordered by it.
        Box::new(self.epoch(self.next_epoch.fetch_add(1, Ordering::Relaxed)))
    }

    fn num_items(&self) -> usize {
        self.order.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<B>> {
        Arc::new(self.on(device))
    }

    /// Some items of the dataset, in epochs of their own; of a number of batches, as many items in another order.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B>> {
        let (batches, order) = match self.order.batches_per_epoch {
            None => (self.batches.slice(start..end), self.order.clone()),
            Some(_) => {
                let count = Some((end - start).div_ceil(self.order.step_items()));
                let seed = self.order.seed.wrapping_add(start as u64);
                (self.batches.clone(), EpochOrder { batches_per_epoch: count, seed, ..self.order.clone() })
            }
        };
        let order = EpochOrder { items: batches.items.clone(), ..order };
        Arc::new(Self { batches, order, device: self.device.clone(), next_epoch: Arc::default() })
    }
}

/// The number of items in a batch, and the batch.
type Sent<B> = (usize, Result<B, DatasetError>);

/// The batches of an epoch of an [`EpochLoader`], from a thread that ends once this is dropped. If it panics, so does the taker.
#[derive(Debug)]
pub struct Epoch<B> {
    batches: Receiver<Sent<B>>,
    thread: Option<JoinHandle<()>>,
    /// Items in the batches so far.
    done: usize,
    items: usize,
}

impl<B> Iterator for Epoch<B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Ok((count, batch)) = self.batches.recv() else {
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
            return None;
        };
        self.done += count;
        Some(batch)
    }
}

impl<B> DataLoaderIterator<B> for Epoch<B> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.items, Some("items".into()))
    }
}
