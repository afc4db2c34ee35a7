use super::arguments::TrainingArguments;
use super::history::LOSS;
use super::learner::{TrainableModel, Training};
use crate::error::{Error, Result};
use burn::data::dataloader::Progress;
use burn::data::dataset::DatasetError;
use burn::train::metric::{Adaptor, ItemLazy, LossMetric, Metric, MetricAttributes, MetricMetadata, Numeric};
use burn::train::{InferenceStep, SupervisedTraining, TrainStep};
use std::collections::BTreeMap;

type Output<M> = <M as TrainStep>::Output;

/// The loss of a model, and further metrics: any of Burn's and of [`metrics`](crate::metrics) that the model's output supports.
///
/// ```
/// use burn::train::metric::AccuracyMetric;
/// use burn_bert::metrics::ConfusionMetric;
/// use burn_bert::model::BertForSequenceClassification;
/// use burn_bert::training::Metrics;
///
/// let metrics = Metrics::<BertForSequenceClassification>::new()
///     .with(AccuracyMetric::new())
///     .with(ConfusionMetric::f1(1, "positive"));
/// assert_eq!(metrics.names(), ["Loss", "Accuracy", "F1 of positive"]);
/// ```
pub struct Metrics<M>(Vec<Box<dyn Scored<M>>>);

impl<M: TrainableModel> Default for Metrics<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: TrainableModel> Metrics<M> {
    /// The loss alone.
    pub fn new() -> Self {
        Self(vec![Box::new(LossMetric::new())])
    }

    /// Adds a metric. One of the same name replaces the old one.
    pub fn with<Me>(mut self, metric: Me) -> Self
    where
        Me: Metric + Numeric + 'static,
        Output<M>: Adaptor<Me::Input>,
    {
        self.push(Box::new(metric));
        self
    }

    fn push(&mut self, metric: Box<dyn Scored<M>>) {
        self.0.retain(|other| other.name() != metric.name());
        self.0.push(metric);
    }

    /// These and others, which replace those of the same name.
    pub(super) fn and(mut self, others: Self) -> Self {
        // Every set begins with the loss.
        others.0.into_iter().filter(|other| other.name() != LOSS).for_each(|other| self.push(other));
        self
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|metric| metric.name()).collect()
    }

    /// Whether a greater value is better of the metric by which the best evaluation is found. Returns [`Error::Config`] if there is
    /// no such metric, [`Error::Data`] if it has nothing to be computed from.
    pub(super) fn is_greater_better(
        &self,
        arguments: &TrainingArguments,
        is_validated: bool,
    ) -> Result<bool> {
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
        Ok(arguments.greater_is_better.unwrap_or_else(|| metric.greater_is_better()))
    }

    pub(super) fn register(
        &self,
        training: SupervisedTraining<Training<M>>,
    ) -> SupervisedTraining<Training<M>> {
        self.0.iter().fold(training, |training, metric| metric.register(training))
    }

    /// The values over some batches, whose loader ranks may share; `None` if the run is stopped meanwhile.
    pub(super) fn of_batches(
        &self,
        model: &Training<M>,
        batches: impl Iterator<Item = Result<<M as TrainStep>::Input, DatasetError>>,
    ) -> Result<Option<BTreeMap<String, f64>>> {
        let mut metrics: Vec<_> = self.0.iter().map(|metric| metric.fresh()).collect();
        for batch in batches {
            let output = InferenceStep::step(model, batch.map_err(failed)?);
            // After the step, in which ranks meet: all leave the loop at the same batch.
            if model.is_stopped()? {
                return Ok(None);
            }
            let output = output.sync().map_err(failed)?;
            metrics.iter_mut().try_for_each(|metric| metric.update(&output))?;
        }
        Ok(Some(metrics.iter().map(|metric| (metric.name(), metric.value())).collect()))
    }
}

fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Training { what: "the evaluation", source: Box::new(source) }
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

trait Scored<M: TrainableModel>: Send + Sync {
    fn name(&self) -> String;
    fn greater_is_better(&self) -> bool;
    fn register(&self, training: SupervisedTraining<Training<M>>) -> SupervisedTraining<Training<M>>;
    /// The same metric without a batch.
    fn fresh(&self) -> Box<dyn Scored<M>>;
    fn update(&mut self, output: &Output<M>) -> Result<()>;
    fn value(&self) -> f64;
}

impl<M: TrainableModel, Me> Scored<M> for Me
where
    Me: Metric + Numeric + 'static,
    Output<M>: Adaptor<Me::Input>,
{
    fn name(&self) -> String {
        Metric::name(self).to_string()
    }

    fn greater_is_better(&self) -> bool {
        match self.attributes() {
            MetricAttributes::Numeric(attributes) => attributes.higher_is_better,
            MetricAttributes::None => true,
        }
    }

    fn register(&self, training: SupervisedTraining<Training<M>>) -> SupervisedTraining<Training<M>> {
        training.metric_train_numeric(self.clone()).metric_valid_numeric(self.clone())
    }

    fn fresh(&self) -> Box<dyn Scored<M>> {
        let mut metric = self.clone();
        metric.clear(); // the caller may have used it before
        Box::new(metric)
    }

    fn update(&mut self, output: &Output<M>) -> Result<()> {
        // Without a learning rate, which tells metrics that are for validation alone that this is one.
        let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
        Metric::update(self, &output.adapt(), &metadata).map(drop).map_err(failed)
    }

    fn value(&self) -> f64 {
        self.final_value().current()
    }
}
