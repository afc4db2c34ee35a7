//! The crate's one error type.

use std::fmt;

/// What a function of this crate returns when it can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can be wrong with a config or an input.
///
/// Every message says what was found, where, what is allowed, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A config field has a value that no module can be built from.
    #[error("invalid config: {field} {problem}")]
    Config {
        /// The field's name, as in the config struct.
        field: &'static str,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },

    /// An id has no row in its table.
    #[error(
        "{input}{} is {id}, but the {table} table has {rows} rows (valid ids: 0..={}); {}",
        Index(index), rows.saturating_sub(1), table.remedy()
    )]
    IdOutOfRange {
        /// The input that holds the id, such as `input_ids`.
        input: &'static str,
        /// Where in that input, outermost axis first.
        index: Vec<usize>,
        /// The id that was found.
        id: i64,
        /// The table it should index.
        table: Table,
        /// How many rows that table has.
        rows: usize,
    },

    /// An id is outside ±2³¹, so no table can have it.
    #[error("{input}[{row}][{column}] does not fit a 32-bit signed integer; no table has such a row")]
    IdOverflow {
        /// The input that holds the id, such as `input_ids`.
        input: &'static str,
        /// Its row, counted over the batch.
        row: usize,
        /// Its place in the row.
        column: usize,
    },

    /// A sequence needs a position that the position table does not have.
    #[error(
        "the sequence needs position {needed} ({reason}), but the position table has {rows} rows \
         (valid ids: 0..={}); shorten the sequence or extend max_position_embeddings",
        rows.saturating_sub(1)
    )]
    SequenceTooLong {
        /// The largest position that would be looked up.
        needed: usize,
        /// How that number comes about.
        reason: String,
        /// How many rows the position table has.
        rows: usize,
    },

    /// Rows of one batch differ in length.
    #[error(
        "{input}[{row}] has {found} ids, but {input}[0] has {expected}; \
         pad the rows to one length with the padding id"
    )]
    RaggedRows {
        /// The input, such as `input_ids`.
        input: &'static str,
        /// The first row that differs.
        row: usize,
        /// Its length.
        found: usize,
        /// The length of row 0.
        expected: usize,
    },

    /// An input's shape does not fit the rest of the batch.
    #[error("{input} has shape {found:?}, but {expected} is needed")]
    ShapeMismatch {
        /// The input, such as `token_type_ids`.
        input: &'static str,
        /// The shape that was given.
        found: Vec<usize>,
        /// The shapes that are allowed, in words.
        expected: String,
    },

    /// A batch without sequences, or sequences without tokens.
    #[error("{input} has shape {shape:?}: a batch needs at least one sequence of at least one token")]
    Empty {
        /// The input, such as `input_ids`.
        input: &'static str,
        /// The shape that was given.
        shape: Vec<usize>,
    },
}

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
    fn remedy(self) -> &'static str {
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

/// Prints `[3, 17]` the way one writes it in code: `[3][17]`.
struct Index<'a>(&'a [usize]);

impl fmt::Display for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|i| write!(f, "[{i}]"))
    }
}
