//! Hugging Face checkpoints: `config.json` and weights, in and out.
//!
//! Reading goes through four checks before anything is applied: the files are what they claim to be
//! (`formats`), the keys are there (`keys`), their dtypes are floats and their shapes are the module's
//! (`params`). So a load that fails has changed nothing.

mod directory;
mod files;
mod formats;
mod hf_config;
mod json;
mod keys;
mod load;
mod names;
mod params;
mod replace;
mod save;
mod wrapper;
mod write;

pub(crate) use directory::Directory;
pub(crate) use files::{Checkpoint, is_plain_file_name};
pub use hf_config::Fields;
pub(crate) use json::read_json;
pub(crate) use keys::Keys;
pub(crate) use load::agree;
pub(crate) use params::{StoredParam, check_stored, filled, tensors, torch_name};
pub(crate) use replace::of_one_save;
pub(crate) use write::JsonFile;
