use super::entities::EntityCounts;
use super::epoch_metric::{Collected, EpochMetric, classes, has_nan};
use crate::error::shown;
use burn::tensor::TensorReadError;
use burn::train::metric::ConfusionStatsInput;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The confusion matrix: how often each class was predicted for each true class.
///
/// ```
/// use burn_bert::metrics::ConfusionMatrix;
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
    /// The counts that are not 0, by true and predicted class: a token's class can be any of a vocabulary.
    counts: BTreeMap<(usize, usize), u64>,
    /// The classes that were present or predicted. Scores are read several times a batch, and there may be a million pairs.
    classes: BTreeMap<usize, EntityCounts>,
}

impl ConfusionMatrix {
    /// Counts one prediction.
    pub fn add(&mut self, truth: usize, predicted: usize) {
        *self.counts.entry((truth, predicted)).or_default() += 1;
        self.classes.entry(truth).or_default().present += 1;
        self.classes.entry(predicted).or_default().predicted += 1;
        if truth == predicted {
            self.classes.entry(truth).or_default().correct += 1;
        }
    }

    /// How often `predicted` was predicted for `truth`.
    pub fn count(&self, truth: usize, predicted: usize) -> u64 {
        self.counts.get(&(truth, predicted)).copied().unwrap_or(0)
    }

    /// The number of classes: one more than the largest that was seen.
    pub fn num_classes(&self) -> usize {
        // Saturating: any number can be a class.
        self.classes.last_key_value().map_or(0, |(largest, _)| largest.saturating_add(1))
    }

    /// The number of predictions.
    pub fn total(&self) -> u64 {
        self.classes.values().map(|class| class.present).sum()
    }

    /// The share of predictions that are right; NaN if there is none.
    pub fn accuracy(&self) -> f64 {
        let correct: u64 = self.classes.values().map(|class| class.correct).sum();
        correct as f64 / self.total() as f64
    }

    /// 2·TP / (2·TP + FP + FN) of a class; 0 if it was neither present nor predicted.
    pub fn f1(&self, class: usize) -> f64 {
        self.classes.get(&class).map_or(0.0, |class| class.f1())
    }

    /// The mean [`f1`](Self::f1) of the classes that were present or predicted (scikit-learn's
    /// `f1_score(average="macro")`, 1.9); NaN without a prediction.
    pub fn macro_f1(&self) -> f64 {
        self.classes.values().map(|class| class.f1()).sum::<f64>() / self.classes.len() as f64
    }

    /// The Matthews correlation, (c·s − Σ pₖ·tₖ) / √((s² − Σ pₖ²)·(s² − Σ tₖ²)), with c of s predictions right, class k
    /// present tₖ times and predicted pₖ times; 0 where that is 0/0 (scikit-learn's `matthews_corrcoef`, 1.9).
    pub fn matthews(&self) -> f64 {
        let sum = |f: fn(&EntityCounts) -> f64| self.classes.values().map(f).sum::<f64>();
        let total = self.total() as f64;
        // In floats: products of counts overflow 64 bits.
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
    pub fn to_text(&self, names: &[String]) -> String {
        let classes = self.num_classes().max(names.len());
        // Names are often those of a file, and the table is printed.
        let name = |class: usize| names.get(class).map_or_else(|| class.to_string(), |name| shown(name));
        // At least as wide as the heading, and a class that no name is known of keeps its number.
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

/// A score of a whole epoch's predictions, of its [`ConfusionMatrix`] and not a mean over batches.
///
/// For [`ClassificationItem`](crate::training::ClassificationItem) with one class per row, and
/// Burn's `ClassificationOutput`. It follows scikit-learn, where Burn's `FBetaScoreMetric` is NaN as soon as a class is
/// neither present nor predicted. It is NaN for an epoch with a logit that is NaN, which predicts no class.
pub type ConfusionMetric = EpochMetric<ConfusionMatrix>;

impl ConfusionMetric {
    /// The mean F1 of all classes, [`ConfusionMatrix::macro_f1`].
    pub fn macro_f1() -> Self {
        Self::scored("F1", ConfusionMatrix::default(), |matrix| Ok(matrix.macro_f1()))
    }

    /// The F1 of one class, [`ConfusionMatrix::f1`].
    pub fn f1(class: usize, name: &str) -> Self {
        Self::scored(&format!("F1 of {name}"), ConfusionMatrix::default(), move |matrix| Ok(matrix.f1(class)))
    }

    /// The Matthews correlation, [`ConfusionMatrix::matthews`].
    pub fn matthews() -> Self {
        Self::scored("Matthews", ConfusionMatrix::default(), |matrix| Ok(matrix.matthews()))
    }
}

impl Collected for ConfusionMatrix {
    type Input = ConfusionStatsInput;

    fn add(&mut self, input: &ConfusionStatsInput) -> Result<bool, TensorReadError> {
        let predicted = classes(input.predictions.clone())?;
        // One-hot, so the largest is the class.
        let truth = classes(input.targets.clone().float())?;
        for (truth, predicted) in truth.into_iter().zip(predicted) {
            ConfusionMatrix::add(self, truth as usize, predicted as usize);
        }
        has_nan(&input.predictions)
    }

    fn count(&self) -> Option<usize> {
        Some(self.total() as usize)
    }
}
