//! The scores as metrics of Burn's trainer.

use super::confusion::{ConfusionMatrix, spearman};
use super::score::{Score, numeric};
use burn::prelude::*;
use burn::tensor::TensorReadError;
use burn::train::RegressionOutput;
use burn::train::metric::{Adaptor, ConfusionStatsInput, MetricName};
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
}

impl Score for ConfusionMetric {
    type Input = ConfusionStatsInput;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn add(&mut self, input: &ConfusionStatsInput) -> Result<(), TensorReadError> {
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
        Ok(())
    }

    fn score(&self) -> Result<f64, TensorReadError> {
        Ok(if self.has_nan { f64::NAN } else { (self.score)(&self.matrix) })
    }

    fn count(&self) -> Option<usize> {
        Some(self.matrix.total() as usize)
    }

    fn forget(&mut self) {
        (self.matrix, self.has_nan) = (ConfusionMatrix::default(), false);
    }
}
numeric!(ConfusionMetric);

/// The rank correlation of predicted and true numbers, [`spearman`], over the whole epoch. It is computed at the end of
/// the epoch; ranks of a part of it mean nothing.
///
/// For [`SequenceClassificationItem`](crate::training::SequenceClassificationItem) with numbers as labels, and for
/// Burn's `RegressionOutput`. With the [similarity](crate::model::Similarity) of pairs of sentences as what is predicted it
/// is the score of sentence-transformers' `EmbeddingSimilarityEvaluator`.
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

impl Score for SpearmanMetric {
    type Input = SpearmanInput;

    fn name(&self) -> MetricName {
        Arc::new("Spearman".to_string())
    }

    fn add(&mut self, input: &SpearmanInput) -> Result<(), TensorReadError> {
        self.predicted.extend(input.predicted.clone().try_into_data()?.iter::<f64>());
        self.truth.extend(input.truth.clone().try_into_data()?.iter::<f64>());
        Ok(())
    }

    fn score(&self) -> Result<f64, TensorReadError> {
        Ok(spearman(&self.predicted, &self.truth))
    }

    fn count(&self) -> Option<usize> {
        None
    }

    fn forget(&mut self) {
        *self = Self::default();
    }
}
numeric!(SpearmanMetric);
