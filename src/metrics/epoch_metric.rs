//! What metrics of an epoch have in common.

use burn::prelude::*;
use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};
use std::sync::Arc;

/// A score of a whole epoch's predictions, of which more is better, for Burn's trainer: a metric of [this module](super).
#[derive(Clone)]
pub struct EpochMetric<C> {
    name: MetricName,
    score: Arc<Score<C>>,
    /// Of no batch.
    empty: C,
    collected: C,
}

type Score<C> = dyn Fn(&C) -> Result<f64, TensorReadError> + Send + Sync;

/// What a metric keeps of an epoch's batches.
pub trait Collected: Clone + Send + Sync + 'static {
    /// What it reads of a batch.
    type Input;

    /// Whether it is too expensive for the training split, which has gradients to compute.
    const IS_FOR_VALIDATION: bool = false;

    /// Adds a batch.
    fn add(&mut self, input: &Self::Input) -> Result<(), TensorReadError>;

    /// The number of items so far; `None` if the score of a part of an epoch means nothing.
    fn count(&self) -> Option<usize> {
        None
    }
}

impl<C: Collected> EpochMetric<C> {
    pub(super) fn of(
        name: &str,
        empty: C,
        score: impl Fn(&C) -> Result<f64, TensorReadError> + Send + Sync + 'static,
    ) -> Self {
        let (name, score) = (Arc::new(name.to_string()), Arc::new(score));
        Self { name, score, collected: empty.clone(), empty }
    }

    /// The same score with other settings.
    pub(super) fn with(self, change: impl FnOnce(&mut C)) -> Self {
        let mut empty = self.empty;
        change(&mut empty);
        Self { collected: empty.clone(), empty, ..self }
    }

    /// The score of a part of an epoch.
    fn so_far(&self) -> Option<NumericEntry> {
        let count = self.collected.count()?;
        Some(NumericEntry::Aggregated { aggregated_value: self.score_or_nan(), count })
    }

    /// Where Burn takes no error, a device that cannot be read gives NaN.
    fn score_or_nan(&self) -> f64 {
        (self.score)(&self.collected).unwrap_or(f64::NAN)
    }
}

/// As Burn's own metrics write themselves.
fn serialized(entry: &NumericEntry) -> SerializedEntry {
    SerializedEntry::new(format!("epoch {:.4}", entry.current()), entry.serialize())
}

impl<C: Collected> Metric for EpochMetric<C> {
    type Input = C::Input;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: true }.into()
    }

    fn update(
        &mut self,
        input: &C::Input,
        metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        // The trainer gives the learning rate in training alone.
        if C::IS_FOR_VALIDATION && metadata.lr.is_some() {
            return Ok(SerializedEntry::not_available(None));
        }
        self.collected.add(input)?;
        Ok(match self.so_far() {
            Some(entry) => serialized(&entry),
            None => SerializedEntry::not_available(None), // until the epoch ends
        })
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(serialized(&NumericEntry::Final((self.score)(&self.collected)?)))
    }

    fn clear(&mut self) {
        self.collected = self.empty.clone();
    }
}

impl<C: Collected> Numeric for EpochMetric<C> {
    fn value(&self) -> Option<NumericEntry> {
        self.so_far()
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.so_far()
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.score_or_nan())
    }
}

/// What was counted, unless a logit was NaN: `argmax` of NaN is some class, which would count.
#[derive(Clone)]
pub struct Counted<S> {
    pub(super) scores: S,
    has_nan: bool,
}

impl<S> Counted<S> {
    pub(super) fn of(scores: S) -> Self {
        Self { scores, has_nan: false }
    }

    pub(super) fn check(&mut self, logits: &Tensor<2>) -> Result<(), TensorReadError> {
        let nan = logits.clone().is_nan().any().try_into_data()?;
        self.has_nan |= nan.iter::<bool>().any(|nan| nan);
        Ok(())
    }

    pub(super) fn score(&self, of: impl Fn(&S) -> f64) -> f64 {
        if self.has_nan { f64::NAN } else { of(&self.scores) }
    }
}
