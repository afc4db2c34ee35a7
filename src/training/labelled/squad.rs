//! SQuAD: its files and its scores.

use crate::error::{Error, Result};
use crate::regular_file;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// A question about a text, and its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SquadExample {
    /// The name of the question.
    pub id: String,
    /// The question.
    pub question: String,
    /// The text.
    pub context: String,
    /// The answers, each with the character of the text at which it starts; none if the text contains no answer.
    pub answers: Vec<(String, usize)>,
}

#[derive(Deserialize)]
struct File {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<Question>,
}

#[derive(Deserialize)]
struct Question {
    id: String,
    question: String,
    #[serde(default)]
    answers: Vec<Answer>,
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
struct Answer {
    text: String,
    answer_start: usize,
}

impl SquadExample {
    /// Reads a file of SQuAD, version 1.1 or 2.0, into memory.
    ///
    /// ```
    /// use burn_bert::training::SquadExample;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("dev.json");
    /// std::fs::write(&path, r#"{"version": "v2.0", "data": [{"paragraphs": [{
    ///     "context": "Ada Lovelace wrote it.",
    ///     "qas": [{"id": "1", "question": "Who wrote it?", "answers": [{"text": "Ada Lovelace", "answer_start": 0}]},
    ///             {"id": "2", "question": "When?", "answers": [], "is_impossible": true}]
    /// }]}]}"#)?;
    /// let examples = SquadExample::read(&path)?;
    /// assert_eq!(examples[0].answers, [("Ada Lovelace".to_string(), 0)]);
    /// assert!(examples[1].answers.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Json`] if the file is not of that form; [`Error::Data`], with the question, if an answer is empty or not
    /// at its place in the text; [`Error::File`] if it is a FIFO or a device, has no question or more than 4 GiB;
    /// [`Error::Io`], [`Error::NotUtf8`].
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Self>> {
        let path = path.as_ref();
        let text = regular_file::read_text(path)?;
        let file: File =
            serde_json::from_str(&text).map_err(|source| Error::Json { path: path.to_path_buf(), source })?;
        let mut examples = Vec::new();
        for Paragraph { context, qas } in file.data.into_iter().flat_map(|article| article.paragraphs) {
            for Question { id, question, answers, is_impossible } in qas {
                // Of what is impossible, SQuAD 2 gives plausible answers in another field.
                let answers = if is_impossible { Vec::new() } else { answers };
                let answers: Vec<_> =
                    answers.into_iter().map(|answer| (answer.text, answer.answer_start)).collect();
                let example = Self { id, question, context: context.clone(), answers };
                example.check().map_err(|problem| {
                    Error::data(format!("question {:?} of {}", example.id, path.display()), problem)
                })?;
                examples.push(example);
            }
        }
        match examples.is_empty() {
            true => Err(Error::file(path, "has no question")),
            false => Ok(examples),
        }
    }

    /// Whether each answer is at its place.
    pub(super) fn check(&self) -> Result<(), String> {
        for (answer, start) in &self.answers {
            if answer.is_empty() {
                return Err(
                    "has an answer without text; a question that its text does not answer has none".into()
                );
            }
            let mut rest = self.context.chars();
            let is_there = *start == 0 || rest.nth(start - 1).is_some();
            if !is_there || !rest.as_str().starts_with(answer.as_str()) {
                return Err(format!(
                    "has the answer {answer:?} at character {start}, but its text is another there; correct \
                     answer_start, which counts characters"
                ));
            }
        }
        Ok(())
    }
}

/// SQuAD's scores of predicted answers, in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquadScores {
    /// The share of predictions that equal an answer.
    pub exact: f64,
    /// The mean of the F1 over the words of prediction and answer, of the answer with the highest.
    pub f1: f64,
}

impl SquadScores {
    /// The scores of one prediction for each example; the empty text says that there is no answer. NaN without examples.
    ///
    /// Case, ASCII punctuation, articles and white space do not count.
    ///
    /// ```
    /// use burn_bert::training::{SquadExample, SquadScores};
    ///
    /// let answers = vec![("the quick brown fox".to_string(), 0)];
    /// let example = SquadExample { answers, ..SquadExample::default() };
    /// let scores = SquadScores::of(&[example], &["Brown fox!"]);
    /// assert_eq!(scores.exact, 0.0);
    /// assert!((scores.f1 - 80.0).abs() < 1e-12); // precision 1, recall 2/3
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if there is not one prediction for each example.
    ///
    /// Source: SQuAD's `evaluate-v2.0.py`. On SQuAD 1.1, `evaluate-v1.1.py` gives the same, if no answer consists of
    /// articles and punctuation alone.
    pub fn of<T: AsRef<str>>(examples: &[SquadExample], predictions: &[T]) -> Self {
        assert_eq!(examples.len(), predictions.len(), "each example must have a prediction");
        let (mut exact, mut f1) = (0.0, 0.0);
        for (example, prediction) in examples.iter().zip(predictions) {
            let found = normalized(prediction.as_ref());
            let answers = example.answers.iter().map(|(text, _)| normalized(text));
            let mut answers: Vec<_> = answers.filter(|answer| !answer.is_empty()).collect();
            if answers.is_empty() {
                answers.push(Vec::new());
            }
            exact += f64::from(u8::from(answers.contains(&found)));
            f1 += answers.iter().map(|answer| words_f1(answer, &found)).fold(0.0, f64::max);
        }
        let percent = |sum: f64| 100.0 * sum / examples.len() as f64;
        Self { exact: percent(exact), f1: percent(f1) }
    }
}

/// The words of an answer that count.
fn normalized(answer: &str) -> Vec<String> {
    let text: String = answer.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        // Articles that other characters than letters and digits surround, as in "the–cat", are words of their own.
        let parts = word.split_inclusive(|c: char| !c.is_alphanumeric());
        let kept = parts.map(|part| {
            let letters = part.trim_end_matches(|c: char| !c.is_alphanumeric());
            match letters {
                "a" | "an" | "the" => format!(" {}", &part[letters.len()..]),
                _ => part.to_string(),
            }
        });
        words.extend(kept.collect::<String>().split_whitespace().map(String::from));
    }
    words
}

/// 2·common / (words of both); of no words, whether both have none.
fn words_f1(answer: &[String], found: &[String]) -> f64 {
    if answer.is_empty() || found.is_empty() {
        return f64::from(u8::from(answer == found));
    }
    let mut left = HashMap::<&String, usize>::new();
    answer.iter().for_each(|word| *left.entry(word).or_default() += 1);
    let mut common = 0;
    for word in found {
        if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    2.0 * common as f64 / (answer.len() + found.len()) as f64
}
