//! The directory that a model is saved into: what is there, and replacing it.

use super::families::FamilySpec;
use super::fields::{CONFIG_NAME, Fields};
use super::formats::safetensors::Tensors;
use super::keys::ModelKeys;
use super::{Checkpoint, WEIGHT_NAMES};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::files::regular_file;
use crate::files::{MODEL_NAME, Replacement, directory_of, finish};
use serde_json::{Map, Value};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(crate) struct Directory {
    config_path: PathBuf,
    model_path: PathBuf,
    model: Option<Checkpoint>,
}

impl Directory {
    /// Creates the directory if it does not exist, and opens the model in it. Refuses weights in another form.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        if dir.as_os_str().is_empty() {
            return Err(regular_file::empty_path("saved into"));
        }
        fs::create_dir_all(dir).map_err(|source| Error::writing(dir, source))?;
        // A complete save that was interrupted counts as the old model.
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

    pub(crate) fn fields(&self) -> Result<Option<Fields>> {
        let is_there = exists(&self.config_path)?;
        is_there.then(|| Fields::read(self.config_path.clone())).transpose()
    }

    /// The layer's keys in the model there, which must not have a wrapper's prefix.
    pub(crate) fn keys(&self, family: Family) -> Result<Option<ModelKeys>> {
        let Some(checkpoint) = &self.model else { return Ok(None) };
        // The tensors that are kept would have the prefix, and those that are written would not.
        let wrapper = &checkpoint.wrapper;
        if !wrapper.is_empty() {
            let problem = format!(
                "its keys start with {wrapper}, which no model's own keys do; save into another directory"
            );
            return Err(Error::not_a_checkpoint(&self.model_path, problem));
        }
        ModelKeys::of_layer(checkpoint, family).map(Some)
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
        let folders = folders.into_iter().map(|(folder, tensors)| (in_folder(folder), tensors));
        let model = (self.model_path.clone(), tensors);
        replace_files(directory_of(&self.model_path), folders.chain([model]), &jsons)
    }
}

fn refuse_other_forms(dir: &Path) -> Result<()> {
    // The first is the name that is written.
    for name in &WEIGHT_NAMES[1..] {
        if exists(&dir.join(name))? {
            let problem = format!(
                "it holds its weights as {name}, which a new {MODEL_NAME} would hide; save into another directory, or \
                 convert the weights to one {MODEL_NAME} first"
            );
            return Err(Error::not_a_checkpoint(dir, problem));
        }
    }
    Ok(())
}

fn exists(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|source| Error::reading(path, source))
}

/// A JSON file to be written.
pub struct JsonFile {
    pub(crate) path: PathBuf,
    pub(crate) value: Value,
}

/// Replaces files of weights in a directory, their config and what else describes the model, or nothing. A JSON file that would
/// be the same stays, so that a save with the same config replaces the weights alone.
fn replace_files(
    dir: &Path,
    weights: impl IntoIterator<Item = (PathBuf, Tensors)>,
    jsons: &[JsonFile],
) -> Result<()> {
    let mut files = Replacement::begin(dir)?;
    for (path, tensors) in weights {
        files.write(&path, |out| tensors.write(out))?;
    }
    for JsonFile { path, value } in jsons {
        let json = serde_json::to_string_pretty(value)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        // As transformers writes it, so that a save there and one here differ in fields alone.
        let json = format!("{json}\n");
        // A FIFO in its place would be waited for.
        if !(path.is_file() && fs::read(path).is_ok_and(|old| old == json.as_bytes())) {
            files.write(path, |out| out.write_all(json.as_bytes()))?;
        }
    }
    files.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::formats::safetensors::Payload;
    use safetensors::Dtype;
    use serde_json::json;
    use std::fs::File;
    use std::sync::Arc;

    #[test]
    fn a_copy_of_fewer_bytes_than_announced_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::write(&source, [0; 7]).unwrap();
        let source = Arc::new(File::open(source).unwrap());
        let mut tensors = Tensors::default();
        tensors.push("b", Dtype::F32, vec![2], Payload::Copy(source, 0, 8));
        let target = dir.path().join("model");
        let config = JsonFile { path: dir.path().join("config"), value: json!("new") };
        replace_files(dir.path(), [(target.clone(), tensors)], &[config]).unwrap_err();
        assert!(!target.exists());
    }
}
