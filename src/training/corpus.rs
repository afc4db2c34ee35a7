//! A text file as sequences.

use super::example::MaskedLmExample;
use super::order;
use super::training_windows::TrainingWindows;
use super::window_index::WindowIndex;
use super::windows::WindowedText;
use crate::error::{Error, Result};
use crate::text::{BertTokenizer, Lines};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A UTF-8 text file, cut into windows of one length for masked language modelling.
///
/// The lines are tokenised one after another and joined, and every `seq_len` − 2 tokens become `[CLS] … [SEP]`, all of
/// type 0 (the full sentences of Liu et al. 2019, without separators in between). The file is streamed, once per pass;
/// apart from the [index](WindowIndex), memory does not grow with it.
///
/// One window in twenty, the first included, is held out and never trained on.
/// [`TrainingLoader`](super::TrainingLoader) has an example.
#[derive(Clone, Debug)]
pub struct Corpus {
    text: Arc<WindowedText>,
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
        let tokenizer = tokenizer.without_limit();
        Ok(Self { text: Arc::new(WindowedText { path, tokenizer, seq_len, index: OnceLock::new() }) })
    }

    /// Uses an index that [`index`](Self::index) returned earlier for the same file, instead of building it again.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it is of a file of another size or of windows of another length, or damaged;
    /// [`Error::Io`] if the file's size cannot be read.
    pub fn with_index(self, index: WindowIndex) -> Result<Self> {
        let WindowedText { path, tokenizer, seq_len, .. } = &*self.text;
        let size = self.text.file_size()?;
        if index.file_size() != size || index.seq_len() != *seq_len {
            let problem = format!(
                "is of a file of {} bytes in windows of {} tokens, but {} has {size} bytes and windows are of \
                 {seq_len} tokens",
                index.file_size(),
                index.seq_len(),
                path.display()
            );
            return Err(Error::Config { field: "index", problem });
        }
        if !index.is_whole() {
            let problem = "is damaged: its places are not those of its windows; build it again".into();
            return Err(Error::Config { field: "index", problem });
        }
        let (path, tokenizer, seq_len) = (path.clone(), tokenizer.clone(), *seq_len);
        Ok(Self { text: Arc::new(WindowedText { path, tokenizer, seq_len, index: OnceLock::from(index) }) })
    }

    /// Where the windows start. The first call reads and tokenises the whole file; clones share the result.
    ///
    /// # Errors
    ///
    /// Those of reading and tokenising the text.
    pub fn index(&self) -> Result<&WindowIndex> {
        self.text.index()
    }

    /// At most `limit` of the windows that are held out, from all over the file.
    ///
    /// Needs the [index](Self::index), so a text that cannot be read to its end is refused before training. The choice
    /// is the same each time.
    ///
    /// # Errors
    ///
    /// Those of reading and tokenising the text, and [`Error::Config`] if the whole file is a single window, so that
    /// nothing is left to train on.
    pub fn held_out(&self, limit: usize) -> Result<Vec<MaskedLmExample>> {
        let windows = self.index()?.num_windows();
        if windows < 2 {
            return Err(self.text.one_window());
        }
        let drawn = order::held_out(windows, limit);
        let mut by_number: Vec<(usize, usize)> = drawn.into_iter().enumerate().map(|(i, n)| (n, i)).collect();
        by_number.sort_unstable();
        let numbers: Vec<usize> = by_number.iter().map(|&(number, _)| number).collect();
        let examples = self.text.windows(&numbers)?;
        let mut examples: Vec<_> = by_number.into_iter().map(|(_, place)| place).zip(examples).collect();
        examples.sort_unstable_by_key(|&(place, _)| place);
        Ok(examples.into_iter().map(|(_, example)| example).collect())
    }

    /// The training windows, shuffled by `seed`, in an endless sequence of passes over the file.
    ///
    /// Each pass draws at random from the next 1,024 windows of the file; the order depends on the file and the seed
    /// only. An item is [`Error::Config`] if the whole file is a single window, which is held out.
    pub fn training(&self, seed: u64) -> TrainingWindows {
        TrainingWindows::new(self.text.clone(), seed)
    }
}
