//! Named entities in texts, from a classifier of tokens.

use super::{Pipeline, TextOptions, softmax};
use crate::error::{Error, Result};
use crate::model::BertForTokenClassification;
use crate::text::Encoding;

/// How the predictions for tokens become entities: transformers' aggregation strategies. See [`Pipeline::entities`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Each token is an entity, whose label has its prefix, such as `B-PER`.
    None,
    /// Adjacent tokens of one type are an entity, up to the next `B-`. The tokens of a word may be in different ones.
    Simple,
    /// A word has the label and the score of its first token; adjacent words of one type are an entity. For models whose
    /// training labelled the first token of each word, as `LabelledTokens::batch` does.
    #[default]
    First,
    /// A word has the label with the highest mean score over its tokens.
    Average,
    /// A word has the label and the score of its token with the highest score.
    Max,
}

impl Aggregation {
    /// The label of a word and its score, given the scores of all labels for each of its tokens. Of equal scores, the first
    /// counts.
    fn label_of(self, tokens: &[Vec<f64>]) -> (usize, f64) {
        let mean =
            |label: usize| tokens.iter().map(|scores| scores[label]).sum::<f64>() / tokens.len() as f64;
        let labels = 0..tokens[0].len();
        match self {
            Self::Average => best(labels.map(|label| (label, mean(label)))),
            Self::Max => best(tokens.iter().flat_map(|scores| scores.iter().copied().enumerate())),
            Self::None | Self::Simple | Self::First => best(tokens[0].iter().copied().enumerate()),
        }
    }
}

fn best(scored: impl Iterator<Item = (usize, f64)>) -> (usize, f64) {
    scored.reduce(|a, b| if b.1 > a.1 { b } else { a }).expect("a model has at least one label")
}

/// A part of a text with a label. Returned by [`Pipeline::entities`].
#[derive(Clone, Debug, PartialEq)]
pub struct Entity {
    /// The part of the text.
    pub text: String,
    /// Its first byte: the part is `&text[start..end]`. (transformers counts characters.)
    pub start: usize,
    /// The byte after it.
    pub end: usize,
    /// The label: a type, such as `PER` of `B-PER` and `I-PER`, or with [`Aggregation::None`] the token's.
    pub label: String,
    /// The probability of the label, the mean over its tokens or words.
    pub score: f64,
}

impl Pipeline<BertForTokenClassification> {
    /// Named entities of each text (NER), in their order; spans, labels and scores match transformers' `token-classification`
    /// pipeline.
    ///
    /// Labels are IOB1 or IOB2: `B-X` begins an entity of the type X; `I-X`, or `X`, continues one and begins one after
    /// anything else. Another prefix, such as `E-` and `S-` of BIOES, makes a separate entity, as there. A text longer than
    /// the model reads is read in windows that share `stride` tokens, by default 0: no entity of at most this length is cut in
    /// two. Of entities that overlap, the one with the most characters remains, and of those the one with the highest score.
    /// Reads `stride`, `aggregation` and `ignored_labels`. Errors are those of [every method](Pipeline#errors), of
    /// [`encode_windows`](crate::text::BertTokenizer::encode_windows), and [`Error::Config`] with a stride and
    /// [`Aggregation::None`], which would return tokens twice.
    ///
    /// Source: `TokenClassificationPipeline` of transformers 5.23.
    pub fn entities<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Vec<Entity>>> {
        options.check("entities", &["stride", "aggregation", "ignored_labels"])?;
        let aggregation = options.aggregation.unwrap_or_default();
        let stride = options.stride.unwrap_or(0);
        if aggregation == Aggregation::None && stride > 0 {
            let problem =
                "is not 0, but without aggregation the tokens of two windows would be returned twice";
            return Err(Error::config("stride", problem));
        }
        let ignored_labels = options.ignored_labels.clone().unwrap_or_else(|| vec!["O".into()]);
        let found = self.of_windows(
            texts,
            options,
            |text| self.tokenizer.encode_windows(text.as_ref(), stride),
            |batch| self.model.logits(&batch.input, batch.padding.as_ref()),
            |index, window, logits| {
                let mut entities = self.of_window(window, texts[index].as_ref(), logits, aggregation);
                entities.retain(|entity| !ignored_labels.contains(&entity.label));
                entities
            },
        )?;
        let of_text = |mut windows: Vec<Vec<Entity>>| match windows.len() {
            1 => windows.remove(0),
            // The tokens of one character, as byte-level tokenizers have them, are different tokens.
            _ if aggregation == Aggregation::None => windows.concat(),
            _ => without_overlap(windows.concat()),
        };
        Ok(found.into_iter().map(of_text).collect())
    }

    fn of_window(
        &self,
        window: &Encoding,
        text: &str,
        logits: &[f64],
        aggregation: Aggregation,
    ) -> Vec<Entity> {
        let logits: Vec<&[f64]> = logits.chunks(self.model.id2label().len()).collect();
        // The tokenizer's own tokens are no part of the text.
        let tokens = (0..window.len()).filter(|&token| !window.special_tokens_mask()[token]);
        let tokens: Vec<usize> = tokens.collect();
        let continues_word = |token: usize| {
            let (start, end) = window.offsets()[token];
            self.tokenizer.continues_word(window.input_ids()[token], text, start, end)
        };
        // The other two label tokens, so that a word may be cut.
        let labels_words = !matches!(aggregation, Aggregation::None | Aggregation::Simple);
        let words = tokens.chunk_by(|_, &token| labels_words && continues_word(token));
        let labelled = words.map(|word| {
            let (start, end) = (window.offsets()[word[0]].0, window.offsets()[word[word.len() - 1]].1);
            let scores: Vec<Vec<f64>> = word.iter().map(|&token| softmax(logits[token])).collect();
            let (id, score) = aggregation.label_of(&scores);
            let label = self.model.id2label()[id].clone();
            Entity { text: text[start..end].into(), start, end, label, score }
        });
        // Collected, as entities are joined from slices of it.
        let labelled: Vec<Entity> = labelled.collect();
        if aggregation == Aggregation::None {
            return labelled;
        }
        let continues = |before: &Entity, part: &Entity| {
            !part.label.starts_with("B-") && tag(&before.label) == tag(&part.label)
        };
        let joined = |parts: &[Entity]| {
            let (start, end) = (parts[0].start, parts[parts.len() - 1].end);
            let score = parts.iter().map(|part| part.score).sum::<f64>() / parts.len() as f64;
            // "MISC-1" is of the type "1", as in transformers.
            let label = parts[0].label.split_once('-').map_or(&*parts[0].label, |(_, kind)| kind);
            Entity { text: text[start..end].into(), start, end, label: label.into(), score }
        };
        labelled.chunk_by(continues).map(joined).collect()
    }
}

fn without_overlap(mut entities: Vec<Entity>) -> Vec<Entity> {
    // Stable: of equal starts, the entity of the earlier window comes first, as in transformers.
    entities.sort_by_key(|entity| entity.start);
    let mut kept: Vec<Entity> = Vec::new();
    for entity in entities {
        // In characters, as transformers has it: bytes would prefer other scripts.
        let length = |entity: &Entity| entity.text.chars().count();
        match kept.last_mut().filter(|last| entity.start < last.end) {
            Some(last) => {
                if (length(&entity), entity.score) > (length(last), last.score) {
                    *last = entity;
                }
            }
            None => kept.push(entity),
        }
    }
    kept
}

/// The type of a label, without `B-` or `I-`.
fn tag(label: &str) -> &str {
    label.strip_prefix("B-").or_else(|| label.strip_prefix("I-")).unwrap_or(label)
}
