//! The sequences of a batch.

/// One sequence, not yet padded; a [`MaskedLmCollator`](super::MaskedLmCollator) makes batches of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedLmExample {
    input_ids: Vec<u32>,
    token_type_ids: Option<Vec<u32>>,
    position_ids: Option<Vec<u32>>,
    word_ids: Option<Vec<Option<u32>>>,
}

impl MaskedLmExample {
    /// A sequence of token ids, special tokens included, of type 0 and at default positions.
    pub fn new(input_ids: Vec<u32>) -> Self {
        Self { input_ids, token_type_ids: None, position_ids: None, word_ids: None }
    }

    /// Sets the type (segment) of each token.
    pub fn with_token_type_ids(self, token_type_ids: Vec<u32>) -> Self {
        Self { token_type_ids: Some(token_type_ids), ..self }
    }

    /// Sets the position of each token.
    pub fn with_position_ids(self, position_ids: Vec<u32>) -> Self {
        Self { position_ids: Some(position_ids), ..self }
    }

    /// Sets the word of each token; `None` for a token of no word, such as `[CLS]`.
    ///
    /// Only neighbours with the same number are one word.
    pub fn with_word_ids(self, word_ids: Vec<Option<u32>>) -> Self {
        Self { word_ids: Some(word_ids), ..self }
    }

    /// The token ids.
    pub fn input_ids(&self) -> &[u32] {
        &self.input_ids
    }

    /// The token types; `None` if all are 0.
    pub fn token_type_ids(&self) -> Option<&[u32]> {
        self.token_type_ids.as_deref()
    }

    /// The positions; `None` for the default ones.
    pub fn position_ids(&self) -> Option<&[u32]> {
        self.position_ids.as_deref()
    }

    /// The word of each token; `None` if none were given.
    pub fn word_ids(&self) -> Option<&[Option<u32>]> {
        self.word_ids.as_deref()
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.input_ids.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.input_ids.is_empty()
    }
}

/// With token types and words.
#[cfg(feature = "tokenizers")]
impl From<crate::text::Encoding> for MaskedLmExample {
    fn from(encoding: crate::text::Encoding) -> Self {
        let (input_ids, token_type_ids, word_ids) = encoding.into_parts();
        Self::new(input_ids).with_token_type_ids(token_type_ids).with_word_ids(word_ids)
    }
}
