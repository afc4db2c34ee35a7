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
    empty: C,
    collected: C,
    /// A logit was NaN, of which `argmax` would give some class.
    has_nan: bool,
}

type Score<C> = dyn Fn(&C) -> Result<f64, TensorReadError> + Send + Sync;

/// What a metric keeps of an epoch's batches.
pub trait Collected: Clone + Send + Sync + 'static {
    type Input;

    /// Whether it is too expensive for the training split, which has gradients to compute.
    const IS_FOR_VALIDATION: bool = false;

    /// Adds a batch; returns whether a logit is NaN, which shows that the model is broken where no score would.
    fn add(&mut self, input: &Self::Input) -> Result<bool, TensorReadError>;

    /// The number of items so far; `None` if the score of a part of an epoch means nothing.
    fn count(&self) -> Option<usize> {
        None
    }
}

impl<C: Collected> EpochMetric<C> {
    /// A metric of this name, whose score is computed from what `empty` collects.
    pub(super) fn scored(
        name: &str,
        empty: C,
        score: impl Fn(&C) -> Result<f64, TensorReadError> + Send + Sync + 'static,
    ) -> Self {
        let (name, score) = (Arc::new(name.to_string()), Arc::new(score));
        Self { name, score, collected: empty.clone(), empty, has_nan: false }
    }

    pub(super) fn with(self, change: impl FnOnce(&mut C)) -> Self {
        let mut empty = self.empty;
        change(&mut empty);
        Self { collected: empty.clone(), empty, ..self }
    }

    fn so_far(&self) -> Option<NumericEntry> {
        let count = self.collected.count()?;
        // Where Burn takes no error, a device that cannot be read gives NaN.
        Some(NumericEntry::Aggregated { aggregated_value: self.score().unwrap_or(f64::NAN), count })
    }

    fn score(&self) -> Result<f64, TensorReadError> {
        if self.has_nan { Ok(f64::NAN) } else { (self.score)(&self.collected) }
    }
}

/// The class with the largest score of each row.
pub(super) fn classes(scores: Tensor<2>) -> Result<Vec<i64>, TensorReadError> {
    // A batch without labels has no rows, of which Burn takes no maximum.
    if scores.dims()[0] == 0 {
        return Ok(Vec::new());
    }
    Ok(scores.argmax(1).try_into_data()?.iter().collect())
}

pub(super) fn has_nan(logits: &Tensor<2>) -> Result<bool, TensorReadError> {
    if logits.dims()[0] == 0 {
        return Ok(false);
    }
    Ok(logits.clone().is_nan().any().try_into_data()?.iter::<bool>().any(|is_nan| is_nan))
}

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
        if !C::IS_FOR_VALIDATION || metadata.lr.is_none() {
            self.has_nan |= self.collected.add(input)?;
        }
        // Some scores have no value until the epoch ends.
        Ok(self.so_far().map_or_else(|| SerializedEntry::not_available(None), |entry| serialized(&entry)))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(serialized(&NumericEntry::Final(self.score()?)))
    }

    fn clear(&mut self) {
        // Not a default: what is empty may have settings, such as the names of labels.
        (self.collected, self.has_nan) = (self.empty.clone(), false);
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
        NumericEntry::Final(self.score().unwrap_or(f64::NAN))
    }
}
