//! Answers in texts, from the logits of their first and last tokens.

use super::{Pipeline, TextOptions, largest, softmax};
use crate::error::Result;
use crate::model::BertForQuestionAnswering;
use crate::text::{BertTokenizer, Encoding, lstrip};
use burn::prelude::*;
use std::collections::BTreeSet;

/// The least answers, and first and last tokens of a window, among which the best are found.
const N_BEST: usize = 20;

/// An answer to a question. Returned by [`Pipeline::answers`].
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The part of the text that answers; empty if the text contains no answer.
    pub text: String,
    /// The first byte of the answer, which is `&text[start..end]`. (transformers counts characters.)
    pub start: usize,
    /// The byte after it.
    pub end: usize,
    /// The probability among the answers that were considered: 20, or `top_k` if that is more.
    pub score: f64,
    /// The sum of the logits of the first and of the last token.
    pub logit: f64,
}

impl Answer {
    /// Whether the text does not contain an answer.
    pub fn is_impossible(&self) -> bool {
        self.text.is_empty()
    }
}

impl Pipeline<BertForQuestionAnswering> {
    /// Extractive question answering: the answers to each question in its text, the best first.
    ///
    /// A text longer than the model reads is read in windows, each with the question. They share `stride` tokens, by default
    /// 128; where there is no room for as many, half of the maximum length, as in transformers' pipeline, or half of the room.
    /// The logit of an answer is the sum of the logits of its first and last tokens; that of no answer is the lowest of `[CLS]`
    /// in all windows, as for SQuAD. Without a valid span, and without `no_answer_threshold`, the list is empty. Reads `top_k`,
    /// by default 20 and no answer, `stride`, `max_answer_len` and `no_answer_threshold`. Errors are those of
    /// [every method](Pipeline#errors) and of [`BertTokenizer::encode_pair_windows`].
    ///
    /// Source: `postprocess_qa_predictions` of transformers' example `run_qa.py`, 4.57, with `n_best_size` of 20 or `top_k`, but
    /// a span of several windows is listed once, and spans without a character are not.
    pub fn answers<Q: AsRef<str> + Sync, T: AsRef<str> + Sync>(
        &self,
        questions: &[(Q, T)],
        options: &TextOptions,
    ) -> Result<Vec<Vec<Answer>>> {
        options.check("answers", &["top_k", "stride", "max_answer_len", "no_answer_threshold"])?;
        // The defaults are those of run_qa.py.
        let n_best = options.top_k.unwrap_or(N_BEST).max(N_BEST);
        let max_answer_len = options.max_answer_len.unwrap_or(30);
        let windows = self.map_windows(
            questions,
            options,
            |(question, text)| {
                // As run_qa.py: some questions of SQuAD begin with many spaces, which would take room from the text.
                let question = lstrip(question.as_ref());
                let stride = stride(&self.tokenizer, question, options.stride.unwrap_or(128))?;
                self.tokenizer.encode_pair_windows(question, text.as_ref(), stride)
            },
            |batch| Ok(Tensor::stack(self.model.logits(&batch.input, batch.padding.as_ref())?.into(), 2)),
            |index, window, logits| {
                let text = questions[index].1.as_ref();
                (candidates_in(window, logits, text, n_best, max_answer_len), logits[0] + logits[1])
            },
        )?;
        let answered = windows.into_iter().map(|windows| {
            // A window without the answer scores no answer high; all windows must, for the text to contain none.
            let impossible = windows.iter().map(|(_, impossible)| *impossible).fold(f64::INFINITY, f64::min);
            let found = windows.into_iter().flat_map(|(found, _)| found).collect();
            let mut answers = best(found, impossible, n_best, options.no_answer_threshold);
            answers.truncate(options.top_k.unwrap_or(usize::MAX));
            answers
        });
        Ok(answered.collect())
    }
}

/// The tokens that windows share: `wanted`, or less where a window beside the question does not hold more than that.
fn stride(tokenizer: &BertTokenizer, question: &str, wanted: usize) -> Result<usize> {
    let Some(max_length) = tokenizer.model_max_length() else { return Ok(wanted) };
    let room = max_length.saturating_sub(tokenizer.encode_pair(question, "")?.len());
    let fits = [wanted, max_length / 2, room / 2].into_iter().find(|&stride| stride < room);
    Ok(fits.unwrap_or(wanted)) // no room at all: the windows' error says so
}

/// The candidates in a window, given two scores for each token.
fn candidates_in(
    window: &Encoding,
    logits: &[f64],
    text: &str,
    n_best: usize,
    max_answer_len: usize,
) -> Vec<Answer> {
    let best = |which: usize| -> Vec<usize> {
        let logits: Vec<f64> = logits.iter().skip(which).step_by(2).take(window.len()).copied().collect();
        // Before those of the question go, as in run_qa.py: these are among the best, too.
        let mut indices = largest(&logits, n_best);
        indices.retain(|&index| window.sequence_ids()[index] == Some(1));
        indices
    };
    let (starts, ends) = (best(0), best(1));
    let pairs = starts.iter().flat_map(|&start| ends.iter().map(move |&end| (start, end)));
    let valid = pairs.filter(|&(start, end)| start <= end && end - start < max_answer_len);
    let answer = |(first, last): (usize, usize)| {
        let ((start, _), (_, end)) = (window.offsets()[first], window.offsets()[last]);
        // Byte-level tokenizers have tokens without characters for all but one space.
        let text = text.get(start..end).filter(|text| !text.is_empty())?.to_string();
        Some(Answer { text, start, end, score: 0.0, logit: logits[2 * first] + logits[2 * last + 1] })
    };
    valid.filter_map(answer).collect()
}

/// The best of a question's candidates, the model's answer first, with their probabilities.
fn best(mut answers: Vec<Answer>, impossible: f64, n_best: usize, threshold: Option<f64>) -> Vec<Answer> {
    // A stable sort, also where logits are equal: the order is that of run_qa.py.
    answers.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    let mut seen = BTreeSet::new();
    // After the sort: of a span in several windows, the best score remains.
    answers.retain(|answer| seen.insert((answer.start, answer.end)));
    answers.truncate(n_best);
    if let Some(threshold) = threshold {
        let is_impossible = answers.first().is_none_or(|best| impossible - best.logit > threshold);
        let index = answers.partition_point(|answer| answer.logit >= impossible);
        // That there is no answer is one of the n best.
        answers.truncate(n_best - usize::from(index < n_best));
        // The model's answer is the first, whatever the threshold.
        let index = if is_impossible { 0 } else { index.max(1) };
        answers
            .insert(index, Answer { text: String::new(), start: 0, end: 0, score: 0.0, logit: impossible });
    }
    let scores = softmax(&answers.iter().map(|answer| answer.logit).collect::<Vec<_>>());
    answers.into_iter().zip(scores).map(|(answer, score)| Answer { score, ..answer }).collect()
}
