//! The lookup tables, by name.

use std::fmt;

/// One of the layer's three lookup tables, or a table that stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmbeddingTable {
    /// `word_embeddings`, indexed by `input_ids`.
    Word,
    /// `position_embeddings`, indexed by `position_ids`.
    Position,
    /// `token_type_embeddings`, indexed by `token_type_ids`.
    TokenType,
    /// A [`TokenEmbedding`](crate::TokenEmbedding) used by itself.
    Embedding,
}

impl EmbeddingTable {
    /// What to do about an id that has no row.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            EmbeddingTable::Word => "is this the tokenizer that the model was made with?",
            EmbeddingTable::Position => "shorten the sequence or extend max_position_embeddings",
            EmbeddingTable::TokenType => "type_vocab_size is the number of segment kinds",
            EmbeddingTable::Embedding => "num_embeddings must exceed the largest id",
        }
    }
}

impl fmt::Display for EmbeddingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EmbeddingTable::Word => "word",
            EmbeddingTable::Position => "position",
            EmbeddingTable::TokenType => "token type",
            EmbeddingTable::Embedding => "embedding",
        })
    }
}
