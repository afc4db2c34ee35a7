//! Long texts as windows, and the words that tokens belong to.

use super::chars::Chars;
use super::encoding::Encoding;
use super::tokenizer::{BertTokenizer, failed};
use crate::error::{Error, Result};
use tokenizers::models::ModelWrapper;
use tokenizers::utils::truncation::{TruncationParams, truncate_encodings};

impl BertTokenizer {
    /// Encodes one text of any length as windows of at most [`model_max_length`](Self::model_max_length) tokens, each
    /// with its own special tokens; neighbouring windows share `stride` tokens (transformers'
    /// `return_overflowing_tokens`).
    ///
    /// # Errors
    ///
    /// Those of [`encode`](Self::encode), and [`Error::Data`] if a window has no more than `stride`
    /// tokens beside the special ones.
    pub fn encode_windows(&self, text: &str, stride: usize) -> Result<Vec<Encoding>> {
        let windows = self.windows(self.tokenize(text)?, self.room(false)?, stride, String::new)?;
        windows.into_iter().map(|window| self.finish(window, None)).collect()
    }

    /// Encodes a pair whose second text has any length as windows: each has the first text, and as much of the second as
    /// fits; neighbouring windows share `stride` tokens of it (transformers' `truncation="only_second"` with
    /// `return_overflowing_tokens`).
    ///
    /// # Errors
    ///
    /// Those of [`encode`](Self::encode), and [`Error::Data`] if the first text leaves room for no more than `stride`
    /// tokens of the second.
    pub fn encode_pair_windows(&self, text: &str, pair: &str, stride: usize) -> Result<Vec<Encoding>> {
        let first = self.tokenize(text)?;
        let room = self.room(true)?.map(|room| room.saturating_sub(first.len()));
        let beside = || {
            let start: String = text.chars().take(40).collect();
            format!(" and the {} tokens of {start:?}{}", first.len(), if start == text { "" } else { "…" })
        };
        let windows = self.windows(self.tokenize(pair)?, room, stride, beside)?;
        windows.into_iter().map(|window| self.finish(first.clone(), Some(window))).collect()
    }

    /// The tokens of a text in windows of at most `room` tokens.
    fn windows(
        &self,
        text: tokenizers::Encoding,
        room: Option<usize>,
        stride: usize,
        beside: impl Fn() -> String,
    ) -> Result<Vec<tokenizers::Encoding>> {
        let Some(room) = room else { return Ok(vec![text]) };
        if stride >= room {
            let problem = format!(
                "must hold more than that, but have room for only {room} beside the special tokens{}; set a smaller \
                 stride or a larger model_max_length",
                beside()
            );
            return Err(Error::data(format!("windows that overlap by {stride} tokens"), problem));
        }
        let params = TruncationParams { max_length: room, stride, ..Default::default() };
        let (mut first, _) = truncate_encodings(text, None, &params).map_err(failed)?;
        let rest = first.take_overflowing();
        Ok(std::iter::once(first).chain(rest).collect())
    }

    /// Whether a token, at these characters of a text, continues the word of the token before it, as decided by
    /// `TokenClassificationPipeline` of transformers 5.23: in vocabularies with a prefix such as `##`, if the token is
    /// not as long as its text; in others, if there is no space before it. An unknown token begins a word.
    pub(crate) fn continues_word(&self, id: u32, text: &Chars, start: usize, end: usize) -> bool {
        if self.special.unk.as_ref().is_some_and(|unk| unk.id == id) {
            return false;
        }
        let has_prefix = match self.tokenizer.get_model() {
            ModelWrapper::WordPiece(model) => !model.continuing_subword_prefix.is_empty(),
            ModelWrapper::BPE(model) => {
                model.continuing_subword_prefix.as_ref().is_some_and(|prefix| !prefix.is_empty())
            }
            _ => false,
        };
        if has_prefix {
            let token = self.id_to_token(id).unwrap_or_default();
            return token.chars().count() != end - start;
        }
        start > 0 && !text.slice(start - 1, start + 1).contains(' ')
    }
}
