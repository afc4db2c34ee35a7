use super::entities::EntityCounts;
use super::epoch_metric::{Collected, EpochMetric, has_nan};
use burn::prelude::*;
use burn::tensor::TensorReadError;

/// Precision, recall and F1 of texts that have any number of labels.
///
/// ```
/// use burn_bert::metrics::LabelScores;
///
/// let mut scores = LabelScores::default();
/// for (truth, predicted) in [([true, false], [true, true]), ([true, true], [true, false])] {
///     scores.add(&truth, &predicted);
/// }
/// assert_eq!((scores.labels()[0].f1(), scores.labels()[1].f1()), (1.0, 0.0));
/// assert_eq!((scores.micro().recall(), scores.macro_f1()), (2.0 / 3.0, 0.5));
/// ```
///
/// A score that is 0/0 is 0. Source: `precision_recall_fscore_support(zero_division=0)` of scikit-learn, 1.9.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelScores {
    labels: Vec<EntityCounts>,
    rows: usize,
}

impl LabelScores {
    /// Counts a text, given whether it has each label. Panics if the labels are not as many as before.
    pub fn add(&mut self, truth: &[bool], predicted: &[bool]) {
        if self.rows == 0 {
            self.labels = vec![EntityCounts::default(); truth.len()];
        }
        assert_eq!(
            [truth.len(), predicted.len()],
            [self.labels.len(); 2],
            "each text must have the same labels"
        );
        for (counts, (&truth, &predicted)) in self.labels.iter_mut().zip(truth.iter().zip(predicted)) {
            counts.present += u64::from(truth);
            counts.predicted += u64::from(predicted);
            counts.correct += u64::from(truth && predicted);
        }
        self.rows += 1;
    }

    /// How often each label was present, predicted, and both.
    pub fn labels(&self) -> &[EntityCounts] {
        &self.labels
    }

    /// The counts of all labels together, whose scores are the micro averages.
    pub fn micro(&self) -> EntityCounts {
        let sum = |count: fn(&EntityCounts) -> u64| self.labels.iter().map(count).sum();
        EntityCounts {
            correct: sum(|counts| counts.correct),
            present: sum(|counts| counts.present),
            predicted: sum(|counts| counts.predicted),
        }
    }

    /// The mean F1 of all labels; NaN without a text.
    pub fn macro_f1(&self) -> f64 {
        self.labels.iter().map(|counts| counts.f1()).sum::<f64>() / self.labels.len() as f64
    }
}

/// The probability from which on a label has the best F1, given its probability in each text and whether the text has it: halfway
/// between two of them. Of equal F1 it is the highest such; 0.5 if no text has the label.
///
/// ```
/// use burn_bert::metrics::best_threshold;
///
/// let threshold = best_threshold(&[0.9, 0.25, 0.125, 0.0625], &[true, true, false, false]);
/// assert_eq!(threshold, 0.1875);
/// ```
///
/// Source: `find_best_f1_and_threshold` of sentence-transformers 6.2's `BinaryClassificationEvaluator`, of which the threshold below
/// all probabilities is the least of them.
pub fn best_threshold(probabilities: &[f64], truth: &[bool]) -> f64 {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
    let present = truth.iter().filter(|has| **has).count() as u64;
    let (mut correct, mut best) = (0, (0.0, 0.5));
    for (rank, &text) in order.iter().enumerate() {
        correct += u64::from(truth[text]);
        let (least, below) =
            (probabilities[text], order.get(rank + 1).map_or(0.0, |&next| probabilities[next]));
        let f1 = EntityCounts { correct, present, predicted: rank as u64 + 1 }.f1();
        // A threshold cannot tell equal ones apart.
        if f1 > best.0 && below < least {
            let halfway = (least + below) / 2.0;
            // Of neighbouring numbers it may be the one below.
            best = (f1, if halfway > below { halfway } else { least });
        }
    }
    // So that it has finite odds.
    best.1.clamp(1e-9, 1.0 - 1e-9)
}

/// A score of a whole epoch's predictions of any number of labels, of their [`LabelScores`], in Burn's trainer. A label is
/// predicted whose sigmoid is at least 0.5; of a model with thresholds, its probability at least the threshold.
pub type LabelMetric = EpochMetric<LabelScores>;

impl LabelMetric {
    fn by(name: &str, score: impl Fn(&LabelScores) -> f64 + Send + Sync + 'static) -> Self {
        // Without a text there is no score, where a count of 0/0 would be one.
        let score = move |all: &LabelScores| Ok(if all.rows == 0 { f64::NAN } else { score(all) });
        Self::scored(name, LabelScores::default(), score)
    }

    /// The F1 of all labels together.
    pub fn micro_f1() -> Self {
        Self::by("Micro F1", |scores| scores.micro().f1())
    }

    /// The share of predicted labels that are right.
    pub fn micro_precision() -> Self {
        Self::by("Micro precision", |scores| scores.micro().precision())
    }

    /// The share of labels that were predicted.
    pub fn micro_recall() -> Self {
        Self::by("Micro recall", |scores| scores.micro().recall())
    }

    /// The mean F1 of all labels, [`LabelScores::macro_f1`].
    pub fn macro_f1() -> Self {
        Self::by("Macro F1", LabelScores::macro_f1)
    }

    /// The F1 of one label.
    pub fn f1(label: usize, name: &str) -> Self {
        let score =
            move |scores: &LabelScores| scores.labels.get(label).map_or(f64::NAN, |counts| counts.f1());
        Self::by(&format!("F1 of {name}"), score)
    }
}

/// The input of [`LabelMetric`], for [`LabelScores`].
#[derive(Clone, Debug)]
pub struct LabelInput {
    /// The logits of each label, [N, C].
    pub logits: Tensor<2>,
    /// Whether each label is there, [N, C]: at least 0.5 if it is.
    pub targets: Tensor<2>,
}

impl Collected for LabelScores {
    type Input = LabelInput;

    fn add(&mut self, input: &LabelInput) -> Result<bool, TensorReadError> {
        let [rows, labels] = input.logits.dims();
        // Of tensors without rows some devices compute nothing.
        if rows == 0 {
            return Ok(false);
        }
        // A probability of 0.5 is a logit of 0.
        let predicted = input.logits.clone().greater_equal_elem(0).try_into_data()?;
        let truth = input.targets.clone().greater_equal_elem(0.5).try_into_data()?;
        let [truth, predicted] = [truth, predicted].map(|marks| marks.iter::<bool>().collect::<Vec<_>>());
        for (truth, predicted) in truth.chunks(labels).zip(predicted.chunks(labels)) {
            LabelScores::add(self, truth, predicted);
        }
        has_nan(&input.logits)
    }

    fn count(&self) -> Option<usize> {
        Some(self.rows)
    }
}
