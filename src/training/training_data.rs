//! Data for training, how they become batches, and evaluations on them.

use super::arguments::TrainingArguments;
use super::learner::Training;
use super::metric_set::{Metrics, TrainableModel};
use crate::data::{Batches, EpochLoader, TryBatcher};
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use crate::text::BertTokenizer;
use burn::data::dataloader::DataLoader;
use burn::train::TrainStep;
use std::collections::BTreeMap;
use std::fmt::Debug;

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

/// The loss and the metrics of a model on some data, by name. Of the arguments it reads those of an evaluation: batch
/// size, precision, lengths, and how many items.
///
/// ```no_run
/// use burn::prelude::*;
/// use burn_bert::data::SquadExample;
/// use burn_bert::pipeline::Pipeline;
/// use burn_bert::training::{TrainingArguments, evaluate};
///
/// let pipeline = Pipeline::from_pretrained("out", &Device::default())?;
/// let metrics = evaluate(&pipeline, SquadExample::read("dev.json")?, &TrainingArguments::new("out"))?;
/// println!("{:.4}", metrics["Loss"]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`Trainer::train`](super::Trainer::train) before the first step; [`Error::Training`] for a batch that cannot be made.
pub fn evaluate<M: TrainableModel, D: TrainingData<M>>(
    pipeline: &Pipeline<M>,
    data: D,
    arguments: &TrainingArguments,
) -> Result<BTreeMap<String, f64>> {
    arguments.check()?;
    let metrics = data.metrics(pipeline.model());
    evaluated(pipeline, data, &metrics, arguments)
}

pub(super) fn evaluated<M: TrainableModel, D: TrainingData<M>>(
    pipeline: &Pipeline<M>,
    data: D,
    metrics: &Metrics<M>,
    arguments: &TrainingArguments,
) -> Result<BTreeMap<String, f64>> {
    let model = pipeline.model().clone();
    // Where it is, unless a device is asked for.
    let model = if arguments.devices.is_empty() { model } else { model.fork(&arguments.device()) };
    model.devices().iter().try_for_each(|device| arguments.precision.check(device))?;
    let loader = evaluation_loader(batches(data, &model, pipeline.tokenizer(), arguments)?, arguments)?;
    check_first::<M, D>(&model, &loader)?;
    let model = Training::new(model).with_precision(arguments.precision);
    Ok(metrics.of_batches(&model, loader.iter())?.expect("nobody stops it"))
}

/// The batches of some data, with texts cut to the length of the arguments.
pub(super) fn batches<M: TrainableModel, D: TrainingData<M>>(
    data: D,
    model: &M,
    tokenizer: &BertTokenizer,
    arguments: &TrainingArguments,
) -> Result<Batches<D::Batcher>> {
    let mut reader = Reader { model, tokenizer: tokenizer.clone(), arguments };
    if let Some(length) = arguments.max_length {
        let limit = model.bert().embeddings.config().max_sequence_length().unwrap_or(usize::MAX);
        // The shortest text: a token between [CLS] and [SEP].
        if !(3..=limit).contains(&length) {
            let problem = format!("is {length}, but must be 3 to {limit}, what the model can read");
            return Err(Error::Config { field: "max_length", problem });
        }
        reader.tokenizer = reader.tokenizer.with_model_max_length(length);
    }
    let batches = data.batches(&reader)?;
    batches.check()?;
    Ok(batches)
}

pub(super) fn evaluation_loader<B: TryBatcher>(
    batches: Batches<B>,
    arguments: &TrainingArguments,
) -> Result<EpochLoader<B>> {
    let batches = batches.evaluated(arguments.max_eval_samples, arguments.seed, arguments.group_by_length);
    let batch_size = arguments.eval_batch_size.unwrap_or(arguments.batch_size);
    EpochLoader::new(batches, batch_size, &arguments.device())
}

/// Refuses data whose first batch cannot be made, or not be read by the model.
pub(super) fn check_first<M: TrainableModel, D: TrainingData<M>>(
    model: &M,
    loader: &EpochLoader<D::Batcher>,
) -> Result<()> {
    let failed = |source| Error::Training { what: "reading a batch", source: Box::new(source) };
    loader.clone().iter().next().map_or(Ok(()), |batch| D::check(model, &batch.map_err(failed)?))
}
