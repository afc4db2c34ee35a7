//! Long texts: their start, which has the tokens of the whole text, and their windows.

use super::tokenizer::{BertTokenizer, MAX_WORD, check_word};
use super::{Encoding, TokenizedText};
use crate::error::{Error, Result};
use std::iter::once;
use tokenizers::normalizers::{NormalizerWrapper, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::utils::truncation::TruncationDirection;
use tokenizers::{NormalizedString, Normalizer, Tokenizer};

/// The most characters that a normaliser, or an added token, may look ahead. Where a text is cut, so many at the end of
/// its start may become others than in the whole text.
const MAX_LOOKAHEAD: usize = 64;

/// The places of a text, counted from its end, at which a word may start that the whole text does not have: those of the
/// normaliser, of added tokens, of the two characters that a pre-tokenizer looks ahead, and of the word before.
const UNSETTLED: usize = 2 * MAX_LOOKAHEAD + 3;

impl BertTokenizer {
    /// The tokens of a text, or at least the first `room + 1` of them if there are more; and whether it was cut.
    ///
    /// A start of the text has the same tokens as the whole, but for its last words, if the tokenizer
    /// [is local](Self::is_local).
    pub(super) fn tokenize_start(&self, text: &str, room: usize) -> Result<(tokenizers::Encoding, bool)> {
        // English has about 5 bytes a token. Shorter texts are tokenised at once, so the margin costs only the long ones.
        let mut bytes = room.saturating_add(UNSETTLED).saturating_mul(16);
        let keeps_start = self.is_local && self.truncation_side == TruncationDirection::Right;
        while keeps_start && bytes < text.len() {
            let cut = text.floor_char_boundary(bytes);
            // Space before the cut may belong to a token after it that takes the space on its left.
            let start = text[..cut].trim_end();
            let mut tokens = self.tokenize(start)?;
            let settled = settled(&tokens);
            if settled > room {
                tokens.truncate(settled, 0, TruncationDirection::Right);
                return Ok((tokens, true));
            }
            // The last word, or the space after it, which byte-level tokenizers take for one.
            let last = if start.len() < cut { start.len() } else { last_word(&tokens, start) };
            check_word(&text[last..cut])?;
            // So that no text is tokenised many times, and of a long word little more than is needed to refuse it.
            bytes = bytes.saturating_mul(4).min(last + MAX_WORD + 4); // a character has 4 bytes at most
        }
        Ok((self.tokenize(text)?, false))
    }

    /// Whether the words of a text depend on what follows them by no more than [`MAX_LOOKAHEAD`] characters.
    pub(super) fn is_local(tokenizer: &Tokenizer) -> bool {
        let normalizer = tokenizer.get_normalizer();
        let is_short = |text: &str| text.chars().count() <= MAX_LOOKAHEAD;
        let mut added = tokenizer.get_added_tokens_decoder().into_values();
        normalizer.is_none_or(|part| lookahead(part).is_some_and(|characters| characters <= MAX_LOOKAHEAD))
            && tokenizer.get_pre_tokenizer().is_some_and(splits_locally)
            && added.all(|token| {
                let mut content = NormalizedString::from(token.content.as_str());
                normalizer.is_none_or(|part| part.normalize(&mut content).is_ok())
                    && is_short(&token.content)
                    && is_short(content.get())
                    // It takes all space on its left, of which there may be any amount once the text is normalised.
                    && !(token.normalized && token.lstrip)
            })
    }

    /// Encodes one text of any length as windows of at most [`model_max_length`](Self::model_max_length) tokens, each
    /// with its own special tokens; neighbouring windows share `stride` tokens (transformers'
    /// `return_overflowing_tokens`). Errors are those of [`encode`](Self::encode), and [`Error::Data`] if a window has
    /// no more than `stride` tokens besides the special ones.
    pub fn encode_windows(&self, text: &str, stride: usize) -> Result<Vec<Encoding>> {
        self.windows(None, self.tokenize(text)?, TokenizedText::Text(text), stride)
    }

    /// Encodes a pair whose second text has any length as windows: each has the first text, and as much of the second
    /// as fits; neighbouring windows share `stride` tokens of it (transformers' `truncation="only_second"` with
    /// `return_overflowing_tokens`). Errors are those of [`encode`](Self::encode), and [`Error::Data`] if the first
    /// text leaves room for no more than `stride` tokens of the second.
    pub fn encode_pair_windows(&self, text: &str, pair: &str, stride: usize) -> Result<Vec<Encoding>> {
        self.windows(Some(text), self.tokenize(pair)?, TokenizedText::Text(pair), stride)
    }

    /// The windows of all tokens of a text, each with the text `before` it.
    pub(super) fn windows(
        &self,
        before: Option<&str>,
        mut window: tokenizers::Encoding,
        source: TokenizedText,
        stride: usize,
    ) -> Result<Vec<Encoding>> {
        let first = before.map(|before| self.tokenize(before)).transpose()?;
        let taken = first.as_ref().map_or(0, tokenizers::Encoding::len);
        let room = self.room(before.is_some())?;
        let is_full = taken > room;
        let room = room.saturating_sub(taken);
        // A text that fits is one window, whatever the stride.
        if is_full || window.len() > room && stride >= room {
            let beside = before.map_or(String::new(), |before| {
                let start: String = before.chars().take(40).collect();
                format!(" and the {taken} tokens of {start:?}{}", if start == before { "" } else { "…" })
            });
            let problem = format!(
                "must hold more than that, but have room for only {room} beside the special tokens{beside}; set a \
                 smaller stride or a larger model_max_length"
            );
            return Err(Error::data(format!("windows that overlap by {stride} tokens"), problem));
        }
        window.truncate(room, stride, self.truncation_side);
        let rest = window.take_overflowing();
        let windows = once(window).chain(rest).map(|window| {
            let window = (window, source);
            match first.clone().zip(before) {
                Some((first, before)) => {
                    self.finish((first, TokenizedText::Text(before)), Some(window), usize::MAX)
                }
                None => self.finish(window, None, usize::MAX),
            }
        });
        windows.collect()
    }
}

/// The tokens of the words before the last [`UNSETTLED`] offsets at which words start. What a normaliser makes of one
/// character has one offset, however long it is.
fn settled(tokens: &tokenizers::Encoding) -> usize {
    let (words, offsets) = (tokens.get_word_ids(), tokens.get_offsets());
    let mut starts = (1..words.len()).rev().filter(|&i| words[i] != words[i - 1]);
    let (mut offsets_seen, mut last) = (0, usize::MAX);
    let settled = starts.find(|&i| {
        offsets_seen += usize::from(offsets[i].0 != last);
        last = offsets[i].0;
        offsets_seen > UNSETTLED
    });
    settled.unwrap_or(0)
}

/// Where the last word of a text starts.
fn last_word(tokens: &tokenizers::Encoding, text: &str) -> usize {
    let words = tokens.get_word_ids();
    let first = words.iter().position(|word| Some(word) == words.last());
    first.map_or(0, |first| text.floor_char_boundary(tokens.get_offsets()[first].0))
}

/// The characters after a place that a normaliser looks at before it decides what stands there; `None` for any number.
fn lookahead(normalizer: &NormalizerWrapper) -> Option<usize> {
    use NormalizerWrapper::{
        BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Sequence,
        StripAccents,
    };
    match normalizer {
        BertNormalizer(_) | ByteLevel(_) | Lowercase(_) | Nmt(_) | Prepend(_) | StripAccents(_) => Some(0),
        // Accents are sorted and joined with their letter, all of them in its word; a grapheme of 5 bytes is looked up.
        NFC(_) | NFD(_) | NFKC(_) | NFKD(_) | Precompiled(_) => Some(5),
        NormalizerWrapper::Replace(replace) => replaced_characters(replace),
        Sequence(parts) => parts.as_ref().iter().map(lookahead).sum(),
        NormalizerWrapper::StripNormalizer(_) => None,
    }
}

/// The library shows a pattern only as JSON.
fn replaced_characters(replace: &Replace) -> Option<usize> {
    let pattern = serde_json::to_value(replace).ok()?["pattern"].take();
    match pattern["Regex"].as_str() {
        // A run of spaces, as in XLM-RoBERTa's files.
        Some(regex) => (regex == " {2,}").then_some(1),
        None => pattern["String"].as_str().map(|text| text.chars().count()),
    }
}

/// Whether where a word ends depends on the two characters after it at most (`'re` of byte-level tokenizers).
fn splits_locally(pre_tokenizer: &PreTokenizerWrapper) -> bool {
    use PreTokenizerWrapper::{
        BertPreTokenizer, ByteLevel, Metaspace, Punctuation, Sequence, Whitespace, WhitespaceSplit,
    };
    match pre_tokenizer {
        BertPreTokenizer(_) | ByteLevel(_) | Metaspace(_) | Punctuation(_) => true,
        Whitespace(_) | WhitespaceSplit(_) => true,
        Sequence(parts) => parts.as_ref().iter().all(splits_locally),
        _ => false,
    }
}
