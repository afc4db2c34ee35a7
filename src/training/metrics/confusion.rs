//! What was predicted for what, and the scores that follow.

use super::super::label_names::LabelNames;
use std::collections::BTreeMap;
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
    /// By true and predicted class, where it is not 0.
    counts: BTreeMap<(usize, usize), u64>,
}

/// How often a class was right, present and predicted.
#[derive(Clone, Copy, Default)]
struct Class {
    correct: u64,
    present: u64,
    predicted: u64,
}

impl Class {
    fn f1(self) -> f64 {
        match self.present + self.predicted {
            0 => 0.0,
            both => 2.0 * self.correct as f64 / both as f64,
        }
    }
}

impl ConfusionMatrix {
    /// Counts one prediction.
    pub fn add(&mut self, truth: usize, predicted: usize) {
        *self.counts.entry((truth, predicted)).or_default() += 1;
    }

    /// How often `predicted` was predicted for `truth`.
    pub fn count(&self, truth: usize, predicted: usize) -> u64 {
        self.counts.get(&(truth, predicted)).copied().unwrap_or(0)
    }

    /// The number of classes: one more than the largest that was seen.
    pub fn num_classes(&self) -> usize {
        let largest = self.counts.keys().map(|&(truth, predicted)| truth.max(predicted)).max();
        largest.map_or(0, |largest| largest.saturating_add(1))
    }

    /// The number of predictions.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The classes that were present or predicted.
    fn classes(&self) -> BTreeMap<usize, Class> {
        let mut classes = BTreeMap::<usize, Class>::new();
        for (&(truth, predicted), count) in &self.counts {
            classes.entry(truth).or_default().present += count;
            classes.entry(predicted).or_default().predicted += count;
            if truth == predicted {
                classes.entry(truth).or_default().correct += count;
            }
        }
        classes
    }

    /// The share of predictions that are right; NaN if there is none.
    pub fn accuracy(&self) -> f64 {
        let correct: u64 = self.classes().values().map(|class| class.correct).sum();
        correct as f64 / self.total() as f64
    }

    /// 2·TP / (2·TP + FP + FN) of a class; 0 if it was neither present nor predicted.
    pub fn f1(&self, class: usize) -> f64 {
        self.classes().get(&class).map_or(0.0, |class| class.f1())
    }

    /// The mean of [`f1`](Self::f1) over the classes that were present or predicted (scikit-learn's
    /// `f1_score(average="macro")`, 1.9); NaN if there is no prediction.
    pub fn macro_f1(&self) -> f64 {
        let classes = self.classes();
        classes.values().map(|class| class.f1()).sum::<f64>() / classes.len() as f64
    }

    /// The Matthews correlation, for any number of classes: (c·s − Σ pₖ·tₖ) / √((s² − Σ pₖ²)·(s² − Σ tₖ²)), with c of s
    /// predictions right, class k present tₖ times and predicted pₖ times; 0 where that is 0/0 (scikit-learn's
    /// `matthews_corrcoef`, 1.9).
    pub fn matthews(&self) -> f64 {
        let classes = self.classes();
        let sum = |f: fn(&Class) -> f64| classes.values().map(f).sum::<f64>();
        let total = self.total() as f64;
        let covariance = sum(|class| class.correct as f64) * total
            - sum(|class| class.present as f64 * class.predicted as f64);
        let of_truths = total * total - sum(|class| (class.present as f64).powi(2));
        let of_predictions = total * total - sum(|class| (class.predicted as f64).powi(2));
        match of_truths * of_predictions {
            0.0 => 0.0,
            product => covariance / product.sqrt(),
        }
    }

    /// A table with a line for each true class, its F1 at the end.
    pub fn to_text(&self, names: &LabelNames) -> String {
        let (classes, scores) = (self.num_classes().max(names.len()), self.classes());
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
            let _ = writeln!(text, " | {:>6.4}", scores.get(&truth).map_or(0.0, |class| class.f1()));
        }
        text
    }
}

/// Spearman's rank correlation of two lists of numbers, where equal numbers share the mean of their ranks; NaN if one
/// of them is constant or has a NaN (SciPy's `spearmanr`, 1.17).
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
    if first.iter().chain(second).any(|value| value.is_nan()) {
        return f64::NAN;
    }
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
