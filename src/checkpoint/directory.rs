//! The directory that a model is saved into: what is there, and replacing it.

use super::Checkpoint;
use super::fields::Fields;
use super::keys::ModelKeys;
use super::params::{StoredParam, tensors};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::files::{
    ADAPTER_CONFIG_NAME, CONFIG_NAME, MODEL_NAME, Replacement, WEIGHT_NAMES, finish, regular_file,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(crate) struct Directory {
    path: PathBuf,
    model: Option<Checkpoint>,
    family: Family,
}

impl Directory {
    /// Creates the directory if it does not exist, and opens the model in it, whose fields and keys are returned. Refuses
    /// weights in another form, and keys with a wrapper's prefix.
    pub(crate) fn open(dir: &Path, family: Family) -> Result<(Self, Option<Fields>, Option<ModelKeys>)> {
        regular_file::create_directory(dir)?;
        // A complete save that was interrupted counts as the old model.
        finish(dir)?;
        let found = |name: &str| {
            let path = dir.join(name);
            // What cannot be looked up may be there, and would be lost.
            let is_there = path.try_exists().map_err(|source| Error::reading(&path, source))?;
            Ok::<_, Error>(is_there.then_some(path))
        };
        if found(ADAPTER_CONFIG_NAME)?.is_some() {
            let problem = "it holds an adapter, which would be added to the saved model when that is loaded; save into another \
                           directory";
            return Err(Error::not_a_checkpoint(dir, problem));
        }
        let model = found(MODEL_NAME)?.map(|path| Checkpoint::open(&path)).transpose()?;
        // The first is the name that is written.
        for name in WEIGHT_NAMES[1..].iter().filter(|_| model.is_none()) {
            if found(name)?.is_some() {
                let problem = format!(
                    "it holds its weights as {name}, which a new {MODEL_NAME} would hide; save into another directory, or \
                     convert the weights to one {MODEL_NAME} first"
                );
                return Err(Error::not_a_checkpoint(dir, problem));
            }
        }
        let fields = found(CONFIG_NAME)?.map(Fields::read).transpose()?;
        // The tensors that are kept would have the prefix, and those that are written would not.
        if let Some(Checkpoint { path, wrapper, .. }) =
            model.as_ref().filter(|model| !model.wrapper.is_empty())
        {
            let problem = format!(
                "its keys start with {wrapper}, which no model's own keys do; save into another directory"
            );
            return Err(Error::not_a_checkpoint(path, problem));
        }
        let keys = model.as_ref().map(|model| ModelKeys::find(model, family)).transpose()?;
        Ok((Self { path: dir.to_path_buf(), model, family }, fields, keys))
    }

    /// Writes config (with BERT's names, which become those of the family), `beside` and weights, each into its folder, and into
    /// the directory itself those tensors of the old model that have a name in the new one. Or nothing: a JSON file
    /// that would be the same stays, so that a save with the same config replaces the weights alone.
    pub(crate) fn replace(
        self,
        fields: Map<String, Value>,
        beside: Vec<(PathBuf, Value)>,
        params: Vec<StoredParam>,
        renamed: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let mut folders: BTreeMap<Option<String>, Vec<StoredParam>> = BTreeMap::new();
        for param in params {
            folders.entry(param.folder.clone()).or_default().push(param);
        }
        // The first is the directory itself.
        let weights = folders.into_iter().map(|(folder, params)| {
            let path = self.path.join(folder.unwrap_or_default()).join(MODEL_NAME);
            tensors(params, &path).map(|tensors| (path, tensors))
        });
        let mut weights = weights.collect::<Result<Vec<_>>>()?;
        if let (Some(old), [(_, all), ..]) = (&self.model, &mut weights[..]) {
            for (key, (file, stored)) in &old.tensors {
                if let Some(name) = renamed(key) {
                    // From the open file, whose name the new one will take.
                    all.copy(name, &old.files[*file], stored);
                }
            }
            // Bytes of other formats cannot be copied.
            all.metadata = old.files.iter().find_map(|file| file.metadata.clone()).ok_or_else(|| {
                let problem =
                    "it has the name of a safetensors file and is none; save into another directory";
                Error::not_a_checkpoint(&old.path, problem)
            })?;
        }
        let config = self.family.spec().named(fields);
        let mut files = Replacement::begin(&self.path)?;
        for (path, tensors) in weights {
            files.write(&path, |out| tensors.write(out))?;
        }
        for (path, value) in [(self.path.join(CONFIG_NAME), config.into())].into_iter().chain(beside) {
            let json = serde_json::to_string_pretty(&value)
                .map_err(|source| Error::Json { path: path.clone(), source })?;
            // As transformers writes it, so that a save there and one here differ in fields alone.
            let json = format!("{json}\n");
            // A FIFO in its place would be waited for.
            if !(path.is_file() && fs::read(&path).is_ok_and(|old| old == json.as_bytes())) {
                files.write(&path, |out| out.write_all(json.as_bytes()))?;
            }
        }
        files.commit()
    }
}
