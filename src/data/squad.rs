use crate::error::{Error, Result};
use crate::files::regular_file;
use crate::model::QuestionAnsweringBatch;
use crate::text::{BertTokenizer, Encoding, TextBatch, lstrip};
use burn::prelude::*;
use serde::Deserialize;
use std::path::Path;
use tokenizers::utils::parallelism::MaybeParallelIterator;

/// A question about a text, and its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SquadExample {
    /// The name of the question.
    pub id: String,
    /// The question.
    pub question: String,
    /// The text that is searched.
    pub context: String,
    /// The answers, each with the character of the context that it starts at; empty if the question has none.
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
    /// Reads a SQuAD file, version 1.1 or 2.0, into memory.
    ///
    /// ```
    /// use burn_bert::data::SquadExample;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("dev.json");
    /// std::fs::write(&path, r#"{"data": [{"paragraphs": [{"context": "Ada Lovelace wrote it.", "qas": [
    ///     {"id": "1", "question": "Who wrote it?", "answers": [{"text": "Ada Lovelace", "answer_start": 0}]}
    /// ]}]}]}"#)?;
    /// assert_eq!(SquadExample::read(&path)?[0].answers, [("Ada Lovelace".to_string(), 0)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Json`] if the file has another structure; [`Error::Data`], with the question, if an answer is empty or not
    /// at its position in the context; [`Error::File`] if it is not a regular file, has no question or more than 4 GiB;
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
                // Each with its own text, so that any of them can be left out or shuffled.
                let example = Self { id, question, context: context.clone(), answers };
                example.spans().map_err(|problem| {
                    Error::data(format!("question {:?} of {}", example.id, path.display()), problem)
                })?;
                examples.push(example);
            }
        }
        if examples.is_empty() {
            return Err(Error::file(path, "has no question"));
        }
        Ok(examples)
    }

    /// The bytes of each answer in the context. SQuAD counts characters, the tokenizer bytes.
    fn spans(&self) -> Result<Vec<(usize, usize)>, String> {
        let span = |(answer, start): &(String, usize)| {
            if answer.is_empty() {
                let problem = "has an answer without text; a question that its text does not answer has none";
                return Err(problem.to_string());
            }
            let mut starts = self.context.char_indices().map(|(byte, _)| byte);
            match starts.nth(*start).filter(|&byte| self.context[byte..].starts_with(answer.as_str())) {
                Some(byte) => Ok((byte, byte + answer.len())),
                None => Err(format!(
                    "has the answer {answer:?} at character {start}, but its text is another there; correct \
                     answer_start, which counts characters"
                )),
            }
        };
        self.answers.iter().map(span).collect()
    }
}

/// A question and a window of its context, of a [`SquadExample`]. A list of them is a dataset as Burn's `InMemDataset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionWindow {
    /// The tokens of the question and of the window.
    pub encoding: Encoding,
    /// The first and the last token of the answer; `[0, 0]`, the `[CLS]` token, if the window does not hold all of it.
    pub answer: [usize; 2],
    /// The index of its example among those that were cut.
    pub example: usize,
}

impl QuestionWindow {
    /// Cuts examples into windows for training, of about 50 bytes a token, which overlap by `doc_stride` tokens where a context is
    /// longer than the tokenizer's [`model_max_length`](BertTokenizer::model_max_length). The first answer of each example is the
    /// target. Source: `prepare_train_features` of transformers' example `run_qa.py`, 4.57.
    ///
    /// Returns the errors of [`BertTokenizer::encode_pair_windows`]; [`Error::Data`], with the question, if an answer is empty
    /// or not at its place in the text.
    pub fn of(examples: &[SquadExample], tokenizer: &BertTokenizer, doc_stride: usize) -> Result<Vec<Self>> {
        Self::of_until(examples, tokenizer, doc_stride, &|| Ok(()))
    }

    /// Pads windows to the longest of them. Returns [`Error::Empty`] without a window.
    pub fn batch(
        windows: &[Self],
        tokenizer: &BertTokenizer,
        device: &Device,
    ) -> Result<QuestionAnsweringBatch> {
        let encodings: Vec<Encoding> = windows.iter().map(|window| window.encoding.clone()).collect();
        let answers: Vec<_> = windows.iter().map(|window| window.answer).collect();
        let TextBatch { input, padding } = tokenizer.batch(&encodings, device)?;
        QuestionAnsweringBatch::new(input, padding, &answers)
    }

    /// [`of`](Self::of), on as many threads as [`BertTokenizer::encode_batch`]; the first error of an example or of `check`,
    /// which is asked before each, ends it.
    pub(crate) fn of_until(
        examples: &[SquadExample],
        tokenizer: &BertTokenizer,
        doc_stride: usize,
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<Vec<Self>> {
        let windows = |number: usize| {
            check()?;
            let example = &examples[number];
            let misplaced = |problem| Error::data(format!("question {:?}", example.id), problem);
            let span = example.spans().map_err(misplaced)?.first().copied();
            // As run_qa.py: some questions begin with many spaces, which would take room from the text.
            let question = lstrip(&example.question);
            let encodings = tokenizer.encode_pair_windows(question, &example.context, doc_stride)?;
            let window = |encoding| {
                let answer = span.and_then(|span| tokens(&encoding, span)).unwrap_or([0, 0]);
                Self { encoding, answer, example: number }
            };
            Ok(encodings.into_iter().map(window).collect::<Vec<_>>())
        };
        let all: Vec<Result<Vec<Self>>> = (0..examples.len()).into_maybe_par_iter().map(windows).collect();
        let mut flat = Vec::new();
        for windows in all {
            flat.extend(windows?);
        }
        Ok(flat)
    }
}

/// The first and the last token of some bytes of the context; `None` if they are not all in the window.
fn tokens(window: &Encoding, (start, end): (usize, usize)) -> Option<[usize; 2]> {
    let of_text: Vec<usize> = (0..window.len()).filter(|&i| window.sequence_ids()[i] == Some(1)).collect();
    // `None` where the answer begins before the window or ends after it.
    let begins = of_text.iter().take_while(|&&i| window.offsets()[i].0 <= start).last()?;
    let ends = of_text.iter().rev().take_while(|&&i| window.offsets()[i].1 >= end).last()?;
    Some([*begins, *ends])
}
