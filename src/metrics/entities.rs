use super::epoch_metric::{Collected, EpochMetric, classes, has_nan};
use crate::pipeline::{entity_spans, split, tag};
use burn::prelude::*;
use burn::tensor::TensorReadError;
use std::collections::{BTreeMap, BTreeSet};

/// How many entities were found, of how many. Of [`EntityScores`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntityCounts {
    /// Predicted entities that are present, with the same borders and type.
    pub correct: u64,
    /// Entities that are there.
    pub present: u64,
    /// Predicted entities.
    pub predicted: u64,
}

impl EntityCounts {
    /// The share of predicted entities that are right; 0 if none was predicted.
    pub fn precision(self) -> f64 {
        ratio(self.correct, self.predicted)
    }

    /// The share of the entities that were found; 0 if there are none.
    pub fn recall(self) -> f64 {
        ratio(self.correct, self.present)
    }

    /// The harmonic mean of precision and recall: 2·correct / (present + predicted); 0 without an entity.
    pub fn f1(self) -> f64 {
        ratio(2 * self.correct, self.present + self.predicted)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Precision, recall and F1 of whole entities: an entity is right if its first word, its last word and its type are.
///
/// ```
/// use burn_bert::metrics::EntityScores;
///
/// let mut scores = EntityScores::default();
/// scores.add(&["B-PER", "I-PER", "O", "B-LOC"], &["B-PER", "I-PER", "O", "B-PER"]);
/// assert_eq!(scores.total().f1(), 0.5);
/// assert_eq!((scores.counts("PER").precision(), scores.counts("PER").recall()), (0.5, 1.0));
/// ```
///
/// Tags are those of IOB1, IOB2, IOE, BIOES and BILOU: an entity also begins at an `I` that follows another type or none.
/// Source: `precision_score`, `recall_score` and `f1_score` of seqeval 1.2.2, default mode (that of `conlleval`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityScores {
    types: BTreeMap<String, EntityCounts>,
}

impl EntityScores {
    /// Counts the entities of a sentence, given the true and the predicted tag of each word. Panics if the tags differ
    /// in number.
    pub fn add(&mut self, truth: &[&str], predicted: &[&str]) {
        assert_eq!(truth.len(), predicted.len(), "each word must have a true and a predicted tag");
        // As sets, whose intersection is what was found.
        let (truth, predicted) = (entities(truth), entities(predicted));
        let mut counts = |kind: &str, count: fn(&mut EntityCounts)| {
            count(self.types.entry(kind.to_string()).or_default());
        };
        truth.iter().for_each(|(kind, ..)| counts(kind, |counts| counts.present += 1));
        predicted.iter().for_each(|(kind, ..)| counts(kind, |counts| counts.predicted += 1));
        truth.intersection(&predicted).for_each(|(kind, ..)| counts(kind, |counts| counts.correct += 1));
    }

    /// The types that were present or predicted, and how many entities of each.
    pub fn types(&self) -> &BTreeMap<String, EntityCounts> {
        &self.types
    }

    /// The entities of a type.
    pub fn counts(&self, kind: &str) -> EntityCounts {
        self.types.get(kind).copied().unwrap_or_default()
    }

    /// The entities of all types (seqeval's `average="micro"`).
    pub fn total(&self) -> EntityCounts {
        self.types.values().fold(EntityCounts::default(), |sum, counts| EntityCounts {
            correct: sum.correct + counts.correct,
            present: sum.present + counts.present,
            predicted: sum.predicted + counts.predicted,
        })
    }
}

fn entities<'a>(tags: &[&'a str]) -> BTreeSet<(&'a str, usize, usize)> {
    let spans = entity_spans(tags.iter().map(|tag| parts(tag))).into_iter();
    spans.map(|(kind, words)| (kind, words.start, words.end)).collect()
}

/// The first character of a tag, and what follows its hyphen; without one, what follows the character.
fn parts(label: &str) -> (char, &str) {
    // BILOU's letters, which seqeval reads in strict mode alone.
    if label.starts_with(['L', 'U', 'M', 'W']) && split(label).0.len() == 1 {
        return tag(label, true);
    }
    let mut rest = label.chars();
    let prefix = rest.next().unwrap_or('O');
    let rest = rest.as_str();
    match rest.split_once('-').map_or(rest, |(_, kind)| kind) {
        "" => (prefix, "_"),
        kind => (prefix, kind),
    }
}

/// A score of the whole entities in an epoch's predictions, [`EntityScores`], in Burn's trainer.
///
/// For [`ClassificationItem`](crate::training::ClassificationItem); it is NaN for an epoch with a logit that is NaN.
pub type EntityMetric = EpochMetric<(EntityScores, Vec<String>)>;

impl EntityMetric {
    /// The F1 of all entities, [`EntityCounts::f1`].
    pub fn f1(names: &[String]) -> Self {
        Self::counted("Entity F1", EntityCounts::f1, names)
    }

    /// The precision of all entities, [`EntityCounts::precision`].
    pub fn precision(names: &[String]) -> Self {
        Self::counted("Entity precision", EntityCounts::precision, names)
    }

    /// The recall of all entities, [`EntityCounts::recall`].
    pub fn recall(names: &[String]) -> Self {
        Self::counted("Entity recall", EntityCounts::recall, names)
    }

    fn counted(name: &str, score: fn(EntityCounts) -> f64, names: &[String]) -> Self {
        let empty = (EntityScores::default(), names.to_vec());
        Self::scored(name, empty, move |(entities, _)| Ok(score(entities.total())))
    }
}

/// The input of [`EntityMetric`] for [`EntityScores`]: N words that have a label.
#[derive(Clone, Debug)]
pub struct EntityInput {
    /// Scores of each label, [N, C].
    pub logits: Tensor<2>,
    /// The labels, `[N]`.
    pub labels: Tensor<1, Int>,
    /// The sentence of each word; those of one sentence are adjacent.
    pub sentences: Vec<usize>,
}

impl Collected for (EntityScores, Vec<String>) {
    type Input = EntityInput;

    fn add(&mut self, input: &EntityInput) -> Result<bool, TensorReadError> {
        // A batch without labels, whose tensors are empty.
        if input.sentences.is_empty() {
            return has_nan(&input.logits);
        }
        let predicted = classes(input.logits.clone())?;
        let labels = input.labels.clone().try_into_data()?;
        let (entities, names) = self;
        // A label without a name is not an entity.
        let name =
            |id: i64| usize::try_from(id).ok().and_then(|id| names.get(id)).map_or("O", String::as_str);
        let words = input.sentences.iter().zip(labels.iter::<i64>()).zip(predicted);
        // Collected, as sentences are slices of it.
        let words: Vec<_> = words.map(|((index, truth), found)| (index, name(truth), name(found))).collect();
        for sentence in words.chunk_by(|a, b| a.0 == b.0) {
            let (truth, found): (Vec<_>, Vec<_>) = sentence.iter().map(|word| (word.1, word.2)).unzip();
            entities.add(&truth, &found);
        }
        has_nan(&input.logits)
    }

    fn count(&self) -> Option<usize> {
        Some(self.0.total().present as usize)
    }
}
