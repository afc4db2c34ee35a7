use super::examples::in_parallel;
use super::masked_lm_collator::MaskedLmExample;
use crate::error::{Error, Result};
use crate::files::regular_file;
use crate::layers::ensure;
use crate::text::BertTokenizer;
use burn::data::dataset::{Dataset, DatasetError};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

/// The bit of a stored id whose token continues the word of the one before it. A separate list of words would double the memory.
const CONTINUES: u32 = 1 << 31;

/// Bytes of a line that are tokenised at once: the tokenizer takes hundreds of times as much memory.
const PIECE: usize = 1 << 20;

/// Bytes of text whose lines are tokenised at the same time, on as many threads as there are, for the same reason.
const PART: usize = 4 * PIECE;

/// A text for masked language modelling in memory. A [`Trainer`](crate::training::Trainer) cuts it into windows of its
/// [`max_length`](crate::training::TrainingArguments::max_length).
///
/// ```
/// use burn_bert::data::PlainText;
///
/// let text = PlainText::new(["The cat sat on the mat.", "It slept."])?.with_whole_word_masking(true);
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PlainText {
    lines: Arc<Vec<String>>,
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

    /// Reads the lines of a UTF-8 file. Returns [`Error::File`] if it is not a regular file, empty or blank; [`Error::Io`],
    /// [`Error::NotUtf8`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (mut lines, mut offset) = (Vec::new(), 0);
        for (number, line) in (1..).zip(BufReader::new(regular_file::open(path)?).split(b'\n')) {
            let line = line.map_err(|source| Error::reading(path, source))?;
            let text = str::from_utf8(&line).map_err(|error| {
                let offset = offset + error.valid_up_to() as u64;
                Error::NotUtf8 { path: path.to_path_buf(), line: number, offset }
            })?;
            // A byte order mark, which would be part of the first word.
            let text = if offset == 0 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
            lines.extend(Some(text.trim().to_string()).filter(|text| !text.is_empty()));
            offset += line.len() as u64 + 1; // with its line feed
        }
        if lines.is_empty() { Err(Error::no_text(path)) } else { Self::new(lines) }
    }

    /// The text in windows of `seq_len` tokens, `[CLS]` and `[SEP]` included. Errors are those of the tokenizer;
    /// [`Error::Config`] if a window has no room for a token or exceeds the tokenizer's
    /// [`model_max_length`](BertTokenizer::model_max_length); [`Error::Data`] if an id is 2³¹ or more.
    pub fn windows(&self, tokenizer: BertTokenizer, seq_len: usize) -> Result<TextWindows> {
        self.cut(&tokenizer, seq_len, &|| Ok(()))
    }

    /// [`windows`](Self::windows), in parallel; an error of `check`, which is asked before each line, ends it.
    pub(crate) fn cut(
        &self,
        tokenizer: &BertTokenizer,
        seq_len: usize,
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<TextWindows> {
        let probability = self.mlm_probability;
        let is_allowed = 0.0 < probability && probability <= 1.0;
        ensure(is_allowed, "mlm_probability", || format!("is {probability}, but must lie in (0, 1]"))?;
        let too_short = || format!("is {seq_len}, but a token between [CLS] and [SEP] needs at least 3");
        ensure(seq_len >= 3, "seq_len", too_short)?;
        let limit = tokenizer.model_max_length().unwrap_or(usize::MAX);
        let too_long = || format!("is {seq_len}, but the tokenizer's model_max_length is {limit}");
        ensure(seq_len <= limit, "seq_len", too_long)?;
        let (room, cls_token_id, sep_token_id) =
            (seq_len - 2, tokenizer.cls_token_id(), tokenizer.sep_token_id());
        let tokenize = |line: &str| {
            let (encoding, mut last_word) = (tokenizer.tokenize(line)?, None);
            let token = |(&id, &word): (&u32, &Option<u32>)| {
                if id >= CONTINUES {
                    let what = format!("the id {id} of a token in the text");
                    return Err(Error::data(what, "is too large; ids must be below 2³¹"));
                }
                let continues = word.is_some() && word == last_word;
                last_word = word;
                Ok(if continues { id | CONTINUES } else { id })
            };
            encoding.get_ids().iter().zip(encoding.get_word_ids()).map(token).collect::<Result<Vec<_>>>()
        };
        let lines: Vec<&str> = self.lines.iter().flat_map(|line| pieces(line)).collect();
        let (mut tokens, mut rest) = (Vec::new(), &lines[..]);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |line: &&&str| {
                bytes += line.len();
                bytes <= PART
            };
            let (part, after) = rest.split_at(rest.iter().take_while(fits).count());
            tokens.extend(in_parallel(part.len(), check, |line| tokenize(part[line]))?.into_iter().flatten());
            rest = after;
        }
        Ok(TextWindows { tokens, room, cls_token_id, sep_token_id })
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

/// A line in pieces of at most [`PIECE`] bytes, cut after white space or, if there is none, between two characters.
fn pieces(mut line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while line.len() > PIECE {
        let start = &line[..line.floor_char_boundary(PIECE)];
        let end = match start.trim_end_matches(|c: char| !c.is_whitespace()).len() {
            0 => start.len(),
            after_space => after_space,
        };
        pieces.push(line[..end].trim_end());
        line = &line[end..];
    }
    pieces.push(line);
    pieces
}

/// A [`PlainText`] cut into windows of one length, for an [`EpochLoader`](super::EpochLoader).
///
/// The lines are tokenised and joined, and every `seq_len` − 2 tokens become `[CLS] … [SEP]`, all of type 0 (the full sentences
/// of Liu et al. 2019, without separators in between). The last window may be shorter. Memory: four bytes per token.
#[derive(Clone, Debug)]
pub struct TextWindows {
    tokens: Vec<u32>,
    /// Tokens in a window, without `[CLS]` and `[SEP]`.
    room: usize,
    cls_token_id: u32,
    sep_token_id: u32,
}

impl Dataset<MaskedLmExample> for TextWindows {
    /// A window, with its words numbered from its first.
    fn get(&self, index: usize) -> Result<MaskedLmExample, DatasetError> {
        let start = index * self.room;
        let tokens = &self.tokens[start..self.tokens.len().min(start + self.room)];
        let ids = tokens.iter().map(|token| token & !CONTINUES);
        let ids = [self.cls_token_id].into_iter().chain(ids).chain([self.sep_token_id]).collect();
        let mut word = 0;
        let words = tokens.iter().map(|token| {
            word += u32::from(token & CONTINUES == 0);
            Some(word)
        });
        let words = [None].into_iter().chain(words).chain([None]).collect();
        Ok(MaskedLmExample::new(ids).with_word_ids(words))
    }

    fn len(&self) -> usize {
        self.tokens.len().div_ceil(self.room)
    }
}
