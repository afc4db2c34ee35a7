//! Files: opening what may be anything, replacing several as one, JSON, models of the Hugging Face Hub, and the names of a
//! model's files: the Hub is asked for these, and for the folders and shards that they name.

mod adapter_base;
pub(crate) mod hub;
pub(crate) mod regular_file;
mod replace;

pub(crate) use adapter_base::{adapter_config, base_of};
pub(crate) use regular_file::read_json;
pub(crate) use replace::{Replacement, finish, folder_of, read_consistently};

pub(crate) const CONFIG_NAME: &str = "config.json";

pub(crate) const MODEL_NAME: &str = "model.safetensors";

/// The names of a directory's weights, in the order in which transformers looks for them.
pub(crate) const WEIGHT_NAMES: [&str; 4] =
    [MODEL_NAME, "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];

/// The settings of a PEFT adapter.
pub(crate) const ADAPTER_CONFIG_NAME: &str = "adapter_config.json";

/// The weights of a PEFT adapter, in the order in which PEFT looks for them.
pub(crate) const ADAPTER_NAMES: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];

/// The tokenizer and its settings.
#[cfg(any(feature = "tokenizers", feature = "hub"))]
pub(crate) const TOKENIZER_NAMES: [&str; 4] =
    ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"];

/// The vocabularies of which a tokenizer is made if there is no `tokenizer.json`.
#[cfg(any(feature = "tokenizers", feature = "hub"))]
pub(crate) const VOCABULARY_NAMES: [&str; 6] =
    ["vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spm.model", "spiece.model"];

/// sentence-transformers' list of modules, and its settings of the whole model.
pub(crate) const SENTENCE_NAMES: [&str; 2] = ["modules.json", "config_sentence_transformers.json"];

/// sentence-transformers' settings of the model below the pooling: the present name, and those in older directories, which it
/// reads if that is not there.
pub(crate) const TRANSFORMER_NAMES: [&str; 6] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
];
