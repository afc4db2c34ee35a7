//! From text to batches.
//!
//! [`BertTokenizer`] reads the tokenizer of a Hugging Face checkpoint, and returns the same ids as transformers' tokenizers:
//!
//! ```
//! use burn::prelude::*;
//! use burn_bert::text::BertTokenizer;
//!
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! std::fs::write(dir.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n##s\nsat\nslept\n.\n")?;
//!
//! let tokenizer = BertTokenizer::from_pretrained(dir)?;
//! let encodings = tokenizer.encode_batch(&["The cats sat.", "The cat [MASK]."])?;
//! assert_eq!(encodings[0].input_ids(), [2, 5, 6, 7, 8, 10, 3]); // [CLS] the cat ##s sat . [SEP]
//!
//! let batch = tokenizer.batch(&encodings, &Device::default())?;
//! assert_eq!(batch.input.dims(), [2, 7]);
//! assert!(batch.padding.is_some()); // the second text is one token shorter
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In a custom loop, [`limit_tokenizer`](crate::model::PretrainedModel::limit_tokenizer) cuts texts to what a model reads. For
//! masked language modelling, an [`Encoding`] turns into a [`MaskedLmExample`](crate::data::MaskedLmExample).

mod check;
mod classes;
mod files;
mod long_texts;
mod sentencepiece;
mod settings;
mod special_tokens;
mod tokenizer;
mod words;

pub use tokenizer::BertTokenizer;

use crate::embeddings::BertEmbeddingsInput;
use crate::layers::PaddingMask;

/// The tokens of one text or of a pair, special tokens included, not padded. Made by
/// [`BertTokenizer`]; [the module](self) has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    input_ids: Vec<u32>,
    token_type_ids: Vec<u32>,
    special_tokens_mask: Vec<bool>,
    word_ids: Vec<Option<u32>>,
    offsets: Vec<(usize, usize)>,
    sequence_ids: Vec<Option<usize>>,
    is_truncated: bool,
}

impl Encoding {
    /// The token ids.
    pub fn input_ids(&self) -> &[u32] {
        &self.input_ids
    }

    /// The token types (segments): 1 in the second text of a pair with BERT, else 0.
    pub fn token_type_ids(&self) -> &[u32] {
        &self.token_type_ids
    }

    /// True at tokens that the tokenizer added, unlike a `[MASK]` in the text itself.
    pub fn special_tokens_mask(&self) -> &[bool] {
        &self.special_tokens_mask
    }

    /// The word that each token belongs to, counted from 0 in each text of a pair; `None` for added tokens.
    pub fn word_ids(&self) -> &[Option<u32>] {
        &self.word_ids
    }

    /// The text of a pair that each token belongs to, 0 or 1; `None` for added tokens.
    pub fn sequence_ids(&self) -> &[Option<usize>] {
        &self.sequence_ids
    }

    /// Where each token starts and ends in its text, in bytes; (0, 0) for added tokens. (transformers'
    /// `offset_mapping` counts characters.) They slice the text: a token of one byte of a character is at the whole character or
    /// has no bytes. Of words, each is a text of its own.
    pub fn offsets(&self) -> &[(usize, usize)] {
        &self.offsets
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.input_ids.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.input_ids.is_empty()
    }

    /// Whether a text was cut, as it has more tokens than [`model_max_length`](BertTokenizer::model_max_length) allows. Windows of a
    /// text hold all of it.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// The encoding of a text, or of a pair whose first text has `first` tokens. `trim_offsets` is the tokenizer's.
    fn new(
        encoding: &tokenizers::Encoding,
        first: usize,
        texts: [TokenizedText; 2],
        trim_offsets: Option<bool>,
    ) -> Self {
        let special_tokens_mask: Vec<bool> =
            encoding.get_special_tokens_mask().iter().map(|&mask| mask != 0).collect();
        // tokenizers' own are wrong for a pair whose texts were tokenised one by one.
        let mut tokens = 0;
        let sequence_id = |&is_added: &bool| {
            tokens += usize::from(!is_added);
            (!is_added).then_some(usize::from(tokens > first))
        };
        let sequence_ids: Vec<Option<usize>> = special_tokens_mask.iter().map(sequence_id).collect();
        let word_ids = encoding.get_word_ids().to_vec();
        let offsets = (0..encoding.len()).map(|token| {
            let Some(sequence) = sequence_ids[token] else { return (0, 0) };
            let text = texts[sequence].text_of(word_ids[token]);
            let (start, end) = encoding.get_offsets()[token];
            // Byte fallback gives each byte of a character a token.
            let span = (text.floor_char_boundary(start), text.floor_char_boundary(end));
            let is_first = span.0 == 0 || token == 0 || sequence_ids[token - 1] != Some(sequence);
            let (start, end) = trim_offsets.map_or(span, |add_prefix_space| {
                trimmed(&encoding.get_tokens()[token], text, span, is_first && add_prefix_space)
            });
            let space = texts[sequence].space_before(word_ids[token]);
            (start.saturating_sub(space), end.saturating_sub(space))
        });
        Self {
            offsets: offsets.collect(),
            input_ids: encoding.get_ids().to_vec(),
            token_type_ids: encoding.get_type_ids().to_vec(),
            word_ids,
            sequence_ids,
            special_tokens_mask,
            is_truncated: false,
        }
    }
}

/// What tokens are of: a text, or words each of which is a text of its own.
#[derive(Clone, Copy)]
enum TokenizedText<'a> {
    Text(&'a str),
    /// The words as they are tokenized, and their lengths without the space before them.
    Words(&'a [String], &'a [usize]),
}

impl<'a> TokenizedText<'a> {
    fn text_of(self, word: Option<u32>) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Words(words, _) => word.map_or("", |word| &words[word as usize]),
        }
    }

    /// The bytes before a word that the caller's own lacks.
    fn space_before(self, word: Option<u32>) -> usize {
        match (self, word) {
            (Self::Words(words, lengths), Some(word)) => words[word as usize].len() - lengths[word as usize],
            _ => 0,
        }
    }
}

/// The bytes of a token in its text without the white space at its ends. With `has_prefix`, a single space at its start is the
/// tokenizer's own and not in the text.
///
/// Source: `process_offsets` of the crate tokenizers 0.22, which counts characters and is right for offsets in characters alone.
fn trimmed(token: &str, text: &str, (start, end): (usize, usize), has_prefix: bool) -> (usize, usize) {
    // A byte-level space.
    let is_space = |c: &char| *c == 'Ġ' || c.is_whitespace();
    let leading = token.chars().take_while(is_space).count();
    let leading = if has_prefix && leading == 1 { 0 } else { leading };
    let trailing = token.chars().rev().take_while(is_space).count();
    let start = text[start..end].char_indices().nth(leading).map_or(end, |(index, _)| start + index);
    let cut = text[start..end].char_indices().rev().take(trailing).last();
    (start, cut.map_or(end, |(index, _)| start + index))
}

/// A text without the white space at its start, as Python's `str.lstrip`: the separators U+001C to U+001F are white space there.
pub(crate) fn lstrip(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

/// Texts as a batch for [`BertEmbeddings`](crate::BertEmbeddings) and the models. Made by [`BertTokenizer::batch`].
#[derive(Clone, Debug)]
pub struct TextBatch {
    /// The tokens and their types, padded at the end.
    pub input: BertEmbeddingsInput,
    /// The padding, [B, S], for [`BertModel::forward`](crate::model::BertModel::forward); `None` if there is none.
    pub padding: Option<PaddingMask>,
}
