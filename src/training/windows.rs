//! A text file as windows of one length, one after another or from any place.

use super::example::MaskedLmExample;
use super::window_index::{Place, WindowIndex};
use crate::error::{Error, Result};
use crate::text::{BertTokenizer, Lines};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A text file that is cut into windows.
#[derive(Debug)]
pub(super) struct WindowedText {
    pub(super) path: PathBuf,
    /// It truncates nothing.
    pub(super) tokenizer: BertTokenizer,
    pub(super) seq_len: usize,
    pub(super) index: OnceLock<WindowIndex>,
}

impl WindowedText {
    /// Where the windows start; the first call reads and tokenises the whole file.
    pub(super) fn index(&self) -> Result<&WindowIndex> {
        let size = self.file_size()?;
        match self.index.get() {
            Some(index) if index.file_size() == size => return Ok(index),
            Some(_) => return Err(self.changed()),
            None => {}
        }
        let mut index = WindowIndex::new(self.seq_len, size);
        let mut reader = WindowReader::new();
        while let Some(place) = reader.skip(self)? {
            index.push(place);
        }
        Ok(self.index.get_or_init(|| index))
    }

    /// The size of the file in bytes.
    pub(super) fn file_size(&self) -> Result<u64> {
        let metadata = self.path.metadata().map_err(|source| Error::reading(&self.path, source))?;
        Ok(metadata.len())
    }

    /// The windows of these numbers, which ascend.
    pub(super) fn windows(&self, numbers: &[usize]) -> Result<Vec<MaskedLmExample>> {
        let mut reader = WindowReader::new();
        let read = |&number| {
            reader.seek(number, self)?;
            reader.read(self)?.ok_or_else(|| self.changed())
        };
        numbers.iter().map(read).collect()
    }

    /// The only window of the text is held out, so none is left to train on.
    pub(super) fn one_window(&self) -> Error {
        let problem = format!(
            "is {}, but {} has only one window of that length, and it is held out; shorten seq_len or add text",
            self.seq_len,
            self.path.display()
        );
        Error::Config { field: "seq_len", problem }
    }

    fn changed(&self) -> Error {
        let problem = format!("does not fit {}: the text changed since it was indexed", self.path.display());
        Error::Config { field: "index", problem }
    }
}

/// Reads windows in the order of the file, and can skip some.
#[derive(Debug)]
pub(super) struct WindowReader {
    /// The number of the next window.
    next: usize,
    /// Not open before the first window is read.
    pieces: Option<Pieces>,
}

impl WindowReader {
    /// At the start of the file.
    pub(super) fn new() -> Self {
        Self { next: 0, pieces: None }
    }

    /// Goes to a window; only for one that is not the next is the index needed.
    pub(super) fn seek(&mut self, number: usize, text: &WindowedText) -> Result<()> {
        if number == self.next {
            return Ok(());
        }
        let index = text.index()?;
        if let Some(last) = index.num_windows().checked_sub(1) {
            let (before, place) = index.place_before(number.min(last));
            let is_read = self.pieces.as_ref().is_some_and(|pieces| pieces.holds(place));
            if number < self.next || before > self.next && !is_read {
                self.pieces = Some(Pieces::open_at(place, text)?);
                self.next = before;
            }
        }
        while self.next < number && self.skip(text)?.is_some() {}
        Ok(())
    }

    /// The next window; the last of the file may be shorter, and after it is none.
    pub(super) fn read(&mut self, text: &WindowedText) -> Result<Option<MaskedLmExample>> {
        let Some((pieces, length, _)) = self.fill(text)? else { return Ok(None) };
        let tokenizer = &text.tokenizer;
        let (ids, words): (Vec<_>, Vec<_>) = pieces.tokens.drain(..length).unzip();
        let ids =
            [tokenizer.cls_token_id()].into_iter().chain(ids).chain([tokenizer.sep_token_id()]).collect();
        let words = [None].into_iter().chain(words).chain([None]).collect();
        Ok(Some(MaskedLmExample::new(ids).with_word_ids(words)))
    }

    /// Skips the next window and returns where it starts.
    fn skip(&mut self, text: &WindowedText) -> Result<Option<Place>> {
        let Some((pieces, length, place)) = self.fill(text)? else { return Ok(None) };
        pieces.tokens.drain(..length);
        Ok(Some(place))
    }

    /// Reads the lines of the next window: its tokens are the first so many.
    fn fill(&mut self, text: &WindowedText) -> Result<Option<(&mut Pieces, usize, Place)>> {
        let pieces = match &mut self.pieces {
            Some(pieces) => pieces,
            none => none.insert(Pieces::new(Lines::open(&text.path)?)),
        };
        let room = text.seq_len - 2;
        while pieces.tokens.len() < room && pieces.add_line(text)? {}
        let length = room.min(pieces.tokens.len());
        if length == 0 {
            return Ok(None);
        }
        self.next += 1;
        let place = pieces.place_and_advance(length);
        Ok(Some((pieces, length, place)))
    }
}

/// Tokens of the file and their words, joined and not yet cut.
#[derive(Debug)]
struct Pieces {
    lines: Lines,
    tokens: VecDeque<(u32, Option<u32>)>,
    /// The lines that `tokens` are of: where each starts, and how many of its tokens are still here.
    starts: VecDeque<(Place, usize)>,
    next_word: u32,
}

impl Pieces {
    fn new(lines: Lines) -> Self {
        Self { lines, tokens: VecDeque::new(), starts: VecDeque::new(), next_word: 0 }
    }

    fn open_at(place: Place, text: &WindowedText) -> Result<Self> {
        let lines = Lines::open_at(&text.path, place.line)?;
        let mut pieces = Self { next_word: place.first_word, ..Self::new(lines) };
        while pieces.tokens.is_empty() && pieces.add_line(text)? {}
        if place.skip > 0 {
            if place.skip >= pieces.tokens.len() {
                return Err(text.changed());
            }
            pieces.place_and_advance(place.skip);
            pieces.tokens.drain(..place.skip);
        }
        Ok(pieces)
    }

    /// Whether tokens of the line of that place are here.
    fn holds(&self, place: Place) -> bool {
        self.starts.iter().any(|(start, _)| start.line == place.line)
    }

    /// Adds the tokens of the next line; false at the end of the file.
    fn add_line(&mut self, text: &WindowedText) -> Result<bool> {
        let place = Place { line: self.lines.position(), skip: 0, first_word: self.next_word };
        let Some(line) = self.lines.next().transpose()? else { return Ok(false) };
        let encoding = text.tokenizer.encode(&line)?;
        let tokens = encoding.input_ids().iter().zip(encoding.word_ids());
        let before = self.tokens.len();
        for ((&id, word), is_special) in tokens.zip(encoding.special_tokens_mask()) {
            if !is_special {
                let word = word.map(|word| place.first_word.wrapping_add(word));
                self.next_word = word.map_or(self.next_word, |word| word.wrapping_add(1));
                self.tokens.push_back((id, word));
            }
        }
        if self.tokens.len() > before {
            self.starts.push_back((place, self.tokens.len() - before));
        }
        Ok(true)
    }

    /// Where the first token is; moves on by `count` tokens, which must be there.
    fn place_and_advance(&mut self, count: usize) -> Place {
        let first = self.starts[0].0;
        let mut left = count;
        while left > 0 {
            let (place, tokens) = &mut self.starts[0];
            let taken = left.min(*tokens);
            place.skip += taken;
            *tokens -= taken;
            left -= taken;
            if *tokens == 0 {
                self.starts.pop_front();
            }
        }
        first
    }
}
