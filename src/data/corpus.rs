//! A text file as sequences.

use super::masked_lm_collator::MaskedLmExample;
use crate::error::{Error, Result};
use crate::text::{BertTokenizer, Lines};
use burn::data::dataset::{Dataset, DatasetError};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::sync::Arc;

/// One window out of this many is held out.
const HELD_OUT_EVERY: usize = 20;

/// In a stored id: the token continues the word of the one before it. A separate list of words would double the memory.
const CONTINUES: u32 = 1 << 31;

/// A UTF-8 text file, cut into windows of one length for masked language modelling.
///
/// The lines are tokenised and joined, and every `seq_len` − 2 tokens become `[CLS] … [SEP]`, all of type 0 (the full
/// sentences of Liu et al. 2019, without separators in between). The ids stay in memory, four bytes per token, and clones
/// share them.
///
/// One window in twenty, the first included, is [held out](Self::held_out); as a dataset for an
/// [`EpochLoader`](super::EpochLoader) it has the others.
#[derive(Clone, Debug)]
pub struct Corpus {
    tokens: Arc<Vec<u32>>,
    /// Tokens in a window, without `[CLS]` and `[SEP]`.
    room: usize,
    /// Nothing is held out.
    is_whole: bool,
    cls_token_id: u32,
    sep_token_id: u32,
}

impl Corpus {
    /// Reads and tokenises a file, to be cut into windows of `seq_len` tokens, `[CLS]` and `[SEP]` included.
    ///
    /// # Errors
    ///
    /// - Those of [`Lines`] and of the tokenizer;
    /// - [`Error::Config`] if a window has no room for a token or exceeds the tokenizer's
    ///   [`model_max_length`](BertTokenizer::model_max_length), or the whole file is a single window, which is held out;
    /// - [`Error::Data`] if an id is 2³¹ or more.
    pub fn open(path: impl AsRef<Path>, tokenizer: BertTokenizer, seq_len: usize) -> Result<Self> {
        let path = path.as_ref();
        let corpus = Self::of_lines(Lines::open(path)?, &path.display().to_string(), tokenizer, seq_len)?;
        if corpus.num_windows() < 2 {
            let problem = format!(
                "is {seq_len}, but {} has only one window of that length, and it is held out; shorten seq_len or add \
                 text",
                path.display()
            );
            return Err(Error::Config { field: "seq_len", problem });
        }
        Ok(corpus)
    }

    /// The windows of some lines, of which none is held out.
    pub(crate) fn whole(lines: &[String], tokenizer: BertTokenizer, seq_len: usize) -> Result<Self> {
        let lines = lines.iter().map(|line| Ok(line.as_str()));
        Ok(Self { is_whole: true, ..Self::of_lines(lines, "the text", tokenizer, seq_len)? })
    }

    fn of_lines<L: AsRef<str>>(
        lines: impl Iterator<Item = Result<L>>,
        source: &str,
        tokenizer: BertTokenizer,
        seq_len: usize,
    ) -> Result<Self> {
        let invalid = |problem| Err(Error::Config { field: "seq_len", problem });
        if seq_len < 3 {
            return invalid(format!("is {seq_len}, but a token between [CLS] and [SEP] needs at least 3"));
        }
        if let Some(limit) = tokenizer.model_max_length().filter(|&limit| seq_len > limit) {
            return invalid(format!("is {seq_len}, but the model reads at most {limit} tokens"));
        }
        let (room, cls_token_id, sep_token_id) =
            (seq_len - 2, tokenizer.cls_token_id(), tokenizer.sep_token_id());
        // Lines are cut by the window, not by the model.
        let tokenizer = tokenizer.without_limit();
        let mut tokens = Vec::new();
        for line in lines {
            let encoding = tokenizer.encode(line?.as_ref())?;
            let mut last_word = None;
            let words = encoding.input_ids().iter().zip(encoding.word_ids());
            for ((&id, &word), &is_special) in words.zip(encoding.special_tokens_mask()) {
                if is_special {
                    continue;
                }
                if id >= CONTINUES {
                    let what = format!("the id {id} of a token in {source}");
                    return Err(Error::data(what, "is too large; ids must be below 2³¹"));
                }
                tokens.push(if word.is_some() && word == last_word { id | CONTINUES } else { id });
                last_word = word;
            }
        }
        Ok(Self { tokens: Arc::new(tokens), room, is_whole: false, cls_token_id, sep_token_id })
    }

    /// At most `limit` of the held-out windows, from all over the file; the same at every call.
    pub fn held_out(&self, limit: usize) -> Vec<MaskedLmExample> {
        let mut drawn = Vec::new();
        let mut rng = ChaCha8Rng::seed_from_u64(0); // a fixed seed, so that validation losses compare
        for (index, window) in (0..self.num_windows()).step_by(HELD_OUT_EVERY).enumerate() {
            // Vitter's algorithm R: every window has the same chance, in one pass.
            match rng.random_range(0..=index) {
                _ if drawn.len() < limit => drawn.push(window),
                place if place < limit => drawn[place] = window,
                _ => {}
            }
        }
        drawn.into_iter().map(|window| self.window(window)).collect()
    }

    /// All windows of the file, of which the last may be shorter.
    fn num_windows(&self) -> usize {
        self.tokens.len().div_ceil(self.room)
    }

    /// A window, with its words numbered from its first.
    fn window(&self, number: usize) -> MaskedLmExample {
        let start = number * self.room;
        let tokens = &self.tokens[start..self.tokens.len().min(start + self.room)];
        let ids = tokens.iter().map(|token| token & !CONTINUES);
        let ids = [self.cls_token_id].into_iter().chain(ids).chain([self.sep_token_id]).collect();
        let mut word = 0;
        let words = tokens.iter().map(|token| {
            word += u32::from(token & CONTINUES == 0);
            Some(word)
        });
        let words = [None].into_iter().chain(words).chain([None]).collect();
        MaskedLmExample::new(ids).with_word_ids(words)
    }
}

/// A text for masked language modelling in memory, of a file or of the caller. A [`Trainer`](crate::training::Trainer) cuts it
/// into windows of its [`max_length`](crate::training::TrainingArguments::max_length).
///
/// ```
/// use burn_bert::data::PlainText;
///
/// let text = PlainText::new(["The cat sat on the mat.", "It slept."])?.with_whole_word_masking(true);
/// # let _ = text;
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PlainText {
    pub(crate) lines: Arc<Vec<String>>,
    pub(crate) mlm_probability: f64,
    pub(crate) whole_word_masking: bool,
}

impl PlainText {
    /// Lines that are in memory already. Returns [`Error::Empty`] if all are blank.
    pub fn new<T: Into<String>>(lines: impl IntoIterator<Item = T>) -> Result<Self> {
        let lines: Vec<String> = lines.into_iter().map(Into::into).collect();
        if lines.iter().all(|line| line.trim().is_empty()) {
            return Err(Error::Empty { input: "lines", shape: vec![lines.len()] });
        }
        Ok(Self { lines: Arc::new(lines), mlm_probability: 0.15, whole_word_masking: false })
    }

    /// Reads a UTF-8 file. Errors are those of [`Lines`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(Lines::open(path)?.collect::<Result<Vec<_>>>()?)
    }

    /// Sets the share of the tokens that are masked, in (0, 1]; 0.15 by default.
    pub fn with_mlm_probability(self, mlm_probability: f64) -> Self {
        Self { mlm_probability, ..self }
    }

    /// Sets whether all tokens of a word are masked together.
    pub fn with_whole_word_masking(self, whole_word_masking: bool) -> Self {
        Self { whole_word_masking, ..self }
    }
}

/// The windows that are not held out.
impl Dataset<MaskedLmExample> for Corpus {
    fn get(&self, index: usize) -> Result<MaskedLmExample, DatasetError> {
        if self.is_whole {
            return Ok(self.window(index));
        }
        // Window 0 is held out, then every twentieth: nineteen of the dataset lie between two of those.
        Ok(self.window(index + index / (HELD_OUT_EVERY - 1) + 1))
    }

    fn len(&self) -> usize {
        let held_out = if self.is_whole { 0 } else { self.num_windows().div_ceil(HELD_OUT_EVERY) };
        self.num_windows() - held_out
    }
}
