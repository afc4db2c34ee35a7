//! Batches of a text for Burn's trainer.

use super::collator::{MaskedLmCollator, MaskedLmExample};
use super::corpus::Corpus;
use super::epochs::{EpochLoader, Epochs, Source, draw, epoch_loader};
use crate::error::{Error, Result};
use crate::model::MaskedLmBatch;
use burn::data::dataset::DatasetError;
use burn::prelude::*;
use std::sync::Arc;

/// Batches of a [`Corpus`] to train on, for Burn's `SupervisedTraining`.
///
/// An epoch of the trainer is a fixed number of batches here, after which it validates and saves; passes over the text
/// are independent of it, each in a random order. Everything random depends on the seed and the number of the epoch
/// only: the order of the windows, the masked tokens, and (because each epoch seeds the device) dropout. So a run that is
/// resumed after epoch N with [`starting_after`](Self::starting_after) continues exactly as if it had not been stopped.
///
/// A thread collates a few batches ahead; it ends when the loader is dropped. Devices that share an epoch have a part of
/// its windows each; the order in which they draw dropout's seeds depends on the threads.
///
/// ```
/// use burn::data::dataloader::DataLoader;
/// use burn::prelude::*;
/// use burn_bert::text::BertTokenizer;
/// use burn_bert::training::{Corpus, MaskedLmCollatorConfig, TrainingLoader, ValidationLoader};
///
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")?;
/// std::fs::write(dir.join("corpus.txt"), "a b b a b a\n".repeat(20))?;
/// let tokenizer = BertTokenizer::from_pretrained(dir)?;
/// let collator = MaskedLmCollatorConfig::for_tokenizer(&tokenizer).init();
/// let corpus = Corpus::open(dir.join("corpus.txt"), tokenizer, 8)?; // [CLS], six tokens, [SEP]
///
/// let device = Device::default();
/// let held_out = corpus.held_out(64);
/// let valid = ValidationLoader::new(held_out, collator.clone(), 4, 42, &device)?;
/// let train = TrainingLoader::new(corpus, collator, 4, 10, 42, &device)?; // ten batches an epoch
/// assert_eq!(train.iter().count(), 10);
/// assert_eq!(valid.iter().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrainingLoader {
    loader: EpochLoader<MaskedWindows>,
}

impl TrainingLoader {
    /// `batches_per_epoch` batches of `batch_size` windows per epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if one of the two is 0, or their product cannot be counted.
    pub fn new(
        corpus: Corpus,
        collator: MaskedLmCollator,
        batch_size: usize,
        batches_per_epoch: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        let windows_per_epoch = batch_size.checked_mul(batches_per_epoch);
        let windows_per_epoch = windows_per_epoch.filter(|_| batches_per_epoch > 0).ok_or_else(|| {
            let most = usize::MAX.checked_div(batch_size).unwrap_or(usize::MAX);
            let problem = format!("is {batches_per_epoch}, but must lie in 1..={most}");
            Error::Config { field: "batches_per_epoch", problem }
        })?;
        let windows = Windows::Corpus(corpus);
        let source = MaskedWindows { windows, collator, batch_size, windows_per_epoch, seed };
        Ok(Self { loader: EpochLoader::new(source, device)? })
    }

    /// Skips the windows of the first `epochs` epochs.
    pub fn starting_after(self, epochs: usize) -> Self {
        Self { loader: self.loader.starting_at(epochs) }
    }
}

/// Batches for validation, with the same tokens masked every time; [`TrainingLoader`] has an example.
#[derive(Clone, Debug)]
pub struct ValidationLoader {
    loader: EpochLoader<MaskedWindows>,
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
        let (windows_per_epoch, windows) = (examples.len(), Windows::HeldOut(examples));
        let source = MaskedWindows { windows, collator, batch_size, windows_per_epoch, seed };
        Ok(Self { loader: EpochLoader::new(source, device)? })
    }
}

epoch_loader!(TrainingLoader => MaskedLmBatch);
epoch_loader!(ValidationLoader => MaskedLmBatch);

/// Windows to mask.
#[derive(Debug)]
struct MaskedWindows {
    windows: Windows,
    collator: MaskedLmCollator,
    batch_size: usize,
    windows_per_epoch: usize,
    seed: u64,
}

#[derive(Debug)]
enum Windows {
    /// To train on, in a random order.
    Corpus(Corpus),
    /// To validate with: the same tokens are masked in every epoch, and there is no dropout to seed.
    HeldOut(Vec<MaskedLmExample>),
}

impl Source for MaskedWindows {
    type Batch = MaskedLmBatch;

    fn epochs(&self) -> Epochs {
        let seed = matches!(self.windows, Windows::Corpus(_)).then_some(self.seed);
        Epochs { num_items: self.windows_per_epoch, batch_size: self.batch_size, unit: "windows", seed }
    }

    fn order(&self, pass: usize) -> Vec<usize> {
        match &self.windows {
            Windows::Corpus(corpus) => corpus.shuffled(self.seed, pass),
            Windows::HeldOut(examples) => (0..examples.len()).collect(),
        }
    }

    fn batch(&self, windows: &[usize], first: usize, device: &Device) -> Result<MaskedLmBatch, DatasetError> {
        let (examples, first): (Vec<_>, usize) = match &self.windows {
            Windows::Corpus(corpus) => (windows.iter().map(|&window| corpus.window(window)).collect(), first),
            Windows::HeldOut(examples) => {
                (windows.iter().map(|&window| examples[window].clone()).collect(), windows[0])
            }
        };
        collate(&self.collator, &examples, draw(self.seed, first as u64), device).map_err(DatasetError::new)
    }
}

/// Masks tokens until at least one is masked, as in BERT's own data; gives up if the probability allows none.
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
