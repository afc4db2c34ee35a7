use super::arguments::TrainingArguments;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

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
        for (index, Evaluation { step, train, valid }) in self.evaluations.iter().enumerate() {
            row(f, *step, train.get(LOSS), valid)?;
            if self.best == Some(index) {
                write!(f, " best")?;
            }
        }
        Ok(())
    }
}

pub(super) const LOSS: &str = "Loss";

/// The metric that decides which evaluation is the best, and whether more of it is better.
#[derive(Clone)]
pub(super) struct BestBy {
    pub(super) metric: String,
    pub(super) greater_is_better: bool,
}

impl History {
    /// The index of the best evaluation, of some; of equal ones the first.
    pub(super) fn best(&self, by: &BestBy, is_one: impl Fn(usize) -> bool) -> Option<usize> {
        self.last_improvement(by, 0.0, is_one)
    }

    /// The index of the last evaluation that was better by more than `threshold` than the last one before it that was, of some.
    /// A value that is not finite is not an improvement.
    pub(super) fn last_improvement(
        &self,
        by: &BestBy,
        threshold: f64,
        is_one: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let sign = if by.greater_is_better { 1.0 } else { -1.0 };
        let ones = self.evaluations.iter().enumerate().filter(|(index, _)| is_one(*index));
        let values = ones.filter_map(|(index, of)| Some((index, sign * of.valid.get(&by.metric)?)));
        let last = values.reduce(|best, now| if now.1 - best.1 > threshold { now } else { best });
        last.map(|(index, _)| index)
    }

    /// Whether an evaluation was better within the patience of the arguments, if they have one.
    pub(super) fn is_patient(&self, by: &BestBy, arguments: &TrainingArguments) -> bool {
        let last = self.last_improvement(by, arguments.early_stopping_threshold, |_| true);
        let patience = arguments.early_stopping_patience.zip(last);
        patience.is_none_or(|(patience, last)| self.evaluations.len() - 1 - last < patience)
    }

    /// Sets the best evaluation that there is a checkpoint of; says what is to be said of one that is missing. The model of the last
    /// evaluation stands in for it.
    pub(super) fn choose_best(&mut self, by: &BestBy, checkpoints: &BTreeSet<usize>) -> Option<String> {
        self.best = self.best(by, |index| checkpoints.contains(&(index + 1)));
        let saved =
            self.best.map_or("the last model".into(), |best| format!("that of evaluation {}", best + 1));
        let metric = &by.metric;
        match self.best(by, |_| true) {
            Some(best) if self.best == Some(best) => None,
            Some(lost) => Some(format!(
                "the checkpoint of evaluation {}, the best by {metric}, is no longer there; the model that is saved is {saved}",
                lost + 1
            )),
            None => Some(format!(
                "{metric} was finite in no evaluation; the model that is saved is {saved}. To save the best by another metric, \
                 resume the run with another metric_for_best_model"
            )),
        }
    }

    /// Leaves out what other metrics have measured: a run may have begun with others.
    pub(super) fn retain(&mut self, metrics: &[String]) {
        for Evaluation { train, valid, .. } in &mut self.evaluations {
            [train, valid].into_iter().for_each(|values| values.retain(|name, _| metrics.contains(name)));
        }
    }
}

/// The values that are finite.
pub(super) fn finite(values: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    values.into_iter().filter(|(_, value)| value.is_finite()).collect()
}
