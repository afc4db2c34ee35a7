use super::examples::in_parallel;
use crate::error::{Error, Result};
use crate::files::regular_file;
use crate::model::QuestionAnsweringBatch;
use crate::text::{BertTokenizer, Encoding, TextBatch, lstrip};
use burn::prelude::*;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;
use std::path::Path;

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

/// Any object of a SQuAD file, or of the rows that Hugging Face's datasets write: what it has.
#[derive(Deserialize)]
struct Entry {
    data: Option<Vec<Entry>>,
    paragraphs: Option<Vec<Entry>>,
    context: Option<String>,
    qas: Option<Vec<Entry>>,
    id: Option<Value>,
    question: Option<String>,
    #[serde(default)]
    answers: Answers,
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answers {
    Each(Vec<Answer>),
    /// The columns of Hugging Face's datasets.
    Columns {
        text: Vec<String>,
        answer_start: Vec<i64>,
    },
}

impl Default for Answers {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

#[derive(Deserialize)]
struct Answer {
    text: String,
    answer_start: i64,
}

impl SquadExample {
    /// Reads a SQuAD file, version 1.1 or 2.0, or the rows that Hugging Face's `datasets` write of one, as JSON lines or in a list.
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
    /// [`Error::Json`] if the file has another structure; [`Error::Data`], with the first questions, if answers are empty or not
    /// at their positions in the context, which [`read_placed`](Self::read_placed) skips; [`Error::File`] if it is not a regular
    /// file, has no question or more than 4 GiB; [`Error::Io`], [`Error::NotUtf8`].
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Self>> {
        let path = path.as_ref();
        let examples = Self::read_all(path)?;
        let misplaced: Vec<_> = examples.iter().filter_map(|it| Some((&it.id, it.spans().err()?))).collect();
        let Some((first, problem)) = misplaced.first() else { return Ok(examples) };
        let problem = match &misplaced[1..] {
            [] => problem.clone(),
            others => {
                let next: Vec<_> = others.iter().take(2).map(|(id, _)| id).collect();
                let (count, all) = (misplaced.len(), examples.len());
                format!("{problem}; so have {count} of {all} questions, the next being {next:?}")
            }
        };
        Err(Error::data(format!("question {first:?} of {}", path.display()), problem))
    }

    /// Reads a file as [`read`](Self::read) does, without the questions whose answers are not at their positions: the others, and
    /// what is wrong with each that was skipped.
    pub fn read_placed(path: impl AsRef<Path>) -> Result<(Vec<Self>, Vec<String>)> {
        let mut misplaced = Vec::new();
        let mut is_placed = |example: &Self| {
            let problem = example.spans().err();
            misplaced.extend(problem.iter().map(|problem| format!("question {:?} {problem}", example.id)));
            problem.is_none()
        };
        let placed = Self::read_all(path.as_ref())?.into_iter().filter(&mut is_placed).collect();
        Ok((placed, misplaced))
    }

    fn read_all(path: &Path) -> Result<Vec<Self>> {
        let text = regular_file::read_text(path)?;
        let wrong = |source| Error::Json { path: path.to_path_buf(), source };
        let mut examples = Vec::new();
        let mut add = |example| examples.push(example);
        if text.trim_ascii_start().starts_with('[') {
            let rows: Vec<Entry> = serde_json::from_str(&text).map_err(wrong)?;
            rows.into_iter().try_for_each(|row| row.examples(None, &mut add)).map_err(wrong)?;
        } else {
            for row in serde_json::Deserializer::from_str(&text).into_iter::<Entry>() {
                row.and_then(|row| row.examples(None, &mut add)).map_err(wrong)?;
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
                    "has the answer {answer:?} at character {}, but its text is another there; correct answer_start, which \
                     counts characters",
                    *start as i64
                )),
            }
        };
        self.answers.iter().map(span).collect()
    }
}

impl Entry {
    /// The questions in it, in a context that is around it.
    fn examples(self, context: Option<&str>, add: &mut impl FnMut(SquadExample)) -> serde_json::Result<()> {
        let context = self.context.as_deref().or(context);
        let parts = [self.data, self.paragraphs, self.qas].into_iter().flatten();
        let mut parts = parts.peekable();
        if parts.peek().is_some() {
            return parts.flatten().try_for_each(|part| part.examples(context, add));
        }
        let missing = |field| serde_json::Error::missing_field(field);
        let id = match self.id.ok_or_else(|| missing("id"))? {
            Value::String(id) => id,
            id => id.to_string(),
        };
        let answers = match self.answers {
            // Of what is impossible, SQuAD 2 gives plausible answers in another field.
            _ if self.is_impossible => Vec::new(),
            Answers::Each(all) => all.into_iter().map(|answer| (answer.text, answer.answer_start)).collect(),
            Answers::Columns { text, answer_start } if text.len() == answer_start.len() => {
                text.into_iter().zip(answer_start).collect()
            }
            Answers::Columns { .. } => return Err(missing("answer_start of an answer")),
        };
        // What begins before the text is not in it, and is shown as it was written.
        let answers = answers.into_iter().map(|(text, start)| (text, start as usize));
        let question = self.question.ok_or_else(|| missing("question"))?;
        // Each with its own text, so that any of them can be left out or shuffled.
        let context = context.ok_or_else(|| missing("context"))?.to_string();
        add(SquadExample { id, question, context, answers: answers.collect() });
        Ok(())
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
    /// or not in the text where its offset says.
    pub fn cut(examples: &[SquadExample], tokenizer: &BertTokenizer, doc_stride: usize) -> Result<Vec<Self>> {
        Self::cut_checking(examples, tokenizer, doc_stride, &|| Ok(()))
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

    /// [`cut`](Self::cut), in parallel; an error of `check`, which is asked before each example, ends it.
    pub(crate) fn cut_checking(
        examples: &[SquadExample],
        tokenizer: &BertTokenizer,
        doc_stride: usize,
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<Vec<Self>> {
        let windows = |number: usize| {
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
        Ok(in_parallel(examples.len(), check, windows)?.into_iter().flatten().collect())
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
