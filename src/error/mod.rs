//! The crate's one error type.

mod embedding_table;

use burn::backend::ExecutionError;
use burn::module::ParamGroupError;
use burn::prelude::Device;
use burn::tensor::DType;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use embedding_table::EmbeddingTable;

/// The result of a function that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can be wrong with a config, an input, a checkpoint or a text.
///
/// Every message says what was found, where, what is allowed, and how to fix it. An error of another library or of the
/// operating system is the [`source`](std::error::Error::source) and is not repeated in the message.
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
/// assert!(error.to_string().starts_with("input_ids[0][2] is 10, but the word table has 10 rows (valid ids: 0..=9)"));
/// # Ok::<(), Error>(())
/// ```
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

    /// A value of the caller's data, or an argument, that cannot be used.
    #[error("{what} {problem}")]
    Data {
        /// The value, where it was found.
        what: String,
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
        table: EmbeddingTable,
        /// How many rows that table has.
        rows: usize,
    },

    /// A label is not one of the model's classes.
    #[error(
        "labels{} is {label}, but the model has {num_labels} labels (valid: 0..={}); set id2label in the config to \
         have more",
        Index(index), num_labels.saturating_sub(1)
    )]
    LabelOutOfRange {
        /// Where in the labels, outermost axis first.
        index: Vec<usize>,
        /// The label that was found.
        label: i64,
        /// How many labels the model has.
        num_labels: usize,
    },

    /// An id is outside ±2³¹, so no table can have it.
    #[error("{input}{} does not fit a 32-bit signed integer; no table has such a row", Index(index))]
    IdOverflow {
        /// The input that holds the id, such as `input_ids`.
        input: &'static str,
        /// Where in that input, outermost axis first.
        index: Vec<usize>,
    },

    /// Ids on a device that cannot be read, so that they cannot be checked.
    #[error(
        "{input} cannot be read back from its device, so the ids cannot be checked; make the batch from host data, \
         or skip the check (unchecked_ids, forward_unchecked)"
    )]
    UnreadableIds {
        /// The input that holds the ids, such as `input_ids`.
        input: &'static str,
        /// The device's error; `None` if it can only be read asynchronously, as in a browser.
        source: Option<ExecutionError>,
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
        /// Why the sequence needs it.
        reason: String,
        /// How many rows the position table has.
        rows: usize,
    },

    /// Rows of one batch differ in length.
    #[error("{input}[{row}] has {found} entries, but {input}[0] has {expected}; pad all rows to one length")]
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

    /// The shape of an input or a parameter does not fit the batch or the module.
    #[error("{input} has shape {found:?}, but expected {expected}")]
    ShapeMismatch {
        /// The input, such as `token_type_ids`.
        input: &'static str,
        /// The shape that was given.
        found: Vec<usize>,
        /// The shapes that are allowed, in words.
        expected: String,
    },

    /// An input or a parameter of another dtype than the module's tables.
    #[error("{input} is {found:?}, but the module's tables are {expected:?}; cast one of them")]
    DTypeMismatch {
        /// The input, such as `inputs_embeds`.
        input: &'static str,
        /// Its dtype.
        found: DType,
        /// The tables' dtype.
        expected: DType,
    },

    /// An input or a parameter is on another device than the module or the batch.
    #[error("{input} is on {found:?}, but {expected:?} is needed; move it there with to_device")]
    DeviceMismatch {
        /// The input, such as `input_ids`.
        input: &'static str,
        /// Its device.
        found: Box<Device>,
        /// The device of the module, or of the batch that it belongs to.
        expected: Box<Device>,
    },

    /// A table that cannot be trained row by row.
    #[error("the {table} table cannot be trained row by row: it {reason}")]
    NotRowSparse {
        /// The table.
        table: EmbeddingTable,
        /// The reason, and the remedy.
        reason: &'static str,
    },

    /// A saved state of a row optimiser that cannot be written or read.
    #[error("cannot {action}")]
    RowStateFile {
        /// What failed, such as `save the state of the row optimiser to rows.bpk`.
        action: String,
        /// Why.
        #[source]
        source: burn_pack::Error,
    },

    /// A batch without sequences, or sequences without tokens.
    #[error("{input} has shape {shape:?}: a batch needs at least one sequence of at least one token")]
    Empty {
        /// The input, such as `input_ids`.
        input: &'static str,
        /// The shape that was given.
        shape: Vec<usize>,
    },

    /// A table cannot have the size that was asked for.
    #[error("cannot resize the {table} table: {problem}")]
    Resize {
        /// The table.
        table: EmbeddingTable,
        /// The reason, and the remedy.
        problem: String,
    },

    /// A file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried: `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why the operating system refused.
        source: io::Error,
    },

    /// A file or directory that cannot be used.
    #[error("{} {problem}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        problem: String,
    },

    /// A JSON file, such as a config or an index of shards, does not parse or holds something else.
    #[cfg(any(feature = "checkpoint", feature = "train"))]
    #[error("{} does not hold the expected JSON", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why parsing stopped.
        source: serde_json::Error,
    },

    /// A field of a `config.json` has a value that no module can be built from.
    #[error("{}: {field} {problem}", path.display())]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// The field's name, as in the file.
        field: &'static str,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },

    /// A `config.json` describes a model that is not supported.
    #[error("{}: model type {model_type} is not supported: {problem}", path.display())]
    UnsupportedModel {
        /// The file.
        path: PathBuf,
        /// The model's type, as in the file.
        model_type: String,
        /// How it differs, and what is supported.
        problem: String,
    },

    /// A file is not a checkpoint or claims more than it holds, or a directory holds one that a save would hide.
    #[error("cannot use {} as a checkpoint: {problem}", path.display())]
    NotACheckpoint {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// A file starts like a checkpoint, but does not parse.
    #[error("{} is damaged or not a state dict", path.display())]
    CorruptCheckpoint {
        /// The file.
        path: PathBuf,
        /// What the format's parser says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A checkpoint lacks a tensor that the layer needs.
    #[error("{} has no {key}: {hint}", path.display())]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The key that was looked for.
        key: String,
        /// What may be the reason.
        hint: String,
    },

    /// A tensor of a checkpoint does not have the parameter's shape.
    #[error(
        "{}: {key} has shape {found:?}, but the module expects {expected:?}; does the config belong to these weights? \
         A model's from_pretrained_with_new_head leaves out a head of another size",
        path.display()
    )]
    CheckpointShape {
        /// The file.
        path: PathBuf,
        /// The tensor's key.
        key: String,
        /// Its shape in the file.
        found: Vec<usize>,
        /// The parameter's shape.
        expected: Vec<usize>,
    },

    /// A tensor of a checkpoint does not hold floats.
    #[error("{}: {key} has dtype {found}, but weights are f16, bf16, f32 or f64; dequantise them first", path.display())]
    CheckpointDType {
        /// The file.
        path: PathBuf,
        /// The tensor's key.
        key: String,
        /// Its dtype, as the file names it.
        found: String,
    },

    /// A tokenizer file does not parse.
    #[error("cannot parse tokenizer file {}", path.display())]
    CorruptTokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A tokenizer failed on a text.
    #[error("the tokenizer failed")]
    Tokenize {
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A text file is not UTF-8.
    #[error(
        "{} is not UTF-8: line {line} has an invalid byte at offset {offset} of the file; convert the file, with \
         iconv for example",
        path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The byte, counted from 0 over the whole file.
        offset: u64,
    },

    /// A row of a data file that cannot be used.
    #[error("{}, line {line}: the row {problem}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line that the row starts in, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },

    /// A worker of a training on several machines that cannot be used, or was lost.
    #[cfg(feature = "remote")]
    #[error("worker {address} {problem}")]
    Worker {
        /// Its address.
        address: String,
        /// What is wrong.
        problem: String,
        /// What the network or Burn says; `None` if it says nothing.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl Error {
    /// An input that is not on the device that it should be on.
    pub(crate) fn device_mismatch(input: &'static str, found: Device, expected: Device) -> Self {
        Self::DeviceMismatch { input, found: found.inner().into(), expected: expected.inner().into() }
    }

    /// A value of the caller's data, or an argument, that cannot be used.
    pub(crate) fn data(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Data { what: what.into(), problem: problem.into() }
    }

    /// A file or directory that cannot be used.
    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.into() }
    }

    /// A file without text.
    pub(crate) fn no_text(path: &Path) -> Self {
        Self::file(path, "has no text: it is empty, or has only blank lines or a header")
    }

    /// A file that could not be read.
    pub(crate) fn reading(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "read", path: path.to_path_buf(), source }
    }

    /// A file that could not be written.
    #[cfg(any(feature = "checkpoint", feature = "train"))]
    pub(crate) fn writing(path: &Path, source: io::Error) -> Self {
        Self::Io { action: "write", path: path.to_path_buf(), source }
    }
}

/// Burn's own error does not implement [`std::error::Error`].
///
/// ```
/// use burn::module::ParamGroup;
///
/// fn group(pattern: &str) -> burn_bert::Result<ParamGroup> {
///     Ok(ParamGroup::from_regex(pattern)?)
/// }
/// assert!(group(r"^bert\.encoder\.").is_ok());
/// assert!(group("(").unwrap_err().to_string().starts_with("a group of parameters has no valid pattern: "));
/// ```
impl From<ParamGroupError> for Error {
    fn from(error: ParamGroupError) -> Self {
        let ParamGroupError::InvalidPatternError(problem) = error;
        Self::data("a group of parameters", format!("has no valid pattern: {problem}"))
    }
}

/// Prints `[3, 17]` the way one writes it in code: `[3][17]`.
struct Index<'a>(&'a [usize]);

impl fmt::Display for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|i| write!(f, "[{i}]"))
    }
}
