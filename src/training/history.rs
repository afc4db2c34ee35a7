//! The logs of a run: its losses and metrics, the best of its evaluations, and stopping by them.

use crate::distributed::Ranks;
use crate::error::Result;
use crate::files::regular_file;
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::store::{
    Aggregate, EpochSummary, EventStoreClient, MetricsUpdate, NumericMetricUpdate, Split,
};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn::train::{EarlyStoppingStrategy, Interrupter};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

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
    /// Reads the logs of Burn's trainer in its folder: metrics of these names, up to the last evaluation that was finished.
    pub(super) fn read(folder: &Path, names: &[String], steps: usize) -> Result<Self> {
        let mut history = Self::default();
        for epoch in 1.. {
            let folder = |split: &str| folder.join(split).join(format!("epoch-{epoch}"));
            // Not by a log, which a full disk may have lost.
            if !folder("train").exists() {
                break;
            }
            let read =
                |split: &str, name: &str| read_log(&folder(split).join(format!("{}.log", file_stem(name))));
            history.losses.extend(read("train", LOSS)?.0);
            let metrics = |split: &str| -> Result<BTreeMap<String, f64>> {
                let mut found = BTreeMap::new();
                for name in names {
                    found.extend(read(split, name)?.1.map(|value| (name.clone(), value)));
                }
                Ok(found)
            };
            let (train, valid) = (metrics("train")?, metrics("valid")?);
            history.evaluations.push(Evaluation { step: epoch * steps, train, valid });
        }
        // An epoch at the end that was broken off.
        while history.evaluations.pop_if(|last| last.train.is_empty() && last.valid.is_empty()).is_some() {}
        Ok(history)
    }

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

/// The name of Burn's metric of the loss.
pub(super) const LOSS: &str = "Loss";

/// The values of the batches, and that of the epoch, if it was not broken off: one number a line, followed by its count or by
/// `final`.
fn read_log(path: &Path) -> Result<(Vec<f64>, Option<f64>)> {
    if !path.exists() {
        return Ok((Vec::new(), None));
    }
    // A line of a crashed run may be anything.
    let text = String::from_utf8_lossy(&regular_file::read(path, u64::MAX)?).into_owned();
    let values = text.lines().filter_map(|line| {
        let (value, count) = line.split_once(',').unwrap_or((line, ""));
        Some((value.parse::<f64>().ok()?, count))
    });
    // A batch without labels has no loss.
    let values = values.filter(|(value, _)| value.is_finite());
    let (finals, batches): (Vec<_>, Vec<_>) = values.partition(|&(_, count)| count == "final");
    let batches = batches.into_iter().map(|(value, _)| value).collect();
    Ok((batches, finals.last().map(|&(value, _)| value)))
}

/// Which evaluation is the best.
#[derive(Clone, Debug)]
pub(super) struct Best {
    pub(super) metric: String,
    pub(super) greater_is_better: bool,
}

impl Best {
    fn is_better(&self, value: f64, than: f64, by: f64) -> bool {
        if self.greater_is_better { value - than > by } else { than - value > by }
    }

    /// The number of the best evaluation, counted from 1; of equal ones the first.
    pub(super) fn epoch(&self, values: &[Option<f64>]) -> Option<usize> {
        self.last_improvement(values, 0.0)
    }

    /// The last evaluation that was better by more than `threshold` than the last one before it that was.
    fn last_improvement(&self, values: &[Option<f64>], threshold: f64) -> Option<usize> {
        let values = (1..).zip(values).filter_map(|(epoch, value)| Some((epoch, (*value)?)));
        let last = values.fold(None, |best, (epoch, value)| match best {
            Some((_, than)) if !self.is_better(value, than, threshold) => best,
            _ => Some((epoch, value)),
        });
        last.map(|(epoch, _)| epoch)
    }

    /// The values in the trainer's store, those from before a resume included. Logs of a resumed run go beyond this epoch if
    /// its last checkpoint could not be read.
    pub(super) fn validated(&self, store: &EventStoreClient, epoch: usize) -> Vec<Option<f64>> {
        let value = |epoch| store.find_metric(&self.metric, epoch, Aggregate::Mean, &Split::Valid);
        (1..=epoch).map(|epoch| value(epoch).filter(|value| value.is_finite())).collect()
    }
}

/// Early stopping. Evaluations before a resume count too, unlike with Burn's `MetricEarlyStoppingStrategy`; a value that is
/// not finite is no improvement, and a run that never had a finite one goes on.
#[derive(Clone, Debug)]
pub(super) struct EarlyStopping {
    pub(super) best: Best,
    pub(super) patience: usize,
    pub(super) threshold: f64,
    pub(super) ranks: Ranks,
}

impl EarlyStopping {
    /// Whether a run of these values is over.
    pub(super) fn is_over(&self, values: &[Option<f64>]) -> bool {
        let last = self.best.last_improvement(values, self.threshold);
        last.is_some_and(|last| values.len() - last >= self.patience)
    }
}

impl EarlyStoppingStrategy for EarlyStopping {
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool {
        let is_over = self.ranks.is_first() && self.is_over(&self.best.validated(store, epoch));
        // A rank that has left is known at the next step, or at the end.
        self.ranks.sum(&[is_over.into()]).is_ok_and(|ranks_over| ranks_over[0] > 0.0)
    }
}

/// The name of a metric's log. Names of classes are in it, which may be anything.
fn file_stem(name: &str) -> String {
    name.replace([' ', '/', '\\'], "_")
}

/// Writes the logs of Burn's own logger, which aborts the process on a full disk; here lines are lost, and training goes on.
pub(super) struct Logs {
    folder: PathBuf,
    watch: Watch,
    reader: FileMetricLogger,
    names: HashMap<MetricId, String>,
    /// Those of the current epoch with their sizes; `None` if one could not be created.
    files: HashMap<PathBuf, Option<(File, u64)>>,
}

impl Logs {
    pub(super) fn new(folder: &Path, watch: &Watch) -> Self {
        let (reader, watch) = (FileMetricLogger::new(folder), watch.clone());
        Self { folder: folder.to_path_buf(), watch, reader, names: HashMap::new(), files: HashMap::new() }
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

impl Watch {
    fn look(&self, update: &MetricsUpdate, split: &Split) {
        if self.keys.should_stop() && !self.trainer.should_stop() {
            self.trainer.stop(Some("q, then s"));
        }
        let loss = MetricId::new(LOSS.to_string().into());
        for NumericMetricUpdate { entry, numeric_entry, .. } in &update.entries_numeric {
            // A batch without labels counts nothing, and has no loss.
            if let Some(NumericEntry::Aggregated { aggregated_value, count: 1.. }) = numeric_entry
                && entry.metric_id == loss
                && !aggregated_value.is_finite()
            {
                let batch = match split {
                    Split::Train => "of a training batch",
                    _ => "of a validation batch",
                };
                let _ = self.problem.set((batch, *aggregated_value));
                self.trainer.stop(Some("the loss is no number"));
            }
        }
    }
}

impl MetricLogger for Logs {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        self.watch.look(&update, split);
        let folder = self.folder.join(split.to_string()).join(format!("epoch-{epoch}"));
        let numeric = update.entries_numeric.iter().map(|numeric| &numeric.entry);
        for entry in update.entries.iter().chain(numeric) {
            if entry.serialized_entry.is_not_available() {
                continue;
            }
            let Some(name) = self.names.get(&entry.metric_id) else { continue };
            let path = folder.join(format!("{name}.log"));
            let file = self.files.entry(path).or_insert_with_key(|path| {
                let _ = fs::create_dir_all(&folder);
                Some((File::create(path).ok()?, 0))
            });
            let Some((file, size)) = file else { continue };
            let line = format!("{}\n", entry.serialized_entry.serialized);
            match file.write_all(line.as_bytes()) {
                Ok(()) => *size += line.len() as u64,
                // Half a number is another number.
                Err(_) => drop(file.set_len(*size).and_then(|()| file.seek(SeekFrom::End(0)))),
            }
        }
    }

    fn read_numeric(&mut self, name: &str, epoch: usize, split: &Split) -> Result<Vec<NumericEntry>, String> {
        self.reader.read_numeric(&file_stem(name), epoch, split)
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, file_stem(&definition.name));
    }

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {
        self.files.clear();
    }
}
