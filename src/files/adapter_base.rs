//! Directories of PEFT adapters, and the base models that they name.

use super::hub::{HubFiles, directory};
use super::{ADAPTER_CONFIG_NAME, CONFIG_NAME, folder_of, read_json, regular_file};
use crate::error::{Error, Result, shown};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The path of the adapter's config in a directory or beside a file of weights, if there is one.
pub(crate) fn adapter_config(path: &Path) -> Option<PathBuf> {
    let path = folder_of(path).join(ADAPTER_CONFIG_NAME);
    regular_file::exists(&path).then_some(path)
}

/// The base model's directory, if `path` is a directory with an adapter and no model; otherwise `path`.
///
/// # Errors
///
/// [`Error::File`] if the adapter names no base, and those of a model that cannot be found, with the adapter's path.
pub(crate) fn base_of(path: &Path) -> Result<Cow<'_, Path>> {
    let own =
        adapter_config(path).filter(|_| path.is_dir() && !regular_file::exists(&path.join(CONFIG_NAME)));
    let Some(config) = own else { return Ok(Cow::Borrowed(path)) };
    let fields: Map<String, Value> = read_json(&config)?;
    let Some(name) = fields.get("base_model_name_or_path").and_then(Value::as_str) else {
        let problem =
            "names no base_model_name_or_path; set it, or put the adapter's files beside the base model's";
        return Err(Error::file(&config, problem));
    };
    let revision = fields.get("revision").and_then(Value::as_str).filter(|_| !Path::new(name).exists());
    let named = revision.map_or(name.to_string(), |revision| format!("{name}@{revision}"));
    let base = directory(Path::new(&named), HubFiles::Weights)?;
    if !regular_file::exists(&base.join(CONFIG_NAME)) {
        let problem = format!(
            "is an adapter of {}, where there is no {CONFIG_NAME}; set base_model_name_or_path to the directory of its base \
             model, or put the adapter's files beside the base model's",
            shown(name)
        );
        return Err(Error::file(&config, problem));
    }
    Ok(Cow::Owned(base))
}
