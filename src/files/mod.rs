//! Files: opening what may be anything, replacing several as one, JSON, models of the Hugging Face Hub.

pub(crate) mod hub;
pub(crate) mod names;
pub(crate) mod regular_file;
mod replace;

pub(crate) use regular_file::read_json;
#[cfg(feature = "tokenizers")]
pub(crate) use replace::directory_of;
pub(crate) use replace::{Replacement, finish, of_one_save};
