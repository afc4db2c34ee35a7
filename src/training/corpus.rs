//! A text file as sequences to train on.

use super::example::MaskedLmExample;
use crate::error::{Error, Result};
use crate::text::{BertTokenizer, Lines};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};

/// Every so many windows one is held out.
const HELD_OUT_EVERY: usize = 20;

/// Windows that wait to be drawn: the memory that shuffling takes, whatever the size of the file.
const SHUFFLE_BUFFER: usize = 1024;

/// A UTF-8 text file, cut into windows of one length for masked-language modelling.
///
/// The lines are tokenised one after another and joined, and every `seq_len` − 2 tokens become
/// `[CLS] … [SEP]`, all of type 0 (the full sentences of Liu et al. 2019, without separators in between). The file
/// is read in a stream, once for every pass over it; memory does not grow with it.
///
/// One window in twenty, the first included, is held out and never trained on.
#[derive(Clone, Debug)]
pub struct Corpus {
    path: PathBuf,
    tokenizer: BertTokenizer,
    seq_len: usize,
}

impl Corpus {
    /// Opens a file, to be cut into windows of `seq_len` tokens, `[CLS]` and `[SEP]` included.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, [`Error::NoText`] if there is no text in it, [`Error::NotUtf8`];
    /// [`Error::Config`] if a window has no room for a token, or is longer than the tokenizer's
    /// [`model_max_length`](BertTokenizer::model_max_length).
    pub fn open(path: impl AsRef<Path>, tokenizer: BertTokenizer, seq_len: usize) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        Lines::open(&path)?;
        let invalid = |problem| Err(Error::Config { field: "seq_len", problem });
        if seq_len < 3 {
            return invalid(format!("is {seq_len}, but a token between [CLS] and [SEP] needs at least 3"));
        }
        if let Some(limit) = tokenizer.model_max_length().filter(|&limit| seq_len > limit) {
            return invalid(format!("is {seq_len}, but the model reads at most {limit} tokens"));
        }
        // Lines are cut by the window, not by the model.
        let tokenizer = tokenizer.with_model_max_length(u32::MAX as usize);
        Ok(Self { path, tokenizer, seq_len })
    }

    /// Of the windows that are held out, `limit` at most, drawn from all over the file.
    ///
    /// Reads and tokenises the whole file, so that a text that cannot be read to its end is refused before
    /// anything is trained on it. The draw is the same each time.
    ///
    /// # Errors
    ///
    /// Those of reading and tokenising the text, and [`Error::Config`] if the whole file is but one window, so
    /// that nothing is left to train on.
    pub fn held_out(&self, limit: usize) -> Result<Vec<MaskedLmExample>> {
        let mut drawn = Vec::new();
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut windows = 0;
        for (index, window) in self.windows()?.enumerate() {
            let window = window?;
            windows = index + 1;
            if !index.is_multiple_of(HELD_OUT_EVERY) {
                continue;
            }
            // Vitter's algorithm R.
            match rng.random_range(0..=index / HELD_OUT_EVERY) {
                _ if drawn.len() < limit => drawn.push(window),
                place if place < limit => drawn[place] = window,
                _ => {}
            }
        }
        if windows < 2 {
            let problem = format!(
                "is {}, and {} has one window of that length: none to train on beside the one held out; shorten \
                 the windows or take more text",
                self.seq_len,
                self.path.display()
            );
            return Err(Error::Config { field: "seq_len", problem });
        }
        Ok(drawn)
    }

    /// The windows to train on, pass after pass over the file without end, shuffled by `seed`.
    ///
    /// Each pass draws at random from the next 1,024 windows of the file; the order follows from file and seed
    /// alone.
    pub fn training(&self, seed: u64) -> TrainingWindows {
        TrainingWindows { corpus: self.clone(), seed, passes: 0, pass: None }
    }

    /// One pass over the file, in its order.
    fn windows(&self) -> Result<Windows<'_>> {
        Ok(Windows { pieces: Pieces::new(&self.path)?, corpus: self })
    }
}

/// Tokens of the file and their words, joined and not yet cut.
#[derive(Debug)]
struct Pieces {
    lines: Lines,
    ids: Vec<u32>,
    words: Vec<Option<u32>>,
    next_word: u32,
    is_done: bool,
}

impl Pieces {
    fn new(path: &Path) -> Result<Self> {
        let lines = Lines::open(path)?;
        Ok(Self { lines, ids: Vec::new(), words: Vec::new(), next_word: 0, is_done: false })
    }

    /// The next window; the last of the file may be shorter.
    fn next(&mut self, corpus: &Corpus) -> Result<Option<MaskedLmExample>> {
        let room = corpus.seq_len - 2;
        while self.ids.len() < room && !self.is_done {
            match self.lines.next() {
                Some(line) => self.add(&line?, &corpus.tokenizer)?,
                None => self.is_done = true,
            }
        }
        let length = room.min(self.ids.len());
        if length == 0 {
            return Ok(None);
        }
        let tokenizer = &corpus.tokenizer;
        let ids = [tokenizer.cls_token_id()].into_iter().chain(self.ids.drain(..length));
        let ids = ids.chain([tokenizer.sep_token_id()]).collect();
        let words = [None].into_iter().chain(self.words.drain(..length)).chain([None]).collect();
        Ok(Some(MaskedLmExample::new(ids).with_word_ids(words)))
    }

    fn add(&mut self, line: &str, tokenizer: &BertTokenizer) -> Result<()> {
        let encoding = tokenizer.encode(line)?;
        let first_word = self.next_word;
        let tokens = encoding.input_ids().iter().zip(encoding.word_ids());
        for ((&id, word), is_special) in tokens.zip(encoding.special_tokens_mask()) {
            if !is_special {
                let word = word.map(|word| first_word.wrapping_add(word));
                self.next_word = word.map_or(self.next_word, |word| word.wrapping_add(1));
                self.ids.push(id);
                self.words.push(word);
            }
        }
        Ok(())
    }
}

struct Windows<'a> {
    corpus: &'a Corpus,
    pieces: Pieces,
}

impl Iterator for Windows<'_> {
    type Item = Result<MaskedLmExample>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pieces.next(self.corpus).transpose()
    }
}

/// What [`Corpus::training`] gives: an iterator that ends with an error or not at all.
#[derive(Debug)]
pub struct TrainingWindows {
    corpus: Corpus,
    seed: u64,
    passes: u64,
    pass: Option<Pass>,
}

/// One pass over the file.
#[derive(Debug)]
struct Pass {
    pieces: Pieces,
    /// Windows that were read.
    read: usize,
    /// Windows that wait to be drawn.
    buffer: Vec<MaskedLmExample>,
    rng: ChaCha8Rng,
}

impl Pass {
    fn draw(&mut self, corpus: &Corpus) -> Result<Option<MaskedLmExample>> {
        while self.buffer.len() < SHUFFLE_BUFFER
            && let Some(window) = self.pieces.next(corpus)?
        {
            if !self.read.is_multiple_of(HELD_OUT_EVERY) {
                self.buffer.push(window);
            }
            self.read += 1;
        }
        Ok(match self.buffer.len() {
            0 => None,
            length => Some(self.buffer.swap_remove(self.rng.random_range(0..length))),
        })
    }
}

impl TrainingWindows {
    fn draw(&mut self) -> Result<MaskedLmExample> {
        if let Some(pass) = &mut self.pass
            && let Some(window) = pass.draw(&self.corpus)?
        {
            return Ok(window);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(self.passes);
        self.passes += 1;
        let pieces = Pieces::new(&self.corpus.path)?;
        let pass = self.pass.insert(Pass { pieces, read: 0, buffer: Vec::new(), rng });
        pass.draw(&self.corpus)?.ok_or_else(|| Error::NoText { path: self.corpus.path.clone() })
    }
}

impl Iterator for TrainingWindows {
    type Item = Result<MaskedLmExample>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.draw())
    }
}
