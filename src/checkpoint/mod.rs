//! Hugging Face checkpoints: `config.json` and weights, in and out.
//!
//! A load opens config (`hf_config`) and weights (`files`, `formats`) of one save, finds the keys (`keys`) and fills the
//! parameters (`params`). Formats, keys, dtypes and shapes are checked before anything is applied, so a load that fails
//! has changed nothing.

mod directory;
mod embeddings;
mod families;
mod files;
mod formats;
mod hf_config;
mod keys;
mod params;

pub(crate) use directory::{Directory, JsonFile};
pub(crate) use embeddings::{agree, replace_changed};
pub(crate) use families::FamilySpec;
pub(crate) use files::{Checkpoint, is_plain_file_name};
pub use hf_config::Fields;
pub use keys::ModelKeys;
pub(crate) use params::{StoredParam, check_stored, filled, tensors, torch_name};
