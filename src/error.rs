//! The crate's one error type.

use burn::backend::ExecutionError;
use burn::module::ParamGroupError;
use burn::prelude::Device;
use burn::tensor::DType;
use std::error::Error as _;
use std::iter::successors;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The result of a function that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can be wrong with a config, an input, a checkpoint or a text.
///
/// Every message says what was found, where, what is allowed, and how to fix it; an `index` is outermost axis first. An error of
/// another library or of the operating system is the [`source`](std::error::Error::source) and is not repeated in the message,
/// but in [`Training`](Self::Training), whose message other ranks get. `{:?}` is the message with all sources, a line each: what
/// Rust prints of an error that leaves `main`.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput, Error};
///
/// let device = Device::default();
/// let embeddings = BertEmbeddingsConfig::new().with_vocab_size(10).with_hidden_size(4).init(&device);
/// let input = BertEmbeddingsInput::from_rows(&[[2, 7, 10]], &device)?;
/// let error = embeddings.try_forward(&input).unwrap_err();
/// assert!(matches!(error, Error::IdOutOfRange { id: 10, rows: 10, .. }));
/// assert!(error.to_string().starts_with("input_ids[0][2] is 10, but there are 10 word embeddings (valid ids: 0..=9)"));
/// # Ok::<(), Error>(())
/// ```
#[derive(thiserror::Error)]
// Fields are documented by the message that names them.
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Error {
    /// A config field has a value that no module can be built from.
    #[error("invalid config: {field} {}", Shown(problem))]
    Config { field: &'static str, problem: String },

    /// A value of the caller's data, or an argument, that cannot be used.
    #[error("{} {}", Shown(what), Shown(problem))]
    Data { what: String, problem: String },

    /// What the fused operators cannot compute.
    #[error(transparent)]
    Fused(#[from] burn_fused::Error),

    /// An id has no embedding.
    #[error(
        "{input}{} is {id}, but there are {rows} {table} (valid ids: 0..={}); {}",
        indices(index), rows.saturating_sub(1), table.words()[1]
    )]
    IdOutOfRange { input: &'static str, index: Vec<usize>, id: i64, table: EmbeddingTable, rows: usize },

    /// A label is not one of the model's classes.
    #[error(
        "labels{} is {label}, but the model has {num_labels} labels (valid: 0..={}); set id2label in the config to \
         have more",
        indices(index), num_labels.saturating_sub(1)
    )]
    LabelOutOfRange { index: Vec<usize>, label: i64, num_labels: usize },

    /// An id is outside ±2³¹, so no table can have it.
    #[error("{input}{} does not fit a 32-bit signed integer; no embedding has such an id", indices(index))]
    IdOverflow { input: &'static str, index: Vec<usize> },

    /// Ids on a device that cannot be read, so that they cannot be checked. Without a `source` they can only be read
    /// asynchronously, as in a browser.
    #[error(
        "{input} cannot be read back from its device, so the ids cannot be checked; make the batch from host data, \
         or skip the check (unchecked_ids, forward_unchecked)"
    )]
    UnreadableIds { input: &'static str, source: Option<ExecutionError> },

    /// A sequence needs a position that has no embedding.
    #[error(
        "the sequence needs position {needed} ({reason}), but there are {rows} position embeddings \
         (valid ids: 0..={}); shorten the sequence or extend max_position_embeddings",
        rows.saturating_sub(1)
    )]
    SequenceTooLong { needed: usize, reason: String, rows: usize },

    /// Rows of one batch differ in length.
    #[error("{input}[{row}] has {found} entries, but {input}[0] has {expected}; pad all rows to one length")]
    RaggedRows { input: &'static str, row: usize, found: usize, expected: usize },

    /// The shape of an input does not fit the batch or the module.
    #[error("{input} has shape {found:?}, but expected {expected}")]
    ShapeMismatch { input: &'static str, found: Vec<usize>, expected: String },

    /// An input of another dtype than the module that reads it.
    #[error("{input} is {found:?}, but the module is {expected:?}; cast one of them")]
    DTypeMismatch { input: &'static str, found: DType, expected: DType },

    /// An input is on another device than the module or the batch.
    #[error("{input} is on {found:?}, but {expected:?} is needed; move it there with to_device")]
    DeviceMismatch { input: &'static str, found: Box<Device>, expected: Box<Device> },

    /// A batch without sequences, or sequences without tokens.
    #[error("{input} has shape {shape:?}: a batch needs at least one sequence of at least one token")]
    Empty { input: &'static str, shape: Vec<usize> },

    /// There cannot be as many embeddings as were asked for.
    #[error("cannot resize the {table}: {problem}")]
    Resize { table: EmbeddingTable, problem: String },

    /// A file could not be read or written.
    #[error("cannot {action} {}", shown_path(path))]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    /// A file or directory that cannot be used.
    #[error("{} {}", shown_path(path), Shown(problem))]
    File { path: PathBuf, problem: String },

    /// A path that does not exist and names a model on the Hugging Face Hub, which cannot be had from there. `source` is the
    /// error of the Hub's client, if it made a request.
    #[error("{name} {}", Shown(problem))]
    Hub { name: String, problem: String, source: Option<Box<dyn std::error::Error + Send + Sync>> },

    /// A JSON file, such as a config or an index of shards, does not parse or holds something else.
    #[error("{} does not hold the expected JSON", shown_path(path))]
    Json { path: PathBuf, source: serde_json::Error },

    /// A field of a `config.json` has a value that no module can be built from.
    #[error("{}: {field} {}", shown_path(path), Shown(problem))]
    ConfigFile { path: PathBuf, field: &'static str, problem: String },

    /// A `config.json` describes a model that is not supported.
    #[error("{}: model type {} is not supported: {}", shown_path(path), Shown(model_type), Shown(problem))]
    UnsupportedModel { path: PathBuf, model_type: String, problem: String },

    /// A file is not a checkpoint or claims more than it holds, or a directory holds one that a save would hide.
    #[error("cannot use {} as a checkpoint: {}", shown_path(path), Shown(problem))]
    NotACheckpoint { path: PathBuf, problem: String },

    /// A file starts like a checkpoint, but does not parse.
    #[error("{} is damaged or not a state dict", shown_path(path))]
    CorruptCheckpoint { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },

    /// A checkpoint lacks a tensor that the layer needs.
    #[error("{} has no {}: {}", shown_path(path), Shown(key), Shown(hint))]
    MissingKey { path: PathBuf, key: String, hint: String },

    /// A tensor of a checkpoint does not have the parameter's shape.
    #[error(
        "{}: {} has shape {found:?}, but the module expects {expected:?}; does the config belong to these weights? \
         A model's from_pretrained_with_new_head leaves out a head of another size",
        shown_path(path),
        Shown(key)
    )]
    CheckpointShape { path: PathBuf, key: String, found: Vec<usize>, expected: Vec<usize> },

    /// A tensor of a checkpoint does not hold floats.
    #[error(
        "{}: {} has dtype {}, but weights are f16, bf16, f32 or f64; dequantise them first",
        shown_path(path),
        Shown(key),
        Shown(found)
    )]
    CheckpointDType { path: PathBuf, key: String, found: String },

    /// A tokenizer file does not parse.
    #[error("cannot parse tokenizer file {}", shown_path(path))]
    CorruptTokenizer { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },

    /// A tokenizer failed on a text.
    #[error("the tokenizer failed")]
    Tokenize { source: Box<dyn std::error::Error + Send + Sync> },

    /// A text file is not UTF-8, in a line counted from 1, at a byte counted from 0 over the whole file.
    #[error(
        "{} is not UTF-8: line {line} has an invalid byte at offset {offset} of the file; convert the file, with \
         iconv for example",
        shown_path(path)
    )]
    NotUtf8 { path: PathBuf, line: usize, offset: u64 },

    /// A row of a data file that cannot be used, by the line that it starts in, counted from 1.
    #[error("{}, line {line}: the row {}", shown_path(path), Shown(problem))]
    Row { path: PathBuf, line: u64, problem: String },

    /// Training or an evaluation that failed: a batch that cannot be made, a metric that cannot be read, a checkpoint that cannot
    /// be saved.
    #[error("{what} ended with an error: {source}")]
    Training { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },

    /// A rank of a data-parallel run that failed or does something else than the others; every rank gets this error.
    #[error("rank {rank} {problem}")]
    Rank { rank: usize, problem: String },
}

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

    #[cfg(feature = "train")]
    pub(crate) fn training(
        what: &'static str,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Training { what, source: Box::new(source) }
    }

    pub(crate) fn not_a_checkpoint(path: &Path, problem: impl Into<String>) -> Self {
        Self::NotACheckpoint { path: path.to_path_buf(), problem: problem.into() }
    }

    pub(crate) fn missing_key(path: &Path, key: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::MissingKey { path: path.to_path_buf(), key: key.into(), hint: hint.into() }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.into() }
    }

    #[cfg(feature = "train")]
    pub(crate) fn no_text(path: &Path) -> Self {
        Self::file(path, "has no text: it is empty, or has only blank lines or a header")
    }

    pub(crate) fn reading(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "read", path: path.to_path_buf(), source }
    }

    pub(crate) fn writing(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "write", path: path.to_path_buf(), source }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = self.to_string();
        for cause in successors(self.source(), |&cause| cause.source()) {
            let text = cause.to_string();
            // A wrapper's message often ends with its cause's, or is the same.
            if !printed.ends_with(&text) {
                printed = format!("{printed}\n  caused by: {text}");
            }
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
    /// The table's name in messages, and what to do about an id that has no row.
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
}

impl fmt::Display for EmbeddingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words()[0])
    }
}

/// `[3, 17]` the way one writes it in code: `[3][17]`.
fn indices(index: &[usize]) -> String {
    index.iter().map(|i| format!("[{i}]")).collect()
}

/// Text of a file or of the caller, for a message: without characters that a terminal obeys, and cut.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Longer than any problem that has no text of a file in it.
        const MAX: usize = 2000;
        // The precision, as `{:.100}` limits text elsewhere too.
        let max = f.precision().unwrap_or(MAX);
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
pub(crate) fn shown(text: &str) -> String {
    format!("{:.100}", Shown(text))
}

/// A path, which may have names of a file or of an archive in it.
fn shown_path(path: &Path) -> impl fmt::Display {
    Shown(&path.to_string_lossy()).to_string()
}
