//! Hugging Face checkpoints: `config.json` and weights, in and out.
//!
//! A load: `load` or a model's `from_pretrained` opens config (`hf_config`) and weights (`files`, `formats`) of one save,
//! finds the keys (`keys`, `model_keys`) and fills the parameters (`params`). Formats, keys, dtypes and shapes are checked
//! before anything is applied, so a load that fails has changed nothing.

mod directory;
mod families;
mod files;
mod formats;
mod hf_config;
mod keys;
mod load;
mod model_keys;
mod names;
mod params;
mod report;
mod save;
mod write;

pub(crate) use directory::Directory;
pub(crate) use families::FamilySpec;
pub(crate) use files::{Checkpoint, is_plain_file_name};
pub use hf_config::Fields;
pub(crate) use load::agree;
pub use model_keys::ModelKeys;
pub(crate) use params::{StoredParam, check_stored, filled, tensors, torch_name};
pub use report::LoadReport;
pub(crate) use save::replace_changed;
pub(crate) use write::JsonFile;
