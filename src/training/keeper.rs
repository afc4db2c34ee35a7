use super::history::{Epoch, Evaluation, LOSS};
use super::metric_set::check_loss;
use super::run::Run;
use crate::error;
use burn::train::checkpoint::{CheckpointingAction, CheckpointingStrategy};
use burn::train::logger::MetricLogger;
use burn::train::metric::store::{
    Aggregate, EpochSummary, EventStoreClient, MetricsUpdate, NumericMetricUpdate, Split,
};
use burn::train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn::train::{EarlyStoppingStrategy, Interrupter};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// What Burn's trainer asks after each epoch of a [`Run`], and where it logs. The last two checkpoints and the best one are kept, of
/// those on disk: the checkpoints from before a resume are deleted as well. Burn's own logger writes a file for each metric and
/// epoch, and aborts the process on a full disk.
///
/// Evaluations before a resume count too, unlike with Burn's `MetricEarlyStoppingStrategy`; a value that is not finite is no
/// improvement, and a run that never had a finite one goes on.
#[derive(Clone)]
pub(super) struct Keeper {
    run: Arc<Run>,
    greater_is_better: bool,
    /// The keys of Burn's dashboard, which resets them when training ends: the trainer's interrupter must still know then what
    /// stopped it.
    pub(super) keys: Interrupter,
    trainer: Interrupter,
    /// What stopped the trainer: a loss that is infinite or NaN, or another run in the directory.
    problem: Arc<Mutex<Option<error::Error>>>,
    names: HashMap<MetricId, String>,
}

impl Keeper {
    pub(super) fn new(run: &Arc<Run>, greater_is_better: bool, trainer: &Interrupter) -> Self {
        let (run, trainer, keys) = (run.clone(), trainer.clone(), Interrupter::new());
        Self { run, greater_is_better, keys, trainer, problem: Arc::default(), names: HashMap::new() }
    }

    /// The number of the best evaluation, counted from 1, of those whose checkpoint is kept; of equal ones the first.
    fn best(&self, is_kept: impl Fn(usize) -> bool) -> Option<usize> {
        self.last_improvement(0.0, is_kept)
    }

    /// The best evaluation that there is a checkpoint of, and what to say of one that is missing. The model of the last
    /// evaluation stands in for it.
    pub(super) fn result(&self) -> (Option<usize>, Option<String>) {
        let metric = &self.run.arguments.metric_for_best_model;
        let kept = self.run.checkpoints[0].epochs().unwrap_or_default();
        let (best, best_of_all) = (self.best(|number| kept.contains(&number)), self.best(|_| true));
        let saved = best.map_or("the last model".into(), |best| format!("that of evaluation {best}"));
        let note = match best_of_all {
            Some(_) if best == best_of_all => None,
            Some(lost) => Some(format!(
                "the checkpoint of evaluation {lost}, the best by {metric}, is no longer there; the model that is saved is {saved}"
            )),
            None => Some(format!(
                "{metric} was finite in no evaluation; the model that is saved is {saved}. To save the best by another metric, \
                 resume the run with another metric_for_best_model"
            )),
        };
        (best, note)
    }

    /// The error of what stopped the trainer, once.
    pub(super) fn problem(&self) -> error::Result<()> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Stops the trainer for an error, of which the first one stays.
    fn fail(&self, error: error::Error) {
        self.trainer.stop(Some(&error.to_string()));
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The last evaluation that was better by more than `threshold` than the last one before it that was, of some.
    fn last_improvement(&self, threshold: f64, is_one: impl Fn(usize) -> bool) -> Option<usize> {
        let (epochs, sign) = (self.run.log.lock(), if self.greater_is_better { 1.0 } else { -1.0 });
        let value = |(_, of): &Epoch| Some(sign * of.valid.get(&self.run.arguments.metric_for_best_model)?);
        let ones = (1..).zip(&*epochs).filter(|(epoch, _)| is_one(*epoch));
        let values = ones.filter_map(|(epoch, of)| Some((epoch, value(of)?)));
        let last = values.reduce(|best, now| if now.1 - best.1 > threshold { now } else { best });
        last.map(|(epoch, _)| epoch)
    }

    /// Whether the run has been without an improvement for as long as its patience.
    pub(super) fn is_over(&self) -> bool {
        let Some(patience) = self.run.arguments.early_stopping_patience else { return false };
        let last = self.last_improvement(self.run.arguments.early_stopping_threshold, |_| true);
        last.is_some_and(|last| self.run.log.lock().len() - last >= patience)
    }
}

/// Waits until all that the trainer's store was given is logged.
fn wait(store: &EventStoreClient) {
    // Answers come in the order of a queue; this one is that there is no such value.
    store.find_metric(LOSS, 1, Aggregate::Mean, &Split::Valid);
}

impl EarlyStoppingStrategy for Keeper {
    fn should_stop(&mut self, _: usize, store: &EventStoreClient) -> bool {
        wait(store);
        let ranks = &self.run.arguments.ranks;
        let is_over = ranks.is_first() && self.is_over();
        // A rank that has left is known at the next step, or at the end.
        ranks.sum(&[is_over.into()]).is_ok_and(|ranks_over| ranks_over[0] > 0.0)
    }
}

impl CheckpointingStrategy for Keeper {
    fn checkpointing(&mut self, epoch: usize, store: &EventStoreClient) -> Vec<CheckpointingAction> {
        wait(store);
        // Known now at the latest: a model with such a loss is not saved.
        let has_failed = self.problem.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if has_failed {
            return Vec::new();
        }
        // Before the checkpoint, after which a resumed run would not log this epoch again.
        self.run.log.save();
        // Of several ranks, the first saves for all.
        if !self.run.arguments.ranks.is_first() {
            return Vec::new();
        }
        // The directory may have been removed in the hours since the last one.
        if let Err(error) = self.run.restore_beginning() {
            self.fail(error);
            return Vec::new();
        }
        let saved = self.run.checkpoints.iter().flat_map(|files| files.epochs().unwrap_or_default());
        let saved: BTreeSet<usize> = saved.collect();
        // The one before may not be written yet, as Burn's threads save it.
        let best = self.best(|number| number + 1 >= epoch || saved.contains(&number));
        let old = saved.into_iter().filter(|&old| old + 1 < epoch && Some(old) != best);
        let deleted = old.map(CheckpointingAction::Delete);
        [CheckpointingAction::Save].into_iter().chain(deleted).collect()
    }
}

impl MetricLogger for Keeper {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        if self.keys.should_stop() && !self.trainer.should_stop() {
            self.trainer.stop(Some("q, then s"));
        }
        let mut epochs = self.run.log.lock();
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
                    if let Err(error) = check_loss(batch, value) {
                        self.fail(error);
                    }
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
