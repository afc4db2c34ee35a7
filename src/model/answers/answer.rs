//! Answers in texts, from the scores of their first and last tokens.

use crate::error::{Error, Result};
use crate::model::answers::BertForQuestionAnswering;
use crate::model::windows::{Windows, place, softmax};
use crate::text::{BertTokenizer, Encoding};
use burn::config::Config;
use burn::prelude::*;
use std::collections::BTreeSet;

/// How [`BertForQuestionAnswering::answers`] finds answers. The defaults are those of transformers' `run_qa.py`.
#[derive(Config, Debug, PartialEq)]
pub struct AnswersConfig {
    /// The number of answers to a question that are returned, no answer not counted, and of the first and last tokens that
    /// are considered in each window.
    #[config(default = 20)]
    pub n_best: usize,
    /// The maximum length of an answer, in tokens.
    #[config(default = 30)]
    pub max_answer_len: usize,
    /// How many tokens neighbouring windows of a long text share. Where the tokenizer's
    /// [`model_max_length`](BertTokenizer::model_max_length) has no room for so many beside the question: half of it, as in
    /// transformers' pipeline, or half of the room.
    #[config(default = 128)]
    pub doc_stride: usize,
    /// With a number, a text may contain no answer: the model says so if the score of no answer exceeds that of the best
    /// answer by more than this (`null_score_diff_threshold`; SQuAD 2's default is 0).
    pub no_answer_threshold: Option<f64>,
}

/// An answer to a question. Returned by [`BertForQuestionAnswering::answers`].
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The part of the text that answers; empty if the text contains no answer.
    pub text: String,
    /// Where it starts in the text, in bytes as Rust's strings count: the part is `&text[start..end]`. (transformers counts
    /// characters.)
    pub start: usize,
    /// Where it ends, in bytes, exclusive.
    pub end: usize,
    /// The probability among the answers that are returned.
    pub score: f64,
    /// The sum of the scores of the first and of the last token.
    pub logit: f64,
}

impl Answer {
    /// Whether this is no answer: the text does not contain one.
    pub fn is_impossible(&self) -> bool {
        self.text.is_empty()
    }
}

/// A candidate: its place in the text and its score.
struct Span {
    start: usize,
    end: usize,
    logit: f64,
}

impl BertForQuestionAnswering {
    /// The answers to each question in the text beside it. The first one is the model's; the others follow in the order of
    /// their scores. Without dropout and gradients, also of a model in training.
    ///
    /// A text of more than the tokenizer's [`model_max_length`](BertTokenizer::model_max_length) is read in windows, each
    /// with the question. The score of an answer is the sum of the scores of its first and last tokens. That of no answer
    /// is the score of `[CLS]`, the lowest of all windows, as for SQuAD. A span that several windows contain is listed once,
    /// with its best score. Without a valid span, and without `no_answer_threshold`, the list is empty.
    ///
    /// ```
    /// use burn::prelude::*;
    /// use burn_bert::BertEmbeddingsConfig;
    /// use burn_bert::model::{AnswersConfig, BertForQuestionAnsweringConfig, BertModelConfig};
    /// use burn_bert::text::BertTokenizer;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwho\nada\nwrote\nit\n")?;
    /// let tokenizer = BertTokenizer::from_pretrained(dir.path())?;
    /// let device = Device::default();
    /// let bert = BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(9).with_hidden_size(8))
    ///     .with_num_hidden_layers(1)
    ///     .with_num_attention_heads(2)
    ///     .with_intermediate_size(16);
    /// let model = BertForQuestionAnsweringConfig::new(bert).init(&device); // not trained
    /// let answers = model.answers(&tokenizer, &[("Who?", "Ada wrote it")], &AnswersConfig::new())?;
    /// assert!(answers[0].iter().all(|answer| "Ada wrote it".contains(&answer.text)));
    /// assert!((answers[0].iter().map(|answer| answer.score).sum::<f64>() - 1.0).abs() < 1e-6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`BertTokenizer::encode_pair_windows`] and [`logits`](Self::logits); [`Error::Config`] if `n_best` or
    /// `max_answer_len` is 0; [`Error::Data`] if a score is NaN or infinite.
    ///
    /// Source: `postprocess_qa_predictions` of transformers' example `run_qa.py`, 4.57, which lists spans of several windows
    /// several times, and spans without a character.
    pub fn answers<Q: AsRef<str>, T: AsRef<str>>(
        &self,
        tokenizer: &BertTokenizer,
        questions: &[(Q, T)],
        config: &AnswersConfig,
    ) -> Result<Vec<Vec<Answer>>> {
        for (field, value) in [("n_best", config.n_best), ("max_answer_len", config.max_answer_len)] {
            if value == 0 {
                return Err(Error::Config { field, problem: "is 0, but must be at least 1".into() });
            }
        }
        let model = self.valid();
        let windows = Windows::of(questions.iter().map(|(question, text)| {
            // As run_qa.py: some questions of SQuAD begin with many spaces, which would take room from the text.
            let question = question.as_ref().trim_start();
            let stride = stride(tokenizer, question, config.doc_stride)?;
            tokenizer.encode_pair_windows(question, text.as_ref(), stride)
        }))?;
        let mut spans: Vec<Vec<Span>> = questions.iter().map(|_| Vec::new()).collect();
        let mut impossible = vec![f64::INFINITY; questions.len()];
        windows.for_each(
            tokenizer,
            &model.qa_outputs.weight.lazy_device(),
            |batch| Ok(Tensor::stack(model.logits(&batch.input, batch.padding.as_ref())?.into(), 2)),
            |index, window, logits| {
                spans[index].extend(of_window(window, logits, questions[index].1.as_ref(), config));
                // A window without the answer scores no answer high; all windows must, for the text to contain none.
                impossible[index] = impossible[index].min(logits[0] + logits[1]);
            },
        )?;
        let answered = spans.into_iter().zip(impossible).zip(questions);
        Ok(answered
            .map(|((spans, impossible), (_, text))| best(spans, impossible, text.as_ref(), config))
            .collect())
    }
}

/// The tokens that windows share: `doc_stride`, or less where a window beside the question does not hold more than that.
fn stride(tokenizer: &BertTokenizer, question: &str, doc_stride: usize) -> Result<usize> {
    let Some(max_length) = tokenizer.model_max_length() else { return Ok(doc_stride) };
    let room = max_length.saturating_sub(tokenizer.encode_pair(question, "")?.len());
    let fits = [doc_stride, max_length / 2, room / 2].into_iter().find(|&stride| stride < room);
    Ok(fits.unwrap_or(doc_stride)) // no room at all: the windows' error says so
}

/// The candidates in a window, given two scores for each token.
fn of_window(window: &Encoding, logits: &[f64], text: &str, config: &AnswersConfig) -> Vec<Span> {
    let best = |which: usize| -> Vec<usize> {
        let mut places: Vec<usize> = (0..window.len()).collect();
        places.sort_by(|&a, &b| logits[2 * b + which].total_cmp(&logits[2 * a + which]));
        // Before those of the question go, as in run_qa.py: these take places of the best, too.
        places.truncate(config.n_best);
        places.retain(|&place| window.sequence_ids()[place] == Some(1));
        places
    };
    let (starts, ends) = (best(0), best(1));
    let pairs = starts.iter().flat_map(|&start| ends.iter().map(move |&end| (start, end)));
    let valid = pairs.filter(|&(start, end)| start <= end && end - start < config.max_answer_len);
    let span = |(start, end): (usize, usize)| Span {
        start: place(text, window.offsets()[start]).0,
        end: place(text, window.offsets()[end]).1,
        logit: logits[2 * start] + logits[2 * end + 1],
    };
    // Byte-level tokenizers have tokens without characters for all but one space.
    valid.map(span).filter(|span| span.start < span.end).collect()
}

/// The best of a question's candidates, the model's answer first.
fn best(mut spans: Vec<Span>, impossible: f64, text: &str, config: &AnswersConfig) -> Vec<Answer> {
    // A stable sort, also where logits are equal: the order is that of run_qa.py.
    spans.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    let mut seen = BTreeSet::new();
    // After the sort: of a span in several windows, the best score remains.
    spans.retain(|span| seen.insert((span.start, span.end)));
    spans.truncate(config.n_best);
    if let Some(threshold) = config.no_answer_threshold {
        let is_impossible = spans.first().is_none_or(|best| impossible - best.logit > threshold);
        let place = spans.partition_point(|span| span.logit >= impossible);
        let others = config.n_best - usize::from(place < config.n_best);
        spans.truncate(if is_impossible { others } else { others.max(1) });
        // The model's answer is the first, whatever the threshold.
        let place = if is_impossible { 0 } else { place.clamp(1, spans.len()) };
        spans.insert(place, Span { start: 0, end: 0, logit: impossible });
    }
    let scores = softmax(&spans.iter().map(|span| span.logit).collect::<Vec<_>>());
    let answer = |(span, score): (Span, f64)| Answer {
        text: text[span.start..span.end].into(),
        start: span.start,
        end: span.end,
        score,
        logit: span.logit,
    };
    spans.into_iter().zip(scores).map(answer).collect()
}
