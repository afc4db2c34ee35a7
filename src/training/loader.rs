//! Batches for Burn's trainer.

use super::collator::MaskedLmCollator;
use super::corpus::{Corpus, TrainingWindows};
use super::example::MaskedLmExample;
use crate::error::{Error, Result};
use crate::model::MaskedLmBatch;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Batches of a [`Corpus`] to train on, for Burn's `SupervisedTraining`.
///
/// What the trainer calls an epoch is here a fixed number of batches, after which it validates and saves; the
/// passes over the text go on behind it. All that is random follows from the seed and the number of the epoch:
/// the order of the windows, which tokens are hidden, and (because each epoch seeds the device) dropout. So a
/// run that is resumed after epoch N with [`starting_after`](Self::starting_after) is the run that was not stopped.
/// Of devices that share an epoch, each gets its part; which one's dropout draws first is then up to the threads.
#[derive(Clone, Debug)]
pub struct TrainingLoader {
    corpus: Corpus,
    collator: MaskedLmCollator,
    device: Device,
    batch_size: usize,
    /// Which of an epoch's windows are this loader's: all, or one device's part.
    range: Range<usize>,
    windows_per_epoch: usize,
    seed: u64,
    state: Arc<Mutex<State>>,
}

/// How far a loader has come.
#[derive(Debug)]
struct State {
    windows: TrainingWindows,
    /// The number of windows that were taken.
    taken: usize,
    /// Epochs that were begun.
    epochs: usize,
}

impl TrainingLoader {
    /// `batches_per_epoch` batches of `batch_size` windows an epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if one of the two is 0.
    pub fn new(
        corpus: Corpus,
        collator: MaskedLmCollator,
        batch_size: usize,
        batches_per_epoch: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        for (field, value) in [("batch_size", batch_size), ("batches_per_epoch", batches_per_epoch)] {
            if value == 0 {
                return Err(Error::Config { field, problem: "is 0, but must be at least 1".into() });
            }
        }
        let windows_per_epoch = batch_size * batches_per_epoch;
        let state = State { windows: corpus.training(seed), taken: 0, epochs: 0 };
        Ok(Self {
            corpus,
            collator,
            device: device.clone(),
            batch_size,
            range: 0..windows_per_epoch,
            windows_per_epoch,
            seed,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Passes over what the first `epochs` epochs trained on.
    pub fn starting_after(self, epochs: usize) -> Self {
        let state = State { windows: self.corpus.training(self.seed), taken: 0, epochs };
        Self { state: Arc::new(Mutex::new(state)), ..self }
    }

    /// A loader at the same epoch that shares no state with this one.
    fn fork(&self) -> Self {
        let epochs = self.lock().epochs;
        self.clone().starting_after(epochs)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next `count` windows from number `first` on.
    fn take(&self, first: usize, count: usize) -> Result<Vec<MaskedLmExample>> {
        let state = &mut *self.lock();
        while state.taken < first {
            state.windows.next().transpose()?;
            state.taken += 1;
        }
        state.taken += count;
        state.windows.by_ref().take(count).collect()
    }
}

impl DataLoader<MaskedLmBatch> for TrainingLoader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<MaskedLmBatch> + 'a> {
        let mut state = self.lock();
        let epoch = state.epochs;
        state.epochs += 1;
        let first = epoch * self.windows_per_epoch + self.range.start;
        self.device.seed(draw(self.seed ^ DROPOUT, first as u64));
        Box::new(TrainingBatches { loader: self, first, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.range.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<MaskedLmBatch>> {
        Arc::new(Self { device: device.clone(), ..self.fork() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<MaskedLmBatch>> {
        Arc::new(Self { range: self.range.start + start..self.range.start + end, ..self.fork() })
    }
}

struct TrainingBatches<'a> {
    loader: &'a TrainingLoader,
    /// The number of the first window.
    first: usize,
    done: usize,
}

impl Iterator for TrainingBatches<'_> {
    type Item = Result<MaskedLmBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let TrainingLoader { collator, device, batch_size, range, seed, .. } = self.loader;
        let count = (*batch_size).min(range.len() - self.done);
        if count == 0 {
            return None;
        }
        let first = self.first + self.done;
        self.done += count;
        let batch = self.loader.take(first, count);
        let batch = batch.and_then(|windows| collate(collator, &windows, draw(*seed, first as u64), device));
        Some(batch.map_err(DatasetError::new))
    }
}

impl DataLoaderIterator<MaskedLmBatch> for TrainingBatches<'_> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.loader.range.len(), Some("windows".into()))
    }
}

/// Windows that the trainer validates on, with the same tokens hidden every time.
#[derive(Clone, Debug)]
pub struct ValidationLoader {
    examples: Vec<MaskedLmExample>,
    collator: MaskedLmCollator,
    device: Device,
    batch_size: usize,
    seed: u64,
}

impl ValidationLoader {
    /// Batches of `batch_size` of the examples, such as those of [`Corpus::held_out`].
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] if there is no example, [`Error::Config`] if `batch_size` is 0.
    pub fn new(
        examples: Vec<MaskedLmExample>,
        collator: MaskedLmCollator,
        batch_size: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        if examples.is_empty() {
            return Err(Error::Empty { input: "examples", shape: vec![0] });
        }
        if batch_size == 0 {
            return Err(Error::Config {
                field: "batch_size",
                problem: "is 0, but must be at least 1".into(),
            });
        }
        Ok(Self { examples, collator, device: device.clone(), batch_size, seed })
    }
}

impl DataLoader<MaskedLmBatch> for ValidationLoader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<MaskedLmBatch> + 'a> {
        Box::new(ValidationBatches { loader: self, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.examples.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<MaskedLmBatch>> {
        Arc::new(Self { device: device.clone(), ..self.clone() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<MaskedLmBatch>> {
        Arc::new(Self { examples: self.examples[start..end].to_vec(), ..self.clone() })
    }
}

struct ValidationBatches<'a> {
    loader: &'a ValidationLoader,
    done: usize,
}

impl Iterator for ValidationBatches<'_> {
    type Item = Result<MaskedLmBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let ValidationLoader { examples, collator, device, batch_size, seed } = self.loader;
        let examples = examples[self.done..].chunks(*batch_size).next()?;
        let seed = draw(*seed, self.done as u64);
        self.done += examples.len();
        Some(collate(collator, examples, seed, device).map_err(DatasetError::new))
    }
}

impl DataLoaderIterator<MaskedLmBatch> for ValidationBatches<'_> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.loader.examples.len(), Some("windows".into()))
    }
}

/// Hides tokens until at least one is hidden, as BERT's own data has it; gives up where chance allows none.
fn collate(
    collator: &MaskedLmCollator,
    examples: &[MaskedLmExample],
    seed: u64,
    device: &Device,
) -> Result<MaskedLmBatch> {
    let mut batch = collator.collate(examples, seed, device)?;
    for attempt in 1..20 {
        if batch.num_masked() > 0 {
            break;
        }
        batch = collator.collate(examples, draw(seed, attempt), device)?;
    }
    Ok(batch)
}

/// Sets dropout's seeds apart from those of hiding.
const DROPOUT: u64 = 0x6472_6f70_6f75_7421;

/// A seed for the thing number `stream`.
fn draw(seed: u64, stream: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng.next_u64()
}
