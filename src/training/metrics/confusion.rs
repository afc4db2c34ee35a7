//! What was predicted for what, and the scores that follow.

use super::super::label_names::LabelNames;
use std::fmt::Write;

/// The confusion matrix: how often each class was predicted for each true class.
///
/// ```
/// use burn_bert::training::ConfusionMatrix;
///
/// let mut matrix = ConfusionMatrix::default();
/// for (truth, predicted) in [(0, 0), (0, 1), (1, 1), (1, 1)] {
///     matrix.add(truth, predicted);
/// }
/// assert_eq!(matrix.accuracy(), 0.75);
/// assert_eq!(matrix.f1(1), 0.8); // precision 2/3, recall 1
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfusionMatrix {
    /// By true class, then by predicted class.
    counts: Vec<Vec<u64>>,
}

impl ConfusionMatrix {
    /// Counts one prediction.
    pub fn add(&mut self, truth: usize, predicted: usize) {
        let classes = self.counts.len().max(truth.max(predicted) + 1);
        self.counts.resize_with(classes, Vec::new);
        self.counts.iter_mut().for_each(|row| row.resize(classes, 0));
        self.counts[truth][predicted] += 1;
    }

    /// How often `predicted` was predicted for `truth`.
    pub fn count(&self, truth: usize, predicted: usize) -> u64 {
        self.counts.get(truth).and_then(|row| row.get(predicted)).copied().unwrap_or(0)
    }

    /// The number of classes: one more than the largest that was seen.
    pub fn num_classes(&self) -> usize {
        self.counts.len()
    }

    /// The number of predictions.
    pub fn total(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    fn truths(&self, class: usize) -> u64 {
        (0..self.num_classes()).map(|predicted| self.count(class, predicted)).sum()
    }

    fn predictions(&self, class: usize) -> u64 {
        (0..self.num_classes()).map(|truth| self.count(truth, class)).sum()
    }

    fn correct(&self) -> u64 {
        (0..self.num_classes()).map(|class| self.count(class, class)).sum()
    }

    /// The share of predictions that are right; NaN if there is none.
    pub fn accuracy(&self) -> f64 {
        self.correct() as f64 / self.total() as f64
    }

    /// 2·TP / (2·TP + FP + FN) of a class; 0 if it was neither present nor predicted.
    pub fn f1(&self, class: usize) -> f64 {
        match self.truths(class) + self.predictions(class) {
            0 => 0.0,
            both => 2.0 * self.count(class, class) as f64 / both as f64,
        }
    }

    /// The mean of [`f1`](Self::f1) over the classes that were present or predicted (scikit-learn's
    /// `f1_score(average="macro")`, 1.9); NaN if there is no prediction.
    pub fn macro_f1(&self) -> f64 {
        let seen = |class: &usize| self.truths(*class) + self.predictions(*class) > 0;
        let scores: Vec<f64> = (0..self.num_classes()).filter(seen).map(|class| self.f1(class)).collect();
        scores.iter().sum::<f64>() / scores.len() as f64
    }

    /// The Matthews correlation, for any number of classes: (c·s − Σ pₖ·tₖ) / √((s² − Σ pₖ²)·(s² − Σ tₖ²)), with c of s
    /// predictions right, class k present tₖ times and predicted pₖ times; 0 where that is 0/0 (scikit-learn's
    /// `matthews_corrcoef`, 1.9).
    pub fn matthews(&self) -> f64 {
        let sum_over = |product: &dyn Fn(usize) -> f64| (0..self.num_classes()).map(product).sum::<f64>();
        let (truths, predictions) = (|k| self.truths(k) as f64, |k| self.predictions(k) as f64);
        let total = self.total() as f64;
        let covariance = self.correct() as f64 * total - sum_over(&|k| truths(k) * predictions(k));
        let of_truths = total * total - sum_over(&|k| truths(k) * truths(k));
        let of_predictions = total * total - sum_over(&|k| predictions(k) * predictions(k));
        match of_truths * of_predictions {
            0.0 => 0.0,
            product => covariance / product.sqrt(),
        }
    }

    /// A table with a line for each true class, its F1 at the end.
    pub fn to_text(&self, names: &LabelNames) -> String {
        let classes = self.num_classes().max(names.len());
        let name = |class: usize| names.name(class).map_or(format!("{class}"), str::to_string);
        let width = (0..classes).map(|class| name(class).chars().count()).max().unwrap_or(0).max(9);
        let mut text = format!("{:>width$} |", "predicted");
        for class in 0..classes {
            let _ = write!(text, " {:>width$}", name(class));
        }
        let _ = writeln!(text, " | {:>6}", "F1");
        for truth in 0..classes {
            let _ = write!(text, "{:>width$} |", name(truth));
            for predicted in 0..classes {
                let _ = write!(text, " {:>width$}", self.count(truth, predicted));
            }
            let _ = writeln!(text, " | {:>6.4}", self.f1(truth));
        }
        text
    }
}

/// Spearman's rank correlation of two lists of numbers, where equal numbers share the mean of their ranks; NaN if one
/// of them is constant (SciPy's `spearmanr`, 1.17).
///
/// ```
/// assert_eq!(burn_bert::training::spearman(&[1.0, 2.0, 3.0], &[0.1, 0.2, 10.0]), 1.0);
/// ```
///
/// # Panics
///
/// Panics if the lists differ in length.
pub fn spearman(first: &[f64], second: &[f64]) -> f64 {
    assert_eq!(first.len(), second.len(), "both lists must have the same length");
    let (first, second) = (ranks(first), ranks(second));
    let mean = (first.len() as f64 + 1.0) / 2.0;
    let products =
        |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum() };
    products(&first, &second) / (products(&first, &first) * products(&second, &second)).sqrt()
}

/// Ranks from 1 on.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut rank = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let mean = rank as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&place| ranks[place] = mean);
        rank += equal.len();
    }
    ranks
}
