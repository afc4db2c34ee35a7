//! What a run reads: items, and how batches are made of them.

use super::arguments::TrainingArguments;
use super::metric_set::{Metrics, TrainableModel};
use crate::data::{EpochLoader, TryBatcher};
use crate::error::{Error, Result};
use crate::text::BertTokenizer;
use burn::data::dataset::{Dataset, DatasetError};
use burn::prelude::*;
use burn::train::TrainStep;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// Data that a model `M` is trained on or evaluated with by a [`Trainer`](super::Trainer).
///
/// The datasets of [`data`](crate::data) decide the model; [`Batches`] of any dataset and batcher are data for a custom one.
/// `Debug` has to show the items: a run is resumed only with data that it shows alike.
pub trait TrainingData<M: TrainableModel>: Debug + Sized {
    /// Makes the batches.
    type Batcher: TryBatcher<Batch = <M as TrainStep>::Input>;

    /// The config of a model for these data, given that of the checkpoint that it is loaded from. By default the same.
    fn config(&self, checkpoint: M::Config, arguments: &TrainingArguments) -> M::Config {
        let _ = arguments;
        checkpoint
    }

    /// The items as the model reads them. An error says what of the data does not fit the model.
    fn batches(self, reader: &Reader<M>) -> Result<Batches<Self::Batcher>>;

    /// The metrics that say how good a model is on such data. By default the loss.
    fn metrics(&self, model: &M) -> Metrics<M> {
        let _ = model;
        Metrics::new()
    }

    /// Whether the model can read a batch. The first ones are checked before training; by default they are not.
    fn check(model: &M, batch: &<M as TrainStep>::Input) -> Result<()> {
        let _ = (model, batch);
        Ok(())
    }
}

/// For whom [`TrainingData`] are read, by a [`Trainer`](super::Trainer).
pub struct Reader<'a, M> {
    /// The model.
    pub model: &'a M,
    /// Its tokenizer, limited to what the model reads and to [`max_length`](TrainingArguments::max_length).
    pub tokenizer: BertTokenizer,
    /// The settings.
    pub arguments: &'a TrainingArguments,
}

/// A dataset with what makes batches of its items. It is itself data for any model that reads such batches, here for one without
/// a tokenizer:
///
/// ```
/// use burn::data::dataset::InMemDataset;
/// use burn_bert::data::{MaskedLmCollatorConfig, MaskedLmExample};
/// use burn_bert::training::Batches;
///
/// let items = [vec![1, 7, 4, 9, 2], vec![1, 5, 2]].map(MaskedLmExample::new);
/// let lengths = items.iter().map(MaskedLmExample::len).collect();
/// let collator = MaskedLmCollatorConfig::new(20, 3, 0, vec![0, 1, 2, 3]).init();
/// let batches = Batches::new(InMemDataset::new(items.into()), collator).with_lengths(lengths);
/// assert_eq!(batches.len(), 2);
/// ```
pub struct Batches<B: TryBatcher> {
    dataset: Arc<dyn Dataset<B::Item>>,
    batcher: Arc<B>,
    lengths: Option<Vec<usize>>,
    sources: Option<Vec<usize>>,
    texts: Option<Vec<Vec<u64>>>,
}

impl<B: TryBatcher> Batches<B> {
    /// Batches of a dataset.
    pub fn new(dataset: impl Dataset<B::Item> + 'static, batcher: B) -> Self {
        let (dataset, batcher) = (Arc::new(dataset), Arc::new(batcher));
        Self { dataset, batcher, lengths: None, sources: None, texts: None }
    }

    /// Sets the length of each item, in any unit, to group items of similar lengths. Only where the loss of an item does not
    /// depend on the others of its batch.
    pub fn with_lengths(self, lengths: Vec<usize>) -> Self {
        Self { lengths: Some(lengths), ..self }
    }

    /// Sets the number of what each item was made from: all items of one source are trained on, or all are validated on.
    pub fn with_sources(self, sources: Vec<usize>) -> Self {
        Self { sources: Some(sources), ..self }
    }

    /// Sets what must not occur twice in a training batch: for each item, hashes of its texts.
    pub fn with_texts(self, texts: Vec<Vec<u64>>) -> Self {
        Self { texts: Some(texts), ..self }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.dataset.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses lengths, sources or texts that are not one per item.
    pub(super) fn checked(self) -> Result<Self> {
        let counts = [
            ("lengths", self.lengths.as_ref().map(Vec::len)),
            ("sources", self.sources.as_ref().map(Vec::len)),
            ("texts", self.texts.as_ref().map(Vec::len)),
        ];
        match counts.into_iter().find(|(_, count)| count.is_some_and(|count| count != self.len())) {
            Some((what, count)) => {
                let found = count.unwrap_or_default();
                let problem = format!("number {found}, but there must be one per item: {}", self.len());
                Err(Error::data(what, problem))
            }
            None => Ok(self),
        }
    }

    /// These items, in this order.
    fn select(self, places: Vec<usize>) -> Self {
        fn of<T: Clone>(all: Option<Vec<T>>, places: &[usize]) -> Option<Vec<T>> {
            all.map(|all| places.iter().map(|&place| all[place].clone()).collect())
        }
        Self {
            lengths: of(self.lengths, &places),
            sources: of(self.sources, &places),
            texts: of(self.texts, &places),
            dataset: Arc::new(Selection { dataset: self.dataset, places }),
            batcher: self.batcher,
        }
    }

    /// All but a share of the sources, and that share, drawn by a seed.
    pub(super) fn split(self, share: f64, seed: u64) -> Result<(Self, Self)> {
        let sources = self.sources.clone().unwrap_or_else(|| (0..self.len()).collect());
        let mut drawn: Vec<usize> = sources.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let count = (share * drawn.len() as f64).round() as usize;
        if count == 0 || count >= drawn.len() {
            let problem = format!(
                "is {share}, which leaves {count} of {} items for validation; there must be some for both",
                drawn.len()
            );
            return Err(Error::Config { field: "validation_share", problem });
        }
        drawn.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let held_out: BTreeSet<usize> = drawn.drain(..count).collect();
        let (valid, train) = (0..self.len()).partition(|&place: &usize| held_out.contains(&sources[place]));
        let shared = Self {
            dataset: self.dataset.clone(),
            batcher: self.batcher.clone(),
            lengths: self.lengths.clone(),
            sources: None,
            texts: None,
        };
        Ok((self.select(train), shared.select(valid)))
    }

    /// Batches for an evaluation: at most `most` items, drawn by a seed, sorted by length, longest first.
    pub(super) fn evaluated(self, arguments: &TrainingArguments) -> Result<EpochLoader<Arc<B>>> {
        let mut places: Vec<usize> = (0..self.len()).collect();
        if let Some(most) = arguments.max_eval_samples.filter(|&most| most < places.len()) {
            places.shuffle(&mut ChaCha8Rng::seed_from_u64(arguments.seed));
            places.truncate(most);
            places.sort_unstable();
        }
        if let Some(lengths) = self.lengths.as_ref().filter(|_| arguments.group_by_length) {
            places.sort_by_key(|&place| Reverse(lengths[place]));
        }
        let batch_size = arguments.eval_batch_size.unwrap_or(arguments.batch_size);
        let Self { dataset, batcher, .. } = self.select(places);
        EpochLoader::new(dataset, batcher, batch_size, &arguments.device())
    }

    /// Batches for training.
    pub(super) fn trained(self, arguments: &TrainingArguments) -> Result<EpochLoader<Arc<B>>> {
        let Self { dataset, batcher, lengths, texts, .. } = self;
        let loader = EpochLoader::new(dataset, batcher, arguments.batch_size, &arguments.device())?
            .with_shuffling(arguments.seed);
        let loader = match lengths.filter(|_| arguments.group_by_length) {
            Some(lengths) => loader.with_length_bucketing(lengths)?,
            None => loader,
        };
        match texts.filter(|_| arguments.no_duplicates) {
            Some(texts) => loader.with_distinct_texts(texts),
            None => Ok(loader),
        }
    }
}

/// Some items of a dataset.
struct Selection<I> {
    dataset: Arc<dyn Dataset<I>>,
    places: Vec<usize>,
}

impl<I: Send + Sync> Dataset<I> for Selection<I> {
    fn get(&self, index: usize) -> Result<I, DatasetError> {
        self.dataset.get(self.places[index])
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

impl<B: TryBatcher> TryBatcher for Arc<B> {
    type Item = B::Item;
    type Batch = B::Batch;

    fn try_batch(&self, items: Vec<B::Item>, device: &Device) -> Result<B::Batch> {
        B::try_batch(self, items, device)
    }

    fn try_batch_seeded(&self, items: Vec<B::Item>, seed: u64, device: &Device) -> Result<B::Batch> {
        B::try_batch_seeded(self, items, seed, device)
    }
}

/// All items.
impl<B: TryBatcher<Item: Debug>> Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|place| self.dataset.get(place).ok())).finish()
    }
}

impl<M, B> TrainingData<M> for Batches<B>
where
    M: TrainableModel,
    B: TryBatcher<Item: Debug, Batch = <M as TrainStep>::Input>,
{
    type Batcher = B;

    fn batches(self, _: &Reader<M>) -> Result<Self> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{MaskedLmCollatorConfig, MaskedLmExample};
    use burn::data::dataset::InMemDataset;

    fn batches() -> Batches<crate::data::MaskedLmCollator> {
        let items = (0..20).map(|id| MaskedLmExample::new(vec![1, 4 + id, 2])).collect();
        Batches::new(InMemDataset::new(items), MaskedLmCollatorConfig::new(30, 3, 0, vec![0, 1, 2, 3]).init())
    }

    fn ids(batches: &Batches<crate::data::MaskedLmCollator>) -> Vec<u32> {
        (0..batches.len()).map(|place| batches.dataset.get(place).unwrap().input_ids()[1]).collect()
    }

    #[test]
    fn a_validation_share_is_disjoint_seeded_and_complete() {
        let split = |seed| batches().split(0.25, seed).unwrap();
        let (train, valid) = split(1);
        assert_eq!((train.len(), valid.len()), (15, 5));
        let all: BTreeSet<u32> = ids(&train).into_iter().chain(ids(&valid)).collect();
        assert_eq!(all.len(), 20);
        assert_eq!(ids(&split(1).1), ids(&valid));
        assert_ne!(ids(&split(2).1), ids(&valid));
        assert!(batches().split(0.01, 1).is_err() && batches().split(0.99, 1).is_err());
    }

    #[test]
    fn items_of_one_source_are_not_split() {
        let sources: Vec<usize> = (0..20).map(|place| place / 4).collect();
        let (train, valid) = batches().with_sources(sources).split(0.4, 3).unwrap();
        let of = |batches: &_| ids(batches).iter().map(|id| (id - 4) / 4).collect::<BTreeSet<u32>>();
        assert_eq!((train.len(), valid.len()), (12, 8));
        assert!(of(&train).is_disjoint(&of(&valid)));
    }
}
