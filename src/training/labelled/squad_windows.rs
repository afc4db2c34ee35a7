//! Questions and texts to batches.

use super::batcher::{TryBatcher, batcher};
use super::squad::SquadExample;
use crate::error::{Error, Result};
use crate::model::QuestionAnsweringBatch;
use crate::text::{BertTokenizer, Chars, Encoding, TextBatch};
use burn::prelude::*;
use std::sync::Arc;

/// A question and a part of its text: an item of [`QuestionWindows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionWindow {
    /// The tokens of the question and of the part.
    pub encoding: Encoding,
    /// The first and the last token of the answer; twice that of `[CLS]` if it is not completely in this part.
    pub answer: [usize; 2],
}

/// Examples as windows, for training: in memory, about 50 bytes a token.
///
/// A text that is longer than the tokenizer's [`model_max_length`](BertTokenizer::model_max_length) gives several windows,
/// which share `doc_stride` tokens. The first answer of each example is learned.
///
/// ```
/// use burn::data::dataset::Dataset;
/// use burn::prelude::*;
/// use burn_bert::text::BertTokenizer;
/// use burn_bert::training::{QuestionWindowBatcher, QuestionWindows, SquadExample, TryBatcher};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwho\nada\nwrote\nit\n")?;
/// let tokenizer = BertTokenizer::from_pretrained(dir.path())?;
/// let example = SquadExample {
///     question: "Who".into(),
///     context: "Ada wrote it".into(),
///     answers: vec![("Ada".into(), 0)],
///     ..SquadExample::default()
/// };
/// let windows = QuestionWindows::new(&[example], &tokenizer, 128)?;
/// assert_eq!(windows.get(0)?.answer, [3, 3]); // [CLS] who [SEP] ada
/// let batch = QuestionWindowBatcher::new(tokenizer).try_batch(vec![windows.get(0)?], &Device::default())?;
/// assert_eq!(batch.input.dims(), [1, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: `prepare_train_features` of transformers' example `run_qa.py`, 4.57.
#[derive(Debug)]
pub struct QuestionWindows {
    windows: Vec<QuestionWindow>,
}

impl QuestionWindows {
    /// Tokenises examples.
    ///
    /// # Errors
    ///
    /// Those of [`BertTokenizer::encode_pair_windows`]; [`Error::Data`], with the question, if an answer is empty or not at
    /// its place in the text.
    pub fn new(examples: &[SquadExample], tokenizer: &BertTokenizer, doc_stride: usize) -> Result<Self> {
        let mut windows = Vec::new();
        for example in examples {
            let misplaced = |problem| Error::data(format!("question {:?}", example.id), problem);
            example.check().map_err(misplaced)?;
            let chars = Chars::of(&example.context);
            let span = example.answers.first().map(|(text, start)| (*start, start + text.chars().count()));
            let question = example.question.trim_start();
            for encoding in tokenizer.encode_pair_windows(question, &example.context, doc_stride)? {
                let answer = span.and_then(|span| tokens(&encoding, &chars, span)).unwrap_or([0, 0]);
                windows.push(QuestionWindow { encoding, answer });
            }
        }
        Ok(Self { windows })
    }

    /// The number of tokens of each window, for
    /// [length bucketing](super::LabelledLoader::with_length_bucketing).
    pub fn sizes(&self) -> Vec<usize> {
        self.windows.iter().map(|window| window.encoding.len()).collect()
    }
}

/// The first and the last token of some characters of the second text; `None` if they are not all in the window.
fn tokens(window: &Encoding, text: &Chars, (start, end): (usize, usize)) -> Option<[usize; 2]> {
    let of_text: Vec<usize> = (0..window.len()).filter(|&i| window.sequence_ids()[i] == Some(1)).collect();
    let offsets = |i: usize| {
        let (start, end) = window.offsets()[i];
        (text.index(start), text.index(end))
    };
    // There are none before the answer if it begins before the window, and none after it if it ends after it.
    let begins = of_text.iter().take_while(|&&i| offsets(i).0 <= start).last()?;
    let ends = of_text.iter().rev().take_while(|&&i| offsets(i).1 >= end).last()?;
    Some([*begins, *ends])
}

in_memory!(QuestionWindows.windows: QuestionWindow);

/// Pads windows to the longest of the batch. [`QuestionWindows`] has an example.
#[derive(Clone, Debug)]
pub struct QuestionWindowBatcher {
    tokenizer: Arc<BertTokenizer>,
}

impl QuestionWindowBatcher {
    /// Batches for the model that the tokenizer belongs to.
    pub fn new(tokenizer: BertTokenizer) -> Self {
        Self { tokenizer: Arc::new(tokenizer) }
    }
}

impl TryBatcher for QuestionWindowBatcher {
    type Item = QuestionWindow;
    type Batch = QuestionAnsweringBatch;

    /// # Errors
    ///
    /// [`Error::Empty`] without a window.
    fn try_batch(&self, items: Vec<QuestionWindow>, device: &Device) -> Result<QuestionAnsweringBatch> {
        let (encodings, answers): (Vec<_>, Vec<_>) =
            items.into_iter().map(|window| (window.encoding, window.answer)).unzip();
        let TextBatch { input, padding } = self.tokenizer.batch(&encodings, device)?;
        QuestionAnsweringBatch::new(input, padding, &answers)
    }
}

batcher!(QuestionWindowBatcher);
