//! The lookup tables, by name.

use std::fmt;

/// One of the layer's three lookup tables, or a table that stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Table {
    /// `word_embeddings`, indexed by `input_ids`.
    Word,
    /// `position_embeddings`, indexed by `position_ids`.
    Position,
    /// `token_type_embeddings`, indexed by `token_type_ids`.
    TokenType,
    /// A [`TokenEmbedding`](crate::TokenEmbedding) used by itself.
    Embedding,
}

impl Table {
    /// What to do about an id that has no row.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Table::Word => "is this the tokenizer that the model was made with?",
            Table::Position => "shorten the sequence or extend max_position_embeddings",
            Table::TokenType => "type_vocab_size is the number of segment kinds",
            Table::Embedding => "num_embeddings must exceed the largest id",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Table::Word => "word",
            Table::Position => "position",
            Table::TokenType => "token type",
            Table::Embedding => "embedding",
        })
    }
}
