use super::checkpoints::whole;
use crate::error::{Error, Result};
use crate::files::regular_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// The index in `evaluations` of the model that was saved; `None` if that is the last one: if the run was stopped, has no
    /// validation data, or its metric was finite in no evaluation.
    pub best: Option<usize>,
}

/// The metrics of one evaluation of a [`Trainer`](super::Trainer), by name. Values that are not finite are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Optimizer steps so far.
    pub step: usize,
    /// Metrics of the training batches since the evaluation before, as they were trained on; of several ranks, of those of rank 0.
    pub train: BTreeMap<String, f64>,
    /// Metrics of the validation data.
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
        // Of all evaluations, as each lacks the values that were not finite.
        let valid = self.evaluations.iter().map(|evaluation| &evaluation.valid);
        let names: BTreeSet<&String> =
            [&self.initial].into_iter().chain(valid).flat_map(BTreeMap::keys).collect();
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
pub(super) type Epoch = (Vec<f64>, Evaluation);

/// The epochs of Burn's trainer in memory, and in a file from which a resumed run goes on.
pub(super) struct Log {
    path: PathBuf,
    epochs: Mutex<Vec<Epoch>>,
}

impl Log {
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join(HISTORY), epochs: Mutex::default() }
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Epoch>> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the file. On a full disk the old one stays until the next time: all epochs are still in memory.
    pub(super) fn save(&self) {
        // Not JSON, which rounds some numbers: a resumed run must find the same best evaluation.
        let bytes = rmp_serde::to_vec(&*self.lock()).expect("plain data");
        let _ = whole(&self.path, |path| fs::write(path, bytes));
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
