//! Evaluations of a model on some data, within a run and on their own.

use super::arguments::TrainingArguments;
use super::batches::{Batches, Reader, TrainingData};
use super::metric_set::{Metrics, TrainableModel};
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use crate::text::BertTokenizer;
use burn::data::dataloader::DataLoader;
use burn::data::dataset::DatasetError;
use std::collections::BTreeMap;

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
    let loader = batches(data, &model, pipeline.tokenizer(), arguments)?.evaluated(arguments)?;
    if let Some(batch) = loader.clone().iter().next() {
        D::check(&model, &batch.map_err(failed)?)?;
    }
    metrics.of_batches(&model, arguments.precision, loader.iter())
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
    data.batches(&reader)?.checked()
}

pub(super) fn failed(source: DatasetError) -> Error {
    Error::Training { what: "reading a batch", source: Box::new(source) }
}
