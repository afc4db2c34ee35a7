use super::epoch_metric::{Collected, EpochMetric};
use burn::prelude::*;
use burn::tensor::TensorReadError;
use burn::train::RegressionOutput;
use burn::train::metric::Adaptor;

/// Spearman's rank correlation of two lists of numbers, where equal numbers share the mean of their ranks; NaN if one
/// of them is constant or has a NaN (SciPy's `spearmanr`, 1.17). Panics if the lists differ in length.
///
/// ```
/// assert_eq!(burn_bert::metrics::spearman(&[1.0, 2.0, 3.0], &[0.1, 0.2, 10.0]), 1.0);
/// ```
pub fn spearman(first: &[f64], second: &[f64]) -> f64 {
    assert_eq!(first.len(), second.len(), "both lists must have the same length");
    if first.iter().chain(second).any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let (first, second) = (ranks(first), ranks(second));
    // That of the ranks 1 to n, which ties do not change.
    let mean = (first.len() as f64 + 1.0) / 2.0;
    let products =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum() };
    // Ranks have one mean, so Pearson's formula needs no other sums; 0/0 is NaN where a list is constant.
    products(&first, &second) / (products(&first, &first) * products(&second, &second)).sqrt()
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    // Without NaN total order is that of the numbers, but −0 comes before 0; they are equal below.
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut rank = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let mean = rank as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&index| ranks[index] = mean);
        rank += equal.len();
    }
    ranks
}

/// [`spearman`] of the predicted and true numbers of a whole epoch, computed at its end.
///
/// For [`ClassificationItem`](crate::training::ClassificationItem) with numbers as labels, and Burn's
/// `RegressionOutput`. With the [similarity](crate::model::Similarity) of sentence pairs as the prediction it is the score of
/// sentence-transformers' `EmbeddingSimilarityEvaluator`.
pub type SpearmanMetric = EpochMetric<[Vec<f64>; 2]>;

impl SpearmanMetric {
    /// Creates the metric.
    pub fn new() -> Self {
        Self::scored("Spearman", Default::default(), |[predicted, truth]| Ok(spearman(predicted, truth)))
    }
}

impl Default for SpearmanMetric {
    fn default() -> Self {
        Self::new()
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

impl Collected for [Vec<f64>; 2] {
    type Input = SpearmanInput;

    fn add(&mut self, input: &SpearmanInput) -> Result<bool, TensorReadError> {
        let [predicted, truth] = self;
        predicted.extend(input.predicted.clone().try_into_data()?.iter::<f64>());
        truth.extend(input.truth.clone().try_into_data()?.iter::<f64>());
        Ok(false)
    }
}
