//! A data loader that prepares its batches in a thread, epoch after epoch.

use super::prefetch::Prefetch;
use crate::error::{Error, Result};
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Batches that are prepared ahead.
const AHEAD: usize = 4;

/// Sets dropout's seeds apart from those of the data.
const DROPOUT: u64 = 0x6472_6f70_6f75_7421;

/// A seed for the thing number `stream`.
pub(super) fn draw(seed: u64, stream: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng.next_u64()
}

/// What all epochs of a loader have in common.
pub(super) struct Epochs {
    pub(super) num_items: usize,
    /// The last batch of an epoch may have fewer.
    pub(super) batch_size: usize,
    /// What [`Progress`] counts.
    pub(super) unit: &'static str,
    /// What everything random is seeded with; `None` if nothing is.
    pub(super) seed: Option<u64>,
}

/// What an [`EpochLoader`] takes its batches from.
pub(super) trait Source: Send + Sync + 'static {
    /// A batch.
    type Batch: Send + 'static;

    fn epochs(&self) -> Epochs;

    /// The items of one pass over the data, in their order. There are as many in every pass, and at least one. Passes
    /// follow each other independently of epochs.
    fn order(&self, pass: usize) -> Vec<usize>;

    /// The batch of these items; `first` is the number of the first, counted from the start of the first pass.
    fn batch(&self, items: &[usize], first: usize, device: &Device) -> Result<Self::Batch, DatasetError>;
}

/// The batches of items `range` of epoch `epoch`, then of those of the next epoch, and so on.
fn batches<S: Source>(
    source: Arc<S>,
    epoch: usize,
    range: Range<usize>,
    device: Device,
) -> impl Iterator<Item = Result<S::Batch, DatasetError>> {
    let Epochs { batch_size: size, num_items: epoch_items, .. } = source.epochs();
    let epochs = if range.is_empty() { 0..0 } else { epoch..usize::MAX };
    let places = epochs.flat_map(move |epoch| {
        let end = range.end;
        let starts = range.clone().step_by(size);
        starts.map(move |start| (epoch.wrapping_mul(epoch_items).wrapping_add(start), size.min(end - start)))
    });
    let (mut pass, mut order) = (0, source.order(0));
    places.map(move |(first, count)| {
        let item = |number: usize| {
            if number / order.len() != pass {
                pass = number / order.len();
                order = source.order(pass);
            }
            order[number % order.len()]
        };
        let items: Vec<usize> = (0..count).map(|place| first.wrapping_add(place)).map(item).collect();
        source.batch(&items, first, &device)
    })
}

/// A loader that counts its epochs: each iteration over it is the next one.
pub(super) struct EpochLoader<S: Source> {
    source: Arc<S>,
    device: Device,
    /// Which of an epoch's items are this loader's: all, or one device's part.
    range: Range<usize>,
    state: Mutex<State<S::Batch>>,
}

/// How far a loader has come.
struct State<B> {
    /// The next epoch.
    epoch: usize,
    /// Batches of an epoch and those after it, if a thread prepares them already.
    ahead: Option<(usize, Prefetch<Result<B, DatasetError>>)>,
}

impl<S: Source> EpochLoader<S> {
    /// # Errors
    ///
    /// [`Error::Config`] if `batch_size` is 0, [`Error::Empty`] if there is no item.
    pub(super) fn new(source: S, device: &Device) -> Result<Self> {
        let Epochs { num_items, batch_size, unit, .. } = source.epochs();
        if batch_size == 0 {
            let problem = "is 0, but must be at least 1".into();
            return Err(Error::Config { field: "batch_size", problem });
        }
        if num_items == 0 {
            return Err(Error::Empty { input: unit, shape: vec![0] });
        }
        Ok(Self::at(Arc::new(source), device, 0..num_items, 0))
    }

    fn at(source: Arc<S>, device: &Device, range: Range<usize>, epoch: usize) -> Self {
        Self { source, device: device.clone(), range, state: Mutex::new(State { epoch, ahead: None }) }
    }

    /// The same, from epoch `epoch` on.
    pub(super) fn starting_at(&self, epoch: usize) -> Self {
        Self::at(self.source.clone(), &self.device, self.range.clone(), epoch)
    }

    /// The same with another source of as many items.
    pub(super) fn with_source(&self, source: S) -> Self {
        Self::at(Arc::new(source), &self.device, self.range.clone(), self.epoch())
    }

    pub(super) fn source(&self) -> &S {
        &self.source
    }

    pub(super) fn epoch(&self) -> usize {
        self.lock().epoch
    }

    fn lock(&self) -> MutexGuard<'_, State<S::Batch>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At the same epoch; from there on each counts its own.
impl<S: Source> Clone for EpochLoader<S> {
    fn clone(&self) -> Self {
        self.starting_at(self.epoch())
    }
}

impl<S: Source> fmt::Debug for EpochLoader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut loader = f.debug_struct("EpochLoader");
        loader.field("device", &self.device).field("range", &self.range).field("epoch", &self.epoch());
        loader.finish_non_exhaustive()
    }
}

impl<S: Source> DataLoader<S::Batch> for EpochLoader<S> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<S::Batch> + 'a> {
        let mut state = self.lock();
        let epoch = state.epoch;
        state.epoch += 1;
        let ahead = state.ahead.take().filter(|&(begins, _)| begins == epoch);
        let batches = ahead.map_or_else(
            || {
                let (source, range, device) = (self.source.clone(), self.range.clone(), self.device.clone());
                Prefetch::new(AHEAD, move || batches(source, epoch, range, device))
            },
            |(_, batches)| batches,
        );
        let Epochs { num_items, seed, .. } = self.source.epochs();
        if let Some(seed) = seed {
            let first = epoch.wrapping_mul(num_items).wrapping_add(self.range.start);
            self.device.seed(draw(seed ^ DROPOUT, first as u64));
        }
        Box::new(Batches { loader: self, batches: Some(batches), epoch, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.range.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<S::Batch>> {
        Arc::new(Self::at(self.source.clone(), device, self.range.clone(), self.epoch()))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<S::Batch>> {
        let range = self.range.start + start..self.range.start + end;
        Arc::new(Self::at(self.source.clone(), &self.device, range, self.epoch()))
    }
}

/// `DataLoader` for a type whose field `loader` is an [`EpochLoader`].
macro_rules! epoch_loader {
    ($loader:ty => $batch:ty $(, $generic:ident: $bound:path)?) => {
        impl $(<$generic: $bound>)? burn::data::dataloader::DataLoader<$batch> for $loader {
            fn iter<'a>(&'a self) -> Box<dyn burn::data::dataloader::DataLoaderIterator<$batch> + 'a> {
                self.loader.iter()
            }

            fn num_items(&self) -> usize {
                self.loader.num_items()
            }

            fn to_device(&self, device: &Device) -> Arc<dyn burn::data::dataloader::DataLoader<$batch>> {
                self.loader.to_device(device)
            }

            fn slice(&self, start: usize, end: usize) -> Arc<dyn burn::data::dataloader::DataLoader<$batch>> {
                self.loader.slice(start, end)
            }
        }
    };
}
pub(super) use epoch_loader;

/// One epoch.
struct Batches<'a, S: Source> {
    loader: &'a EpochLoader<S>,
    /// `None` after an error.
    batches: Option<Prefetch<Result<S::Batch, DatasetError>>>,
    epoch: usize,
    done: usize,
}

impl<S: Source> Iterator for Batches<'_, S> {
    type Item = Result<S::Batch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let count = self.loader.source.epochs().batch_size.min(self.loader.range.len() - self.done);
        if count == 0 {
            return None;
        }
        let batch = self.batches.as_mut()?.next()?;
        self.done += count;
        if batch.is_err() {
            self.batches = None;
        }
        Some(batch)
    }
}

/// A thread that has come to the end of the epoch goes on with the next.
impl<S: Source> Drop for Batches<'_, S> {
    fn drop(&mut self) {
        if self.done == self.loader.range.len()
            && let Some(batches) = self.batches.take()
        {
            self.loader.lock().ahead = Some((self.epoch + 1, batches));
        }
    }
}

impl<S: Source> DataLoaderIterator<S::Batch> for Batches<'_, S> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.loader.range.len(), Some(self.loader.source.epochs().unit.into()))
    }
}
