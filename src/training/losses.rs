//! The logs of Burn's trainer, the losses in them, and stopping by them.

use crate::distributed::Ranks;
use crate::error::Error;
use crate::files::regular_file;
use burn::train::EarlyStoppingStrategy;
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::store::{Aggregate, EpochSummary, EventStoreClient, MetricsUpdate, Split};
use burn::train::metric::{LossMetric, Metric, MetricDefinition, MetricId, NumericEntry};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The losses of a run, of all training batches and of the validation after each epoch; see
/// [`Run::losses`](super::Run::losses).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// The loss of each batch that has one.
    pub train: Vec<f64>,
    /// The mean loss of each validation, up to the last that is finite; `None` where it is not.
    pub valid: Vec<Option<f64>>,
}

impl Losses {
    /// Reads the logs of Burn's trainer in its directory. Returns [`Error::Io`](crate::Error::Io) or
    /// [`Error::File`](crate::Error::File) if one that is there cannot be read.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let mut losses = Self::default();
        for epoch in 1.. {
            let log =
                |split: &str| folder.as_ref().join(split).join(format!("epoch-{epoch}")).join("Loss.log");
            if !log("train").exists() {
                break;
            }
            losses.train.extend(read_log(&log("train"))?.0);
            losses.valid.push(if log("valid").exists() { read_log(&log("valid"))?.1 } else { None });
        }
        // Epochs at the end without one are still to be validated.
        let validated = losses.valid.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        losses.valid.truncate(validated);
        Ok(losses)
    }

    /// The validation losses in the trainer's store, those from before a resume included.
    pub(super) fn validated(store: &EventStoreClient, epoch: usize) -> Self {
        let name = LossMetric::new().name();
        let loss = |epoch| store.find_metric(&name, epoch, Aggregate::Mean, &Split::Valid);
        // The logs of a run that was resumed go beyond this epoch if its last checkpoint could not be read.
        let valid = (1..=epoch).map(|epoch| loss(epoch).filter(|loss| loss.is_finite())).collect();
        Self { valid, ..Self::default() }
    }

    /// The epoch, counted from 1, with the lowest validation loss.
    pub fn best_epoch(&self) -> Option<usize> {
        let losses = (1..).zip(&self.valid).filter_map(|(epoch, loss)| Some((epoch, (*loss)?)));
        losses.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(epoch, _)| epoch)
    }
}

/// Early stopping when the validation loss has not fallen for a number of epochs, for `SupervisedTraining::early_stopping`.
/// Epochs before a resume of the [`Run`](super::Run) count too, unlike with Burn's `MetricEarlyStoppingStrategy`; a loss that
/// is not finite is no improvement, and a run that never had a finite one goes on.
#[derive(Clone, Debug)]
pub struct Patience {
    epochs: usize,
    ranks: Ranks,
}

impl Patience {
    /// Of so many epochs without a lower loss.
    pub fn new(epochs: usize) -> Self {
        Self { epochs, ranks: Ranks::single() }
    }

    /// Stops all ranks of a data-parallel training when the first would stop.
    pub fn shared(self, ranks: &Ranks) -> Self {
        Self { ranks: ranks.clone(), ..self }
    }

    /// Whether a run of these losses is over after so many epochs.
    pub fn is_over(&self, losses: &Losses, epoch: usize) -> bool {
        losses.best_epoch().is_some_and(|best| epoch.saturating_sub(best) >= self.epochs)
    }
}

impl EarlyStoppingStrategy for Patience {
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool {
        let is_over = self.ranks.is_first() && self.is_over(&Losses::validated(store, epoch), epoch);
        // A rank that has left is known at the next step, or at the end.
        self.ranks.sum(&[is_over.into()]).is_ok_and(|ranks_over| ranks_over[0] > 0.0)
    }
}

/// The values of the batches, and their mean over the epoch, if the epoch was not broken off: one number a line, followed
/// by its count; the mean is marked `final`.
fn read_log(path: &Path) -> Result<(Vec<f64>, Option<f64>), Error> {
    // A line of a crashed run may be anything.
    let text = String::from_utf8_lossy(&regular_file::read(path, u64::MAX)?).into_owned();
    let values = text.lines().filter_map(|line| line.split_once(','));
    let values = values.filter_map(|(value, count)| Some((value.parse().ok()?, count)));
    // A batch without masked tokens has no loss.
    let values = values.filter(|(value, _): &(f64, _)| value.is_finite());
    let (means, batches): (Vec<_>, Vec<_>) = values.partition(|&(_, count)| count == "final");
    let batches = batches.into_iter().map(|(value, _)| value).collect();
    Ok((batches, means.last().map(|&(value, _)| value)))
}

/// Writes the logs of Burn's own logger, which aborts the process on a full disk; here lines are lost, and training goes on.
pub(super) struct Logs {
    folder: PathBuf,
    reader: FileMetricLogger,
    names: HashMap<MetricId, String>,
    /// Those of the current epoch with their sizes; `None` if one could not be created.
    files: HashMap<PathBuf, Option<(File, u64)>>,
}

impl Logs {
    pub(super) fn new(folder: &Path) -> Self {
        let reader = FileMetricLogger::new(folder);
        Self { folder: folder.to_path_buf(), reader, names: HashMap::new(), files: HashMap::new() }
    }
}

impl MetricLogger for Logs {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
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
        self.reader.read_numeric(name, epoch, split)
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name.replace(' ', "_"));
    }

    fn log_epoch_summary(&mut self, _summary: EpochSummary) {
        self.files.clear();
    }
}
