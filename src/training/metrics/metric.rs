//! The scores as metrics of Burn's trainer.

use super::confusion::{ConfusionMatrix, spearman};
use burn::prelude::*;
use burn::tensor::TensorReadError;
use burn::train::RegressionOutput;
use burn::train::metric::{
    Adaptor, ConfusionStatsInput, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric,
    NumericAttributes, NumericEntry, SerializedEntry,
};
use std::sync::Arc;

/// A score of a whole epoch's predictions: of every batch so far, not a mean over batches.
///
/// For [`SequenceClassificationItem`](crate::training::SequenceClassificationItem) with one class per sequence, and for
/// Burn's `ClassificationOutput`. Burn's own `FBetaScoreMetric` is NaN as soon as a class is neither present nor
/// predicted; this metric follows scikit-learn. It is NaN for an epoch with a score that is NaN, which predicts no class.
///
/// ```
/// use burn::train::metric::{AccuracyMetric, LossMetric};
/// use burn_bert::training::ConfusionMetric;
///
/// let metrics = (
///     LossMetric::new(),
///     AccuracyMetric::new(),
///     ConfusionMetric::macro_f1(),
///     ConfusionMetric::f1(1, "positive"),
///     ConfusionMetric::matthews(),
/// );
/// # let _ = metrics;
/// ```
#[derive(Clone)]
pub struct ConfusionMetric {
    name: MetricName,
    score: Arc<dyn Fn(&ConfusionMatrix) -> f64 + Send + Sync>,
    matrix: ConfusionMatrix,
    has_nan: bool,
}

impl ConfusionMetric {
    /// The mean F1 of all classes, [`ConfusionMatrix::macro_f1`].
    pub fn macro_f1() -> Self {
        Self::new("F1", ConfusionMatrix::macro_f1)
    }

    /// The F1 of one class, [`ConfusionMatrix::f1`].
    pub fn f1(class: usize, name: &str) -> Self {
        Self::new(&format!("F1 of {name}"), move |matrix| matrix.f1(class))
    }

    /// The Matthews correlation, [`ConfusionMatrix::matthews`].
    pub fn matthews() -> Self {
        Self::new("Matthews", ConfusionMatrix::matthews)
    }

    fn new(name: &str, score: impl Fn(&ConfusionMatrix) -> f64 + Send + Sync + 'static) -> Self {
        let (name, score) = (Arc::new(name.to_string()), Arc::new(score));
        Self { name, score, matrix: ConfusionMatrix::default(), has_nan: false }
    }

    fn current(&self) -> f64 {
        if self.has_nan { f64::NAN } else { (self.score)(&self.matrix) }
    }

    fn entry(&self) -> NumericEntry {
        let count = self.matrix.total() as usize;
        NumericEntry::Aggregated { aggregated_value: self.current(), count }
    }
}

impl Metric for ConfusionMetric {
    type Input = ConfusionStatsInput;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: true }.into()
    }

    fn update(
        &mut self,
        input: &ConfusionStatsInput,
        _metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        if input.predictions.dims()[0] > 0 {
            let nan = input.predictions.clone().is_nan().any().try_into_data()?;
            self.has_nan |= nan.iter::<bool>().any(|nan| nan);
            let classes = |scores: Tensor<2>| scores.argmax(1).try_into_data();
            let predicted = classes(input.predictions.clone())?;
            let truth = classes(input.targets.clone().float())?;
            for (truth, predicted) in truth.iter::<i64>().zip(predicted.iter::<i64>()) {
                self.matrix.add(truth as usize, predicted as usize);
            }
        }
        Ok(serialized(&self.entry()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(serialized(&self.final_value()))
    }

    fn clear(&mut self) {
        (self.matrix, self.has_nan) = (ConfusionMatrix::default(), false);
    }
}

impl Numeric for ConfusionMetric {
    fn value(&self) -> Option<NumericEntry> {
        Some(self.entry())
    }

    fn running_value(&self) -> Option<NumericEntry> {
        Some(self.entry())
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.current())
    }
}

/// The rank correlation of predicted and true numbers, [`spearman`], over the whole epoch. It is computed at the end of
/// the epoch; ranks of a part of it mean nothing.
///
/// For [`SequenceClassificationItem`](crate::training::SequenceClassificationItem) with numbers as labels, and for
/// Burn's `RegressionOutput`.
#[derive(Clone, Debug, Default)]
pub struct SpearmanMetric {
    predicted: Vec<f64>,
    truth: Vec<f64>,
}

impl SpearmanMetric {
    /// Creates the metric.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The input of [`SpearmanMetric`], for [`spearman`].
#[derive(Clone, Debug)]
pub struct SpearmanInput {
    /// The predicted numbers.
    pub predicted: Tensor<2>,
    /// The true ones.
    pub truth: Tensor<2>,
}

impl Adaptor<SpearmanInput> for RegressionOutput {
    fn adapt(&self) -> SpearmanInput {
        SpearmanInput { predicted: self.output.clone(), truth: self.targets.clone() }
    }
}

impl Metric for SpearmanMetric {
    type Input = SpearmanInput;

    fn name(&self) -> MetricName {
        Arc::new("Spearman".to_string())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: true }.into()
    }

    fn update(
        &mut self,
        input: &SpearmanInput,
        _metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        self.predicted.extend(input.predicted.clone().try_into_data()?.iter::<f64>());
        self.truth.extend(input.truth.clone().try_into_data()?.iter::<f64>());
        Ok(SerializedEntry::not_available(None)) // until the epoch ends
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(serialized(&self.final_value()))
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Numeric for SpearmanMetric {
    fn value(&self) -> Option<NumericEntry> {
        None
    }

    fn running_value(&self) -> Option<NumericEntry> {
        None
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(spearman(&self.predicted, &self.truth))
    }
}

/// As Burn's own metrics write themselves.
pub(super) fn serialized(entry: &NumericEntry) -> SerializedEntry {
    SerializedEntry::new(format!("epoch {:.4}", entry.current()), entry.serialize())
}
