//! Files: opening what may be anything, replacing several as one, JSON, models of the Hugging Face Hub.

#[cfg(feature = "checkpoint")]
pub(crate) mod hub;
#[cfg(feature = "checkpoint")]
pub(crate) mod names;
pub(crate) mod regular_file;
#[cfg(feature = "checkpoint")]
mod replace;

#[cfg(feature = "checkpoint")]
pub(crate) use regular_file::read_json;
#[cfg(feature = "tokenizers")]
pub(crate) use replace::directory_of;
#[cfg(feature = "checkpoint")]
pub(crate) use replace::{Replacement, finish, of_one_save};
