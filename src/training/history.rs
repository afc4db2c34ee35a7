//! The metrics of a run, which of its evaluations is the best, and stopping by them.

use super::arguments::TrainingArguments;
use super::checkpoints::{Checkpoints, whole};
use crate::error::{Error, Result};
use crate::files::regular_file;
use burn::train::checkpoint::{CheckpointingAction, CheckpointingStrategy};
use burn::train::logger::MetricLogger;
use burn::train::metric::store::{
    Aggregate, EpochSummary, EventStoreClient, MetricsUpdate, NumericMetricUpdate, Split,
};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn::train::{EarlyStoppingStrategy, Interrupter};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The metrics of a run of a [`Trainer`](super::Trainer) as data: all losses, and all metrics of all evaluations. It prints as a
/// table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The loss of each training batch that has one; of several ranks, of those of rank 0.
    pub losses: Vec<f64>,
    /// The metrics of the validation data before training; without such data, those of the first training batch.
    pub initial: BTreeMap<String, f64>,
    /// The evaluations, in their order.
    pub evaluations: Vec<Evaluation>,
    /// The place in `evaluations` of the model that was saved; `None` if the run was stopped or has no validation data.
    pub best: Option<usize>,
}

/// The metrics of one evaluation of a [`Trainer`](super::Trainer), by name. Values that are not finite are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Optimizer steps so far.
    pub step: usize,
    /// Of the training batches since the evaluation before, as they were trained on; of several ranks, of those of rank 0.
    pub train: BTreeMap<String, f64>,
    /// Of the validation data.
    pub valid: BTreeMap<String, f64>,
}

impl History {
    /// The values of a metric of the validation data, one for each evaluation.
    pub fn valid(&self, metric: &str) -> Vec<Option<f64>> {
        self.evaluations.iter().map(|evaluation| evaluation.valid.get(metric).copied()).collect()
    }
}

/// A row for each evaluation, the one before training included, and a column for each metric of the validation data.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.initial.keys().collect();
        let value = |value: Option<&f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
        let row = |f: &mut fmt::Formatter<'_>, step: usize, train: Option<&f64>, valid: &BTreeMap<_, _>| {
            write!(f, "\n{step:>8} {:>13}", value(train))?;
            names.iter().try_for_each(|name| {
                write!(f, " {:>width$}", value(valid.get(*name)), width = name.chars().count().max(10))
            })
        };
        write!(f, "{:>8} {:>13}", "step", "training loss")?;
        names.iter().try_for_each(|name| write!(f, " {name:>10}"))?;
        row(f, 0, None, &self.initial)?;
        for (place, Evaluation { step, train, valid }) in self.evaluations.iter().enumerate() {
            row(f, *step, train.get(LOSS), valid)?;
            if self.best == Some(place) {
                write!(f, " best")?;
            }
        }
        Ok(())
    }
}

pub(super) const LOSS: &str = "Loss";

const HISTORY: &str = "history.msgpack";

/// What Burn's trainer has logged of an epoch: the losses of its training batches, and its metrics.
type Epoch = (Vec<f64>, Evaluation);

/// The epochs of Burn's trainer in memory, and in a file from which a resumed run goes on.
#[derive(Clone)]
pub(super) struct Log {
    path: PathBuf,
    epochs: Arc<Mutex<Vec<Epoch>>>,
}

impl Log {
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join(HISTORY), epochs: Arc::default() }
    }

    /// Takes what a run saved in a folder of its epochs up to this number. Returns [`Error::File`] if the file is damaged or no
    /// regular file.
    pub(super) fn load(&self, folder: &Path, finished: usize) -> Result<()> {
        let path = folder.join(HISTORY);
        let mut epochs: Vec<Epoch> = match regular_file::read(&path, u64::MAX) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Vec::new(),
            bytes => rmp_serde::from_slice(&bytes?)
                .map_err(|error| Error::file(&path, format!("is damaged: {error}; delete it")))?,
        };
        // An epoch without a checkpoint is trained again, and one that a full disk has lost has no metrics.
        epochs.resize_with(finished, Epoch::default);
        *self.lock() = epochs;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Epoch>> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the file. On a full disk the old one stays until the next time: all epochs are still in memory.
    pub(super) fn save(&self) {
        // Not JSON, which rounds some numbers: a resumed run must find the same best evaluation.
        let bytes = rmp_serde::to_vec(&*self.lock()).expect("plain data");
        // The folder of another rank than the first does not exist yet.
        let written = self.path.parent().map_or(Ok(()), fs::create_dir_all);
        let _ = written.and_then(|()| whole(&self.path, |path| fs::write(path, bytes)));
    }

    /// The history of evaluations after so many steps each, in some metrics: the run may have begun with others.
    pub(super) fn history(&self, steps: usize, metrics: &[String]) -> History {
        let mut history = History::default();
        for (number, (losses, mut evaluation)) in (1..).zip(self.lock().clone()) {
            evaluation.step = number * steps;
            for values in [&mut evaluation.train, &mut evaluation.valid] {
                values.retain(|name, _| metrics.contains(name));
            }
            history.losses.extend(losses);
            history.evaluations.push(evaluation);
        }
        // An epoch at the end that was broken off.
        while history.evaluations.pop_if(|last| last.train.is_empty() && last.valid.is_empty()).is_some() {}
        history
    }
}

/// Which evaluation is the best by a metric of the validation data, and early stopping. Evaluations before a resume count too,
/// unlike with Burn's `MetricEarlyStoppingStrategy`; a value that is not finite is no improvement, and a run that never had a
/// finite one goes on.
#[derive(Clone)]
pub(super) struct Best {
    pub(super) arguments: TrainingArguments,
    pub(super) greater_is_better: bool,
    pub(super) log: Log,
}

impl Best {
    /// The number of the best evaluation, counted from 1; of equal ones the first.
    pub(super) fn epoch(&self) -> Option<usize> {
        self.last_improvement(0.0)
    }

    /// The last evaluation that was better by more than `threshold` than the last one before it that was.
    fn last_improvement(&self, threshold: f64) -> Option<usize> {
        let (epochs, sign) = (self.log.lock(), if self.greater_is_better { 1.0 } else { -1.0 });
        let value = |(_, of): &Epoch| Some(sign * of.valid.get(&self.arguments.metric_for_best_model)?);
        let values = (1..).zip(&*epochs).filter_map(|(epoch, of)| Some((epoch, value(of)?)));
        let last = values.reduce(|best, now| if now.1 - best.1 > threshold { now } else { best });
        last.map(|(epoch, _)| epoch)
    }

    /// Whether the run has been without an improvement for as long as its patience.
    pub(super) fn is_over(&self) -> bool {
        let Some(patience) = self.arguments.early_stopping_patience else { return false };
        let last = self.last_improvement(self.arguments.early_stopping_threshold);
        last.is_some_and(|last| self.log.lock().len() - last >= patience)
    }
}

/// Waits until all that the trainer's store was given is logged.
fn wait(store: &EventStoreClient) {
    // Answers come in the order of a queue; this one is that there is no such value.
    store.find_metric(LOSS, 1, Aggregate::Mean, &Split::Valid);
}

impl EarlyStoppingStrategy for Best {
    fn should_stop(&mut self, _: usize, store: &EventStoreClient) -> bool {
        wait(store);
        let ranks = &self.arguments.ranks;
        let is_over = ranks.is_first() && self.is_over();
        // A rank that has left is known at the next step, or at the end.
        ranks.sum(&[is_over.into()]).is_ok_and(|ranks_over| ranks_over[0] > 0.0)
    }
}

/// Keeps what the trainer logs, and the last two checkpoints and the best one, of those on disk: the checkpoints from before a
/// resume are deleted as well. Burn's own logger writes a file for each metric and epoch, and aborts the process on a full disk.
#[derive(Clone)]
pub(super) struct Keeper {
    pub(super) checkpoints: [Checkpoints; 3],
    pub(super) best: Best,
    pub(super) watch: Watch,
    pub(super) names: HashMap<MetricId, String>,
}

impl CheckpointingStrategy for Keeper {
    fn checkpointing(&mut self, epoch: usize, store: &EventStoreClient) -> Vec<CheckpointingAction> {
        wait(store);
        // Known now at the latest: a model with such a loss is not saved.
        if self.watch.problem.get().is_some() {
            return Vec::new();
        }
        // Before the checkpoint, after which a resumed run would not log this epoch again.
        self.best.log.save();
        let best = self.best.epoch();
        let saved = self.checkpoints.iter().flat_map(|files| files.epochs().unwrap_or_default());
        let old: BTreeSet<_> = saved.filter(|&old| old + 1 < epoch && Some(old) != best).collect();
        let deleted = old.into_iter().map(CheckpointingAction::Delete);
        [CheckpointingAction::Save].into_iter().chain(deleted).collect()
    }
}

/// What stops the trainer beside its caller: the keys of Burn's dashboard, and a loss that is no number.
#[derive(Clone)]
pub(super) struct Watch {
    /// Another interrupter than the trainer's: the dashboard resets it when training ends, and the trainer's must still know
    /// then what stopped it.
    pub(super) keys: Interrupter,
    pub(super) trainer: Interrupter,
    /// The loss that is infinite or NaN, and of what it is.
    pub(super) problem: Arc<OnceLock<(&'static str, f64)>>,
}

impl MetricLogger for Keeper {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        let Watch { keys, trainer, problem } = &self.watch;
        if keys.should_stop() && !trainer.should_stop() {
            trainer.stop(Some("q, then s"));
        }
        let mut epochs = self.best.log.lock();
        // The first batch of an epoch; one whose metrics were lost on the way has none, and keeps its place.
        if epochs.len() < epoch {
            epochs.resize_with(epoch, Epoch::default);
        }
        // Burn counts epochs from 1.
        let (losses, Evaluation { train, valid, .. }) = &mut epochs[epoch - 1];
        let is_training = *split == Split::Train;
        for NumericMetricUpdate { entry, numeric_entry, .. } in update.entries_numeric {
            let (Some(name), Some(number)) = (self.names.get(&entry.metric_id), numeric_entry) else {
                continue;
            };
            let value = number.current();
            match number {
                // A batch without labels counts nothing, and has no loss.
                NumericEntry::Aggregated { count: 1.., .. } if name == LOSS && !value.is_finite() => {
                    let batch = if is_training { "of a training batch" } else { "of a validation batch" };
                    let _ = problem.set((batch, value)); // the first one stays
                    trainer.stop(Some("the loss is no number"));
                }
                _ if !value.is_finite() => {}
                NumericEntry::Final(_) => {
                    let values = if is_training { &mut *train } else { &mut *valid };
                    values.insert(name.clone(), value);
                }
                _ if is_training && name == LOSS => losses.push(value),
                _ => {}
            }
        }
    }

    /// Nobody reads them here.
    fn read_numeric(&mut self, _: &str, _: usize, _: &Split) -> Result<Vec<NumericEntry>, String> {
        Ok(Vec::new())
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name.to_string());
    }

    fn log_epoch_summary(&mut self, _: EpochSummary) {}
}
