use crate::data::SquadExample;
use std::collections::HashMap;

/// SQuAD's scores of predicted answers, in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquadScores {
    /// The share of predictions that equal an answer.
    pub exact: f64,
    /// The mean of the F1 over the words of prediction and answer, of the answer with the highest.
    pub f1: f64,
}

impl SquadScores {
    /// The scores of one prediction for each example; an empty one says that there is no answer. NaN without examples. Case,
    /// ASCII punctuation, articles and white space do not count. Panics if there is not one prediction for each example.
    ///
    /// ```
    /// use burn_bert::data::SquadExample;
    /// use burn_bert::metrics::SquadScores;
    ///
    /// let answers = vec![("the quick brown fox".to_string(), 0)];
    /// let example = SquadExample { answers, ..SquadExample::default() };
    /// let scores = SquadScores::from_predictions(&[example], &["Brown fox!"]);
    /// assert_eq!(scores.exact, 0.0);
    /// assert!((scores.f1 - 80.0).abs() < 1e-12); // precision 1, recall 2/3
    /// ```
    ///
    /// Source: SQuAD's `evaluate-v2.0.py`, to which `evaluate-v1.1.py` is equal unless an answer has only articles and
    /// punctuation.
    pub fn from_predictions<T: AsRef<str>>(examples: &[SquadExample], predictions: &[T]) -> Self {
        assert_eq!(examples.len(), predictions.len(), "each example must have a prediction");
        let (mut exact, mut f1) = (0.0, 0.0);
        for (example, prediction) in examples.iter().zip(predictions) {
            let found = normalized(prediction.as_ref());
            let answers = example.answers.iter().map(|(text, _)| normalized(text));
            let mut answers: Vec<_> = answers.filter(|answer| !answer.is_empty()).collect();
            // A question without an answer is right if nothing is predicted.
            if answers.is_empty() {
                answers.push(Vec::new());
            }
            exact += if answers.contains(&found) { 1.0 } else { 0.0 };
            f1 += answers.iter().map(|answer| words_f1(answer, &found)).fold(0.0, f64::max);
        }
        let percent = |sum: f64| 100.0 * sum / examples.len() as f64;
        Self { exact: percent(exact), f1: percent(f1) }
    }
}

fn normalized(answer: &str) -> Vec<String> {
    let text: String = answer.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    // Articles that other characters than letters and digits surround, as in "the–cat", are words of their own.
    let parts = text.split_inclusive(|c: char| !c.is_alphanumeric()).map(|part| {
        let letters = part.trim_end_matches(|c: char| !c.is_alphanumeric());
        match letters {
            "a" | "an" | "the" => format!(" {}", &part[letters.len()..]),
            _ => part.to_string(),
        }
    });
    parts.collect::<String>().split_whitespace().map(String::from).collect()
}

/// 2·common / (words of both); of no words, whether both have none.
fn words_f1(answer: &[String], found: &[String]) -> f64 {
    if answer.is_empty() || found.is_empty() {
        return if answer == found { 1.0 } else { 0.0 };
    }
    // Each word counts as often as both have it.
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
