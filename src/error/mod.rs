//! The crate's one error type.

mod message;

use burn::backend::ExecutionError;
use burn::prelude::Device;
use burn::tensor::DType;
use std::io;
use std::path::PathBuf;

use message::{Index, Shown};

pub use message::EmbeddingTable;
#[cfg(feature = "checkpoint")]
pub(crate) use message::shown;

/// The result of a function that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can be wrong with a config, an input, a checkpoint or a text.
///
/// Every message says what was found, where, what is allowed, and how to fix it. An error of another library or of the
/// operating system is the [`source`](std::error::Error::source) and is not repeated in the message, but in
/// [`Training`](Self::Training), whose message other ranks get. `{:?}` is the message with all sources, a line each: what
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
#[non_exhaustive]
pub enum Error {
    /// A config field has a value that no module can be built from.
    #[error("invalid config: {field} {}", Shown(problem))]
    Config {
        /// The field.
        field: &'static str,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },

    /// A value of the caller's data, or an argument, that cannot be used.
    #[error("{} {}", Shown(what), Shown(problem))]
    Data {
        /// The value, where it was found.
        what: String,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },

    /// What the fused operators cannot compute.
    #[error(transparent)]
    Fused(#[from] burn_fused::Error),

    /// An id has no embedding.
    #[error(
        "{input}{} is {id}, but there are {rows} {table} (valid ids: 0..={}); {}",
        Index(index), rows.saturating_sub(1), table.remedy()
    )]
    IdOutOfRange {
        /// The input, such as `input_ids`.
        input: &'static str,
        /// Where in that input, outermost axis first.
        index: Vec<usize>,
        /// The id.
        id: i64,
        /// The embeddings it should index.
        table: EmbeddingTable,
        /// How many there are.
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
    #[error("{input}{} does not fit a 32-bit signed integer; no embedding has such an id", Index(index))]
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

    /// A sequence needs a position that has no embedding.
    #[error(
        "the sequence needs position {needed} ({reason}), but there are {rows} position embeddings \
         (valid ids: 0..={}); shorten the sequence or extend max_position_embeddings",
        rows.saturating_sub(1)
    )]
    SequenceTooLong {
        /// The largest position that would be looked up.
        needed: usize,
        /// Why the sequence needs it.
        reason: String,
        /// How many position embeddings there are.
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

    /// A parameter does not fit the others of its module: its shape, its dtype or its device.
    #[error("{name} {problem}")]
    Parameter {
        /// Its path in the module, such as `layers[1].attention.query.weight`.
        name: String,
        /// What was found and what is expected.
        problem: String,
    },

    /// The shape of an input does not fit the batch or the module.
    #[error("{input} has shape {found:?}, but expected {expected}")]
    ShapeMismatch {
        /// The input, such as `token_type_ids`.
        input: &'static str,
        /// The shape that was given.
        found: Vec<usize>,
        /// The shapes that are allowed, in words.
        expected: String,
    },

    /// An input of another dtype than the module's embeddings.
    #[error("{input} is {found:?}, but the module's embeddings are {expected:?}; cast one of them")]
    DTypeMismatch {
        /// The input, such as `inputs_embeds`.
        input: &'static str,
        /// Its dtype.
        found: DType,
        /// The embeddings' dtype.
        expected: DType,
    },

    /// An input is on another device than the module or the batch.
    #[error("{input} is on {found:?}, but {expected:?} is needed; move it there with to_device")]
    DeviceMismatch {
        /// The input, such as `input_ids`.
        input: &'static str,
        /// Its device.
        found: Box<Device>,
        /// The device of the module, or of the batch that it belongs to.
        expected: Box<Device>,
    },

    /// A batch without sequences, or sequences without tokens.
    #[error("{input} has shape {shape:?}: a batch needs at least one sequence of at least one token")]
    Empty {
        /// The input, such as `input_ids`.
        input: &'static str,
        /// The shape that was given.
        shape: Vec<usize>,
    },

    /// There cannot be as many embeddings as were asked for.
    #[error("cannot resize the {table}: {problem}")]
    Resize {
        /// Which embeddings.
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
    #[error("{} {}", path.display(), Shown(problem))]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        problem: String,
    },

    /// A path that does not exist and names a model on the Hugging Face Hub, which cannot be had from there.
    #[error("{name} {}", Shown(problem))]
    Hub {
        /// The model, as `owner/name` or `name`.
        name: String,
        /// Why, and the remedy.
        problem: String,
        /// The error of the Hub's client, if it made a request.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },

    /// A JSON file, such as a config or an index of shards, does not parse or holds something else.
    #[cfg(feature = "checkpoint")]
    #[error("{} does not hold the expected JSON", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why parsing stopped.
        source: serde_json::Error,
    },

    /// A field of a `config.json` has a value that no module can be built from.
    #[error("{}: {field} {}", path.display(), Shown(problem))]
    ConfigFile {
        /// The file.
        path: PathBuf,
        /// The field's name, as in the file.
        field: &'static str,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },

    /// A `config.json` describes a model that is not supported.
    #[error("{}: model type {} is not supported: {}", path.display(), Shown(model_type), Shown(problem))]
    UnsupportedModel {
        /// The file.
        path: PathBuf,
        /// The model's type, as in the file.
        model_type: String,
        /// How it differs, and what is supported.
        problem: String,
    },

    /// A file is not a checkpoint or claims more than it holds, or a directory holds one that a save would hide.
    #[error("cannot use {} as a checkpoint: {}", path.display(), Shown(problem))]
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
    #[error("{} has no {}: {}", path.display(), Shown(key), Shown(hint))]
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
        "{}: {} has shape {found:?}, but the module expects {expected:?}; does the config belong to these weights? \
         A model's from_pretrained_with_new_head leaves out a head of another size",
        path.display(), Shown(key)
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
    #[error(
        "{}: {} has dtype {}, but weights are f16, bf16, f32 or f64; dequantise them first",
        path.display(), Shown(key), Shown(found)
    )]
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
    #[error("{}, line {line}: the row {}", path.display(), Shown(problem))]
    Row {
        /// The file.
        path: PathBuf,
        /// The line that the row starts in, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },

    /// Training or an evaluation that failed: a batch that cannot be made, a metric that cannot be read, a checkpoint that cannot
    /// be saved.
    #[error("{what} ended with an error: {source}")]
    Training {
        /// What failed.
        what: &'static str,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A rank of a data-parallel run that failed or does something else than the others; every rank gets this error.
    #[error("rank {rank} {problem}")]
    Rank {
        /// Its number.
        rank: usize,
        /// What is wrong with it, or what it says.
        problem: String,
    },
}
