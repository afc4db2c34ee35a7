//! How errors are made: their constructors, and the parts of messages.

use super::Error;
use burn::module::ParamGroupError;
use burn::prelude::Device;
use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::Path;

impl Error {
    /// The devices are named without autodiff, which makes no difference here.
    pub(crate) fn device_mismatch(input: &'static str, found: Device, expected: Device) -> Self {
        Self::DeviceMismatch { input, found: found.inner().into(), expected: expected.inner().into() }
    }

    pub(crate) fn config(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Config { field, problem: problem.into() }
    }

    pub(crate) fn data(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Data { what: what.into(), problem: problem.into() }
    }

    pub(crate) fn shape(
        input: &'static str,
        found: impl Into<Vec<usize>>,
        expected: impl Into<String>,
    ) -> Self {
        Self::ShapeMismatch { input, found: found.into(), expected: expected.into() }
    }

    #[cfg(feature = "checkpoint")]
    pub(crate) fn not_a_checkpoint(path: &Path, problem: impl Into<String>) -> Self {
        Self::NotACheckpoint { path: path.to_path_buf(), problem: problem.into() }
    }

    #[cfg(feature = "checkpoint")]
    pub(crate) fn missing_key(path: &Path, key: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::MissingKey { path: path.to_path_buf(), key: key.into(), hint: hint.into() }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.into() }
    }

    pub(crate) fn no_text(path: &Path) -> Self {
        Self::file(path, "has no text: it is empty, or has only blank lines or a header")
    }

    pub(crate) fn reading(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "read", path: path.to_path_buf(), source }
    }

    #[cfg(feature = "checkpoint")]
    pub(crate) fn writing(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "write", path: path.to_path_buf(), source }
    }
}

/// A sentence in place of the derived fields, because Rust prints this of an error that `main` returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // A wrapper's message often ends with its cause's, or is the same.
            if !printed.ends_with(&text) {
                printed = format!("{printed}\n  caused by: {text}");
            }
            cause = error.source();
        }
        f.write_str(&printed)
    }
}

/// Burn's own error does not implement [`std::error::Error`], so it cannot be a source.
impl From<ParamGroupError> for Error {
    fn from(error: ParamGroupError) -> Self {
        let ParamGroupError::InvalidPatternError(problem) = error;
        Self::data("a group of parameters", format!("has no valid pattern: {problem}"))
    }
}

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
    /// Its name in messages, and what to do about an id that has no row.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Word => ["word embeddings", "is this the tokenizer that the model was made with?"],
            Self::Position => {
                ["position embeddings", "shorten the sequence or extend max_position_embeddings"]
            }
            Self::TokenType => ["token type embeddings", "type_vocab_size is the number of segment kinds"],
            Self::Embedding => ["embeddings", "num_embeddings must exceed the largest id"],
        }
    }

    pub(super) fn remedy(self) -> &'static str {
        self.words()[1]
    }
}

impl fmt::Display for EmbeddingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words()[0])
    }
}

/// Prints `[3, 17]` the way one writes it in code: `[3][17]`.
pub(super) struct Index<'a>(pub(super) &'a [usize]);

impl fmt::Display for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|i| write!(f, "[{i}]"))
    }
}

/// Text of a file or of the caller, for a message: without characters that a terminal obeys, and cut.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Shown<'_> {
    /// Longer than any problem that has no text of a file in it.
    const MAX: usize = 2000;
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The precision, as `{:.100}` limits text elsewhere too.
        let max = f.precision().unwrap_or(Self::MAX);
        for c in self.0.chars().take(max) {
            // The ranges turn the direction of the text that follows.
            match c {
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => write!(f, "{}", c.escape_unicode())?,
                c if c.is_control() => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        match self.0.chars().count().saturating_sub(max) {
            0 => Ok(()),
            rest => write!(f, "… ({rest} more characters)"),
        }
    }
}

/// A name or a value in a file, as part of a message that goes on after it.
#[cfg(feature = "checkpoint")]
pub(crate) fn shown(text: &str) -> String {
    format!("{:.100}", Shown(text))
}
