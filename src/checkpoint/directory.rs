//! The directory that a model is saved into.

use super::families::FamilySpec;
use super::files::{Checkpoint, WEIGHT_NAMES};
use super::hf_config::{CONFIG_NAME, Fields};
use super::keys::Keys;
use super::write::{JsonFile, Tensors, replace_files};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::files::regular_file;
use crate::files::{MODEL_NAME, finish};
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory to save into, and the model in it.
pub(crate) struct Directory {
    config_path: PathBuf,
    model_path: PathBuf,
    model: Option<Checkpoint>,
}

impl Directory {
    /// Creates the directory if it does not exist, and opens the model in it.
    ///
    /// Refuses a directory whose weights a new `model.safetensors` would hide.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        if dir.as_os_str().is_empty() {
            return Err(regular_file::empty_path("saved into"));
        }
        fs::create_dir_all(dir).map_err(|source| Error::writing(dir, source))?;
        finish(dir)?;
        let model_path = dir.join(MODEL_NAME);
        let model = if exists(&model_path)? {
            Some(Checkpoint::open(&model_path)?)
        } else {
            refuse_other_forms(dir)?;
            None
        };
        Ok(Self { config_path: dir.join(CONFIG_NAME), model_path, model })
    }

    /// The `config.json` there.
    pub(crate) fn fields(&self) -> Result<Option<Fields>> {
        let is_there = exists(&self.config_path)?;
        is_there.then(|| Fields::read(self.config_path.clone())).transpose()
    }

    /// The layer's keys in the model there.
    ///
    /// # Errors
    ///
    /// [`Error::NotACheckpoint`] if its keys have a wrapper's prefix, and those of [`Keys::locate`].
    pub(crate) fn keys(&self) -> Result<Option<Keys>> {
        let Some(checkpoint) = &self.model else { return Ok(None) };
        if !checkpoint.wrapper().is_empty() {
            return Err(Error::NotACheckpoint {
                path: self.model_path.clone(),
                problem: format!(
                    "its keys start with {}, which no model's own keys do; save into another directory",
                    checkpoint.wrapper()
                ),
            });
        }
        Keys::locate(checkpoint).map(Some)
    }

    pub(crate) fn model_path(&self) -> &Path {
        &self.model_path
    }

    /// Writes weights, config (with BERT's names, which become those of the family) and `beside`, with those tensors of the old
    /// model that have a name in the new one; and other tensors, each in a folder.
    pub(crate) fn replace(
        self,
        fields: Map<String, Value>,
        family: Family,
        beside: Vec<JsonFile>,
        mut tensors: Tensors,
        folders: Vec<(String, Tensors)>,
        renamed: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        if let Some(old) = self.model {
            tensors.keep(old.into_safetensors()?, renamed);
        }
        let fields = FamilySpec::of(family).named(fields);
        let mut jsons = vec![JsonFile { path: self.config_path, value: fields.into() }];
        jsons.extend(beside);
        let in_folder = |folder: String| self.model_path.with_file_name(folder).join(MODEL_NAME);
        let folders: Vec<_> =
            folders.into_iter().map(|(folder, tensors)| (in_folder(folder), tensors)).collect();
        let model = (self.model_path.clone(), tensors);
        replace_files(folders.into_iter().chain([model]).collect(), &jsons)
    }
}

/// Refuses a directory whose weights a new `model.safetensors` would hide.
fn refuse_other_forms(dir: &Path) -> Result<()> {
    for name in &WEIGHT_NAMES[1..] {
        if exists(&dir.join(name))? {
            return Err(Error::NotACheckpoint {
                path: dir.to_path_buf(),
                problem: format!(
                    "it holds its weights as {name}, which a new {MODEL_NAME} would hide; save into another \
                     directory, or convert the weights to one {MODEL_NAME} first"
                ),
            });
        }
    }
    Ok(())
}

fn exists(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|source| Error::reading(path, source))
}
