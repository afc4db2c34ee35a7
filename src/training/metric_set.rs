use super::arguments::TrainingArguments;
use super::history::{BestBy, LOSS};
use super::outputs::Shared;
use crate::data::EpochLoader;
use crate::error::{Error, Result};
use burn::data::dataloader::Progress;
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::train::ItemLazy;
use burn::train::metric::{
    Adaptor, LossInput, LossMetric, Metric, MetricAttributes, MetricDefinition, MetricId, MetricMetadata,
    Numeric, NumericEntry,
};
use burn_fused::autocast;
use std::collections::BTreeMap;

/// The loss of a model, and further metrics: any of Burn's and of [`metrics`](crate::metrics) that its output `T` supports.
///
/// ```
/// use burn::train::metric::AccuracyMetric;
/// use burn_bert::metrics::ConfusionMetric;
/// use burn_bert::training::{ClassificationItem, Metrics};
///
/// let metrics = Metrics::<ClassificationItem>::new()
///     .with(AccuracyMetric::new())
///     .with(ConfusionMetric::f1(1, "positive"));
/// assert_eq!(metrics.names(), ["Loss", "Accuracy", "F1 of positive"]);
/// ```
pub struct Metrics<T>(Vec<Box<dyn OutputMetric<T>>>);

impl<T: ItemLazy + Adaptor<LossInput> + 'static> Default for Metrics<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Without the batches that were counted.
impl<T> Clone for Metrics<T> {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|metric| metric.cleared()).collect())
    }
}

impl<T: ItemLazy + Adaptor<LossInput> + 'static> Metrics<T> {
    /// The loss alone.
    pub fn new() -> Self {
        Self(vec![Box::new(LossMetric::new())])
    }

    /// Adds a metric. One of the same name replaces the old one.
    pub fn with<Me>(mut self, metric: Me) -> Self
    where
        Me: Metric + Numeric + 'static,
        T: Adaptor<Me::Input>,
    {
        self.push(Box::new(metric));
        self
    }

    fn push(&mut self, metric: Box<dyn OutputMetric<T>>) {
        self.0.retain(|other| other.name() != metric.name());
        self.0.push(metric);
    }

    /// Adds other metrics, which replace those of the same name.
    pub(super) fn and(mut self, others: Self) -> Self {
        // Every set begins with the loss.
        others.0.into_iter().filter(|other| other.name() != LOSS).for_each(|other| self.push(other));
        self
    }

    /// The names of the metrics.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|metric| metric.name()).collect()
    }

    pub(super) fn definitions(&self) -> Vec<MetricDefinition> {
        self.0.iter().map(|metric| metric.definition()).collect()
    }

    /// How the best evaluation is found. Returns [`Error::Config`] if there is no such metric, [`Error::Data`] if it has nothing to
    /// be computed from.
    pub(super) fn best_by(&self, arguments: &TrainingArguments, is_validated: bool) -> Result<BestBy> {
        let name = &arguments.metric_for_best_model;
        let Some(metric) = self.0.iter().find(|metric| metric.name() == *name) else {
            let problem = format!("is {name:?}, but the metrics are {:?}", self.names());
            return Err(Error::config("metric_for_best_model", problem));
        };
        if !is_validated && (name != LOSS || arguments.early_stopping_patience.is_some()) {
            let problem = "are missing, but early stopping and metric_for_best_model read them; give the trainer some by \
                           with_validation or with_validation_share";
            return Err(Error::data("the validation data", problem));
        }
        let greater_is_better =
            arguments.greater_is_better.unwrap_or_else(|| match metric.definition().attributes {
                MetricAttributes::Numeric(attributes) => attributes.higher_is_better,
                MetricAttributes::None => true,
            });
        Ok(BestBy { metric: name.clone(), greater_is_better })
    }

    /// Counts a batch, of training if it has a learning rate.
    pub(super) fn update(&mut self, output: T, rate: Option<&ModuleLearningRate>) -> Result<()> {
        // Outside the graph, which it would keep alive.
        let output = output.sync().map_err(failed)?;
        self.0.iter_mut().try_for_each(|metric| metric.update(&output, rate.cloned()))
    }

    /// The loss of the batch that was counted last, and how much it counts; `None` if it has none.
    pub(super) fn last_loss(&self) -> Option<(f64, usize)> {
        match self.0.iter().find(|metric| metric.name() == LOSS)?.value()? {
            NumericEntry::Aggregated { aggregated_value, count: count @ 1.. } => {
                Some((aggregated_value, count))
            }
            _ => None,
        }
    }

    /// The values over the batches since the last call, by name.
    pub(super) fn take(&mut self) -> Result<BTreeMap<String, f64>> {
        let values = self.0.iter_mut().map(|metric| Ok((metric.name(), metric.compute()?)));
        let values = values.collect();
        self.0.iter_mut().for_each(|metric| *metric = metric.cleared());
        values
    }

    /// The metrics over the first batches of a loader, at most so many, of which `model` computes the outputs; `None` if the run is
    /// stopped meanwhile. With `is_checked` the loss of each batch must be finite.
    pub(super) fn evaluate<B: Send + 'static>(
        &self,
        data: (&EpochLoader<B>, usize),
        arguments: &TrainingArguments,
        shared: Option<Shared<T>>,
        is_checked: bool,
        is_stopped: &dyn Fn() -> bool,
        model: impl Fn(&B) -> Result<T>,
    ) -> Result<Option<BTreeMap<String, f64>>> {
        let mut metrics = self.clone();
        let is_whole = evaluate(data, arguments, shared, is_stopped, model, |output| {
            metrics.update(output, None)?;
            let loss = metrics.last_loss().filter(|_| is_checked);
            loss.map_or(Ok(()), |(loss, _)| check_loss("of a validation batch", loss))
        })?;
        if is_whole { metrics.take().map(Some) } else { Ok(None) }
    }
}

/// Gives `read` the outputs that `model` computes of the first batches of a loader, at most so many; false if the run is stopped
/// meanwhile.
///
/// Of several ranks each computes the next batch of a round and sends its output to the others, if they are shared, so that
/// each reads what it reads in one process.
pub(super) fn evaluate<B: Send + 'static, T>(
    (loader, most): (&EpochLoader<B>, usize),
    arguments: &TrainingArguments,
    shared: Option<Shared<T>>,
    is_stopped: &dyn Fn() -> bool,
    model: impl Fn(&B) -> Result<T>,
    mut read: impl FnMut(T) -> Result<()>,
) -> Result<bool> {
    let TrainingArguments { ranks, precision, .. } = arguments;
    let (rank, size) = (ranks.rank(), ranks.size());
    let (shared, count) = (shared.filter(|_| size > 1), loader.num_batches().min(most));
    let (first, step) = if shared.is_some() { (rank, size) } else { (0, 1) };
    let mut batches = loader.selected(0, (first..count).step_by(step));
    for _round in (0..count).step_by(step) {
        // In the last round some ranks have no batch, and take part with nothing.
        let batch = batches.next().transpose().map_err(failed)?;
        let own = batch.map(|batch| autocast(*precision, || model(&batch))).transpose()?;
        let outputs: Vec<T> = match &shared {
            None => own.into_iter().collect(),
            Some(shared) => {
                let messages = ranks.gather(own.as_ref().map_or_else(Vec::new, shared.write))?;
                let written = messages.iter().filter(|message| !message.is_empty());
                written.map(|message| (shared.read)(message, &arguments.device())).collect()
            }
        };
        // After the exchange: all leave the loop at the same batch.
        if is_stopped() {
            return Ok(false);
        }
        outputs.into_iter().try_for_each(&mut read)?;
    }
    Ok(true)
}

fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::training("the evaluation", source)
}

pub(super) fn check_loss(what: &str, loss: f64) -> Result<()> {
    if loss.is_finite() {
        return Ok(());
    }
    let problem = format!(
        "is {loss}; lower learning_rate or max_grad_norm, or look for bad values in the data and the checkpoint"
    );
    Err(Error::data(format!("the loss {what}"), problem))
}

pub(super) fn loss_of(values: &BTreeMap<String, f64>) -> f64 {
    values.get(LOSS).copied().unwrap_or(f64::NAN)
}

/// A metric of an output, whatever part of it it reads.
trait OutputMetric<T>: Send + Sync {
    fn name(&self) -> String;
    fn definition(&self) -> MetricDefinition;
    /// The metric without a batch.
    fn cleared(&self) -> Box<dyn OutputMetric<T>>;
    fn update(&mut self, output: &T, rate: Option<ModuleLearningRate>) -> Result<()>;
    /// The value of the last batch.
    fn value(&self) -> Option<NumericEntry>;
    /// The value of all batches.
    fn compute(&mut self) -> Result<f64>;
}

impl<T: Adaptor<Me::Input>, Me: Metric + Numeric + 'static> OutputMetric<T> for Me {
    fn name(&self) -> String {
        Metric::name(self).to_string()
    }

    fn definition(&self) -> MetricDefinition {
        MetricDefinition::new(MetricId::new(Metric::name(self)), self)
    }

    fn cleared(&self) -> Box<dyn OutputMetric<T>> {
        let mut metric = self.clone();
        metric.clear();
        Box::new(metric)
    }

    fn update(&mut self, output: &T, lr: Option<ModuleLearningRate>) -> Result<()> {
        // Without a learning rate, metrics that are for evaluations alone know that this is one.
        let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr };
        Metric::update(self, &output.adapt(), &metadata).map(drop).map_err(failed)
    }

    fn value(&self) -> Option<NumericEntry> {
        Numeric::value(self)
    }

    fn compute(&mut self) -> Result<f64> {
        Metric::compute(self).map_err(failed)?;
        Ok(self.final_value().current())
    }
}
