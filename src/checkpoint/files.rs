//! Which files a checkpoint is made of.

use super::formats::entry::Entry;
use super::formats::weight_file::WeightFile;
use super::json::read_json;
use crate::error::{Error, Result};
use burn::tensor::TensorData;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Where a directory keeps its weights, in the order in which transformers looks.
pub(super) const WEIGHT_NAMES: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// A checkpoint whose tensors lie in one file or several. Nothing but headers is read until
/// [`read`](Self::read).
pub(crate) struct Checkpoint {
    /// What the user named, or the weights file found there.
    path: PathBuf,
    /// The file that holds each key.
    keys: BTreeMap<String, PathBuf>,
    open: BTreeMap<PathBuf, WeightFile>,
}

impl Checkpoint {
    /// Opens a directory, a weights file or an index of shards.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = weights_path(path)?;
        if path.extension().is_some_and(|extension| extension == "json") {
            return Ok(Self { keys: read_index(&path)?, open: BTreeMap::new(), path });
        }
        let file = WeightFile::open(&path)?;
        let keys = file.keys().into_iter().map(|key| (key, path.clone())).collect();
        Ok(Self { keys, open: BTreeMap::from([(path.clone(), file)]), path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Shape and dtype of a tensor, and the file that it lies in.
    pub(super) fn entry(&mut self, key: &str) -> Result<(Entry, PathBuf)> {
        let missing = |path: &Path, hint: &str| Error::MissingKey {
            path: path.to_path_buf(),
            key: key.to_string(),
            hint: hint.to_string(),
        };
        let Some(path) = self.keys.get(key).cloned() else {
            return Err(missing(&self.path, "the layer cannot be loaded in part"));
        };
        if !self.open.contains_key(&path) {
            self.open.insert(path.clone(), WeightFile::open(&path)?);
        }
        match self.open.get(&path).and_then(|file| file.entry(key)) {
            Some(entry) => Ok((entry, path)),
            None => Err(missing(&path, "but the index of shards says that it is there")),
        }
    }

    /// The values of tensors whose [`entry`](Self::entry) was looked at and is a float, in the order of `keys`.
    pub(super) fn read(&self, keys: &[String]) -> Result<Vec<TensorData>> {
        for (path, file) in &self.open {
            let here = keys.iter().filter(|key| self.keys.get(*key) == Some(path));
            file.check_total(here.map(String::as_str))?;
        }
        let read = |key: &String| {
            let file = self.keys.get(key).and_then(|path| self.open.get(path));
            let data = match file {
                Some(file) => file.read(key)?,
                None => None,
            };
            data.ok_or_else(|| Error::MissingKey {
                path: self.path.clone(),
                key: key.clone(),
                hint: "the file changed while it was read".into(),
            })
        };
        keys.iter().map(read).collect()
    }
}

/// The file itself, or what a directory has in its place.
fn weights_path(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let found = WEIGHT_NAMES.iter().map(|name| path.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Error::NotACheckpoint {
        path: path.to_path_buf(),
        problem: format!("the directory has none of {}", WEIGHT_NAMES.join(", ")),
    })
}

/// The `weight_map` of an index: for each key the shard beside the index that holds it.
fn read_index(path: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let invalid = |problem: String| Error::NotACheckpoint { path: path.to_path_buf(), problem };
    let mut index = read_json(path)?;
    let Some(Value::Object(weight_map)) = index.remove("weight_map") else {
        return Err(invalid("it has no weight_map, so it is no index of shards".into()));
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let shard = |(key, name): (String, Value)| {
        let plain = name.as_str().filter(|name| is_plain_file_name(name));
        match plain {
            Some(name) => Ok((key, directory.join(name))),
            None => Err(invalid(format!(
                "{key} lies in {name}, which is not the name of a file beside the index"
            ))),
        }
    };
    weight_map.into_iter().map(shard).collect()
}

/// Whether `name` stays in the directory that it is joined to, on every system.
fn is_plain_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let plain = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    plain && !name.contains(['/', '\\', ':'])
}
