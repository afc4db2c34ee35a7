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
        let invalid = |problem| Err(Error::Config { field: "seq_len", problem });
        let lines = Lines::open(path)?;
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
            let encoding = tokenizer.encode(&line?)?;
            let mut last_word = None;
            let words = encoding.input_ids().iter().zip(encoding.word_ids());
            for ((&id, &word), &is_special) in words.zip(encoding.special_tokens_mask()) {
                if is_special {
                    continue;
                }
                if id >= CONTINUES {
                    let what = format!("the id {id} of a token in {}", path.display());
                    return Err(Error::data(what, "is too large; ids must be below 2³¹"));
                }
                tokens.push(if word.is_some() && word == last_word { id | CONTINUES } else { id });
                last_word = word;
            }
        }
        let corpus = Self { tokens: Arc::new(tokens), room, cls_token_id, sep_token_id };
        if corpus.num_windows() < 2 {
            return invalid(format!(
                "is {seq_len}, but {} has only one window of that length, and it is held out; shorten seq_len or add \
                 text",
                path.display()
            ));
        }
        Ok(corpus)
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

/// The windows that are not held out.
impl Dataset<MaskedLmExample> for Corpus {
    fn get(&self, index: usize) -> Result<MaskedLmExample, DatasetError> {
        // Window 0 is held out, then every twentieth: nineteen of the dataset lie between two of those.
        Ok(self.window(index + index / (HELD_OUT_EVERY - 1) + 1))
    }

    fn len(&self) -> usize {
        self.num_windows() - self.num_windows().div_ceil(HELD_OUT_EVERY)
    }
}
