//! Named entities in texts, from a classifier of tokens.

use super::{Pipeline, TextOptions, softmax};
use crate::error::{Error, Result};
use crate::model::BertForTokenClassification;
use crate::text::Encoding;
use std::iter::once;
use std::ops::Range;

/// How the predictions for tokens become entities: by words as in training, or by transformers' aggregation strategies. See
/// [`Pipeline::entities`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Words are those of training: Unicode words (UAX #29) with punctuation apart, so that "London." is
    /// two; in scripts without spaces, such as Chinese and Thai, the tokenizer's pieces. A word has the label and the score of its
    /// first token.
    #[default]
    Words,
    /// Each token is an entity, whose label has its prefix, such as `B-PER`.
    None,
    /// Adjacent tokens of one type are an entity, up to the next `B-`. The tokens of a word may be in different ones.
    Simple,
    /// A word has the label and the score of its first token. A word is what transformers takes for one: where the vocabulary has
    /// no prefix such as `##`, all that stands between spaces.
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
            Self::Words | Self::None | Self::Simple | Self::First => {
                best(tokens[0].iter().copied().enumerate())
            }
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
    /// The first byte of the entity, which is `&text[start..end]`. (transformers counts characters.)
    pub start: usize,
    /// The byte after it.
    pub end: usize,
    /// The words that it is of, if words were given.
    pub words: Option<Range<usize>>,
    /// The label: a type, such as `PER` of `B-PER` and `I-PER`, or with [`Aggregation::None`] the token's.
    pub label: String,
    /// The probability of the label, the mean over its tokens or words.
    pub score: f64,
}

/// A word as an entity of its own, and how many tokens of its window come before and after its first one.
type WindowWord = (Entity, usize, usize);

impl Pipeline<BertForTokenClassification> {
    /// Named entities of each text (NER), in their order. Words and their tokens are those of training; with another
    /// [`Aggregation`] spans, labels and scores match transformers' `token-classification` pipeline.
    ///
    /// Labels are IOB1, IOB2, BIOES or BILOU: `B-X` begins an entity of the type X; `I-X`, or `X`, continues one and begins one
    /// after anything else; `E-X` and `L-X` end one; `S-X`, `U-X` and `W-X` are one alone. (transformers knows `B-` and `I-`.) Where
    /// all labels but `O` are such letters alone, entities have the label `_`. A text
    /// longer than the model reads is read in windows that share `stride` tokens, by default 0. A word that two windows have is
    /// read in that where more stands around it. With another aggregation, an entity longer than the stride may be cut in two; of
    /// entities that overlap, the one with the most characters remains, and of those the one with the highest score.
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
        if aggregation == Aggregation::Words {
            let mut found = self.word_entities(texts, options, stride)?;
            found.iter_mut().for_each(|found| found.retain(|entity| !ignored_labels.contains(&entity.label)));
            return Ok(found);
        }
        let found = self.map_windows(
            texts,
            options,
            |text| self.tokenizer.encode_windows(text.as_ref(), stride),
            |batch| self.model.logits(&batch.input, batch.padding.as_ref()),
            |index, window, logits| {
                let mut entities = self.entities_in(window, texts[index].as_ref(), logits, aggregation);
                entities.retain(|entity| !ignored_labels.contains(&entity.label));
                entities
            },
        )?;
        let joined = |mut windows: Vec<Vec<Entity>>| match windows.len() {
            1 => windows.remove(0),
            // The tokens of one character, as byte-level tokenizers have them, are different tokens.
            _ if aggregation == Aggregation::None => windows.concat(),
            _ => without_overlap(windows.concat()),
        };
        Ok(found.into_iter().map(joined).collect())
    }

    /// [`entities`](Self::entities) of texts that are split into words, joined by spaces: of those are `start` and `end`, and
    /// [`Entity::words`] says which words an entity is of.
    pub fn entities_in_words<T: AsRef<[S]>, S: AsRef<str>>(
        &self,
        texts: &[T],
        options: &TextOptions,
    ) -> Result<Vec<Vec<Entity>>> {
        let words = |text: &T| text.as_ref().iter().map(|word| word.as_ref().to_string()).collect::<Vec<_>>();
        let words: Vec<Vec<String>> = texts.iter().map(words).collect();
        let joined: Vec<String> = words.iter().map(|words| words.join(" ")).collect();
        let mut found = self.entities(&joined, options)?;
        for (words, entities) in words.iter().zip(&mut found) {
            let starts = word_starts(words);
            let index = |byte: usize| starts.partition_point(|&start| start <= byte);
            for entity in entities {
                entity.words = Some(index(entity.start) - 1..index(entity.end.max(entity.start + 1) - 1));
            }
        }
        Ok(found)
    }

    /// Entities of all labels by [`Aggregation::Words`].
    fn word_entities<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        options: &TextOptions,
        stride: usize,
    ) -> Result<Vec<Vec<Entity>>> {
        let names = self.model.id2label();
        let windows = self.map_windows(
            texts,
            options,
            |text| self.tokenizer.encode_word_windows(text.as_ref(), stride),
            |batch| self.model.logits(&batch.input, batch.padding.as_ref()),
            |index, window, logits| {
                let text = texts[index].as_ref();
                let logits: Vec<&[f64]> = logits.chunks(names.len()).collect();
                let words = self.tokenizer.words(text, window)?.into_iter().map(|word| {
                    let (id, score) = best(softmax(logits[word.token]).into_iter().enumerate());
                    let (start, end) = (word.bytes.start, word.bytes.end);
                    let part = Entity {
                        text: text[start..end].into(),
                        start,
                        end,
                        words: None,
                        label: names[id].clone(),
                        score,
                    };
                    (part, word.token, window.len() - 1 - word.token)
                });
                Ok(words.collect::<Vec<_>>())
            },
        )?;
        let read_text = |(text, windows): (&T, Vec<Result<Vec<WindowWord>>>)| {
            let mut all: Vec<WindowWord> = Vec::new();
            for (part, before, after) in windows.into_iter().collect::<Result<Vec<_>>>()?.concat() {
                // Of two windows that have a word, that in which it is further from the end.
                let kept = all.partition_point(|(other, ..)| other.start < part.start);
                match all.get(kept) {
                    Some((.., room)) if before > *room => {
                        all.truncate(kept);
                        all.push((part, before, after));
                    }
                    Some(_) => (),
                    None => all.push((part, before, after)),
                }
            }
            let parts: Vec<Entity> = all.into_iter().map(|(part, ..)| part).collect();
            Ok(joined(text.as_ref(), &parts, names))
        };
        texts.iter().zip(windows).map(read_text).collect()
    }

    fn entities_in(
        &self,
        window: &Encoding,
        text: &str,
        logits: &[f64],
        aggregation: Aggregation,
    ) -> Vec<Entity> {
        let logits: Vec<&[f64]> = logits.chunks(self.model.id2label().len()).collect();
        // The tokenizer's own tokens are not part of the text.
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
            Entity { text: text[start..end].into(), start, end, words: None, label, score }
        });
        // Collected, as entities are joined from slices of it.
        let labelled: Vec<Entity> = labelled.collect();
        if aggregation == Aggregation::None {
            return labelled;
        }
        joined(text, &labelled, self.model.id2label())
    }
}

/// The entities of labelled parts of a text.
fn joined(text: &str, parts: &[Entity], names: &[String]) -> Vec<Entity> {
    let has_scheme = has_scheme(names);
    let tags = parts.iter().map(|part| tag(&part.label, has_scheme));
    let joined = entity_spans(tags).into_iter().map(|(kind, parts_of)| {
        let parts = &parts[parts_of];
        let (start, end) = (parts[0].start, parts[parts.len() - 1].end);
        let score = parts.iter().map(|part| part.score).sum::<f64>() / parts.len() as f64;
        // "MISC-1" is of the type "1", as in transformers.
        let label = parts[0].label.split_once('-').map_or(kind, |(_, kind)| kind);
        Entity { text: text[start..end].into(), start, end, words: None, label: label.into(), score }
    });
    joined.collect()
}

/// The byte at which each word starts in all of them joined by spaces.
pub(crate) fn word_starts<T: AsRef<str>>(words: &[T]) -> Vec<usize> {
    let start = |next: &mut usize, word: &T| {
        *next += word.as_ref().len() + 1;
        Some(*next - word.as_ref().len() - 1)
    };
    words.iter().scan(0, start).collect()
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

/// Whether labels say where entities begin: IOB1, IOB2, BIOES (BMEW), BILOU, with types or as letters alone. Letters alone may also be
/// classes, such as B and M of tumours: they are tags where they have those of a whole scheme.
pub(crate) fn has_scheme(names: &[String]) -> bool {
    let has = |letter: &str| names.iter().any(|name| name == letter);
    let are_letters = names.iter().all(|name| name == "O" || name != UNNAMED && tag(name, true).1 == UNNAMED);
    let is_whole = has("I") && (has("B") || has("O")) || has("B") && has("M") && has("E");
    names.iter().any(|name| name.starts_with("B-") || name.starts_with("I-")) || are_letters && is_whole
}

/// The type of entities whose tags are letters alone, as seqeval has it.
const UNNAMED: &str = "_";

/// The prefix and the type of a tag.
pub(crate) fn split(label: &str) -> (&str, &str) {
    label.split_once('-').unwrap_or((label, UNNAMED))
}

/// A label's prefix as BIOES writes it, and its type; without a prefix that of the inside of an entity.
pub(crate) fn tag(label: &str, has_scheme: bool) -> (char, &str) {
    let (prefix, kind) = split(label);
    let prefix = match prefix {
        _ if !has_scheme => return ('I', label),
        "B" => 'B',
        "I" | "M" => 'I',
        "E" | "L" => 'E',
        "S" | "U" | "W" => 'S',
        _ => return ('I', label),
    };
    (prefix, kind)
}

/// The types of the entities of tags, and the tags that each is of.
///
/// Source: `start_of_chunk` and `end_of_chunk` of seqeval 1.2.2.
pub(crate) fn entity_spans<'a>(tags: impl Iterator<Item = (char, &'a str)>) -> Vec<(&'a str, Range<usize>)> {
    let mut found = Vec::new();
    let (mut before, mut type_before, mut start) = ('O', "", 0);
    // One more `O` ends an entity at the end.
    for (i, (prefix, kind)) in tags.chain(once(('O', "_"))).enumerate() {
        let is_other = type_before != kind;
        let ends = matches!(before, 'E' | 'S')
            || matches!(before, 'B' | 'I') && matches!(prefix, 'B' | 'S' | 'O')
            || !matches!(before, 'O' | '.') && is_other;
        let starts = matches!(prefix, 'B' | 'S')
            || matches!(before, 'E' | 'S' | 'O') && matches!(prefix, 'E' | 'I')
            || !matches!(prefix, 'O' | '.') && is_other;
        if ends {
            found.push((type_before, start..i));
        }
        if starts {
            start = i;
        }
        (before, type_before) = (prefix, kind);
    }
    found
}
