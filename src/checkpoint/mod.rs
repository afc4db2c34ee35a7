//! Hugging Face checkpoints: `config.json` and weights, in and out.
//!
//! A load opens config (`fields`) and weights ([`Checkpoint`], `formats`) of one save, finds the keys (`keys`) of a module's
//! parameters (`params`) and fills them (`load`). Formats, keys, dtypes and shapes are checked before anything is applied, so a load
//! that fails has changed nothing.

mod adapter;
mod directory;
mod embeddings;
mod fields;
mod formats;
mod keys;
mod load;
mod params;
mod saved_adapter;
mod written_fields;

use adapter::LowRank;
pub(crate) use directory::Directory;
pub use fields::Fields;
pub use keys::ModelKeys;
pub(crate) use load::filled;
pub(crate) use params::{StoredParam, check_stored, stored_dtype, stored_params};
pub(crate) use saved_adapter::SavedAdapter;
pub(crate) use written_fields::{merged_fields, number_fields, replace_changed};

use crate::error::{Error, Result, shown};
use crate::family::{EMBEDDINGS_PREFIX, FAMILIES, FamilySpec};
use crate::files::{WEIGHT_NAMES, adapter_config, base_of, read_json, regular_file};
use burn::tensor::{DType, TensorData};
use formats::{FLOATS, StoredTensor, ValueReader, WeightFile};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const POSITION: &str = "position_embeddings.weight";
const TOKEN_TYPE: &str = "token_type_embeddings.weight";
/// γ and β, as PyTorch has named them since 2019 and as files converted from TensorFlow name them.
const GAMMA_BETA: [[&str; 2]; 2] = [["weight", "bias"], ["gamma", "beta"]];
/// A buffer of older files: 0, 1, 2, ….
const BUFFERS: [&str; 2] = ["position_ids", "token_type_ids"];

/// A checkpoint in one file or several, without the prefix that a wrapper such as DataParallel gave to all keys. Only headers
/// are read until [`read`](Self::read).
pub(crate) struct Checkpoint {
    /// The weights file or shard index.
    pub(crate) path: PathBuf,
    /// The prefix that a wrapper gave to the keys of the model, such as `module.`; mostly empty.
    wrapper: String,
    files: Vec<WeightFile>,
    /// Tensors by key, each with the index of its file.
    tensors: BTreeMap<String, (usize, StoredTensor)>,
    /// What an adapter adds to weights, by key.
    low_rank: BTreeMap<String, LowRank>,
    /// The config of the adapter beside the weights.
    pub(crate) adapter: Option<PathBuf>,
}

impl Checkpoint {
    /// Opens a directory, a weights file or an index of shards, with the adapter beside it; or an adapter's directory, with the base
    /// model that it names.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let base = Self::open_base(&base_of(path)?)?;
        // Of a base model that has an adapter itself, as PEFT, the one that was named.
        match adapter_config(path) {
            Some(config) => base.with_adapter(config),
            None => Ok(base),
        }
    }

    fn open_base(path: &Path) -> Result<Self> {
        let problem = || format!("the directory has none of {}", WEIGHT_NAMES.join(", "));
        let path = regular_file::first_in(path, &WEIGHT_NAMES)
            .ok_or_else(|| Error::not_a_checkpoint(path, problem()))?;
        let (mut files, mut stored) = (Vec::new(), BTreeMap::new());
        // By its name: JSON has no magic number.
        if path.extension().is_some_and(|extension| extension == "json") {
            for (shard, keys) in read_index(&path)? {
                let (file, mut tensors) = WeightFile::open(&shard)?;
                for key in keys {
                    let Some(tensor) = tensors.remove(&key) else {
                        let hint = "the index of shards says that it is there";
                        return Err(Error::missing_key(&shard, key, hint));
                    };
                    stored.insert(key, (files.len(), tensor));
                }
                files.push(file);
            }
        } else {
            let (file, tensors) = WeightFile::open(&path)?;
            files.push(file);
            stored.extend(tensors.into_iter().map(|(key, tensor)| (key, (0, tensor))));
        }
        let wrapped: Vec<&String> = stored.keys().filter(|key| wrapper(key).is_some()).collect();
        let prefix = wrapped.first().and_then(|key| wrapper(key)).unwrap_or_default().to_string();
        if wrapped.iter().any(|key| wrapper(key) != Some(&prefix)) {
            return Err(ambiguous(&path, &wrapped));
        }
        let mut tensors = BTreeMap::new();
        for (key, tensor) in stored {
            let name = key.strip_prefix(&prefix).unwrap_or(&key);
            // With and without the wrapper's prefix a key can be there twice.
            if tensors.insert(name.to_string(), tensor).is_some() {
                return Err(ambiguous(&path, &[name, &format!("{prefix}{name}")]));
            }
        }
        Ok(Self { path, wrapper: prefix, files, tensors, low_rank: BTreeMap::new(), adapter: None })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The description of a tensor, and the file that holds it.
    fn tensor(&self, key: &str) -> Result<(&StoredTensor, &WeightFile)> {
        let hint = "the layer cannot be loaded in part";
        let missing = || Error::missing_key(&self.path, format!("{}{key}", self.wrapper), hint);
        let (file, tensor) = self.tensors.get(key).ok_or_else(missing)?;
        Ok((tensor, &self.files[*file]))
    }

    /// As [`tensor`](Self::tensor), with Burn's dtype; an error if the tensor does not hold floats.
    fn float_tensor(&self, key: &str) -> Result<(&StoredTensor, &WeightFile, DType)> {
        let (tensor, file) = self.tensor(key)?;
        Ok((tensor, file, float_dtype(tensor, file, key)?))
    }

    /// Whether two tensors have the same shape and values, in whatever dtype each is stored.
    pub(crate) fn are_equal(&self, keys: &[String; 2]) -> Result<bool> {
        // PyTorch's files list a tied tensor under both of its names.
        let [left, right] = keys.each_ref().map(|key| self.tensors.get(key));
        if left.is_some() && left == right {
            return Ok(true);
        }
        self.check_size(keys.iter().map(String::as_str))?;
        let [left, right] = [self.read(&keys[0])?, self.read(&keys[1])?];
        // As f64, which holds every value of the others.
        Ok(left == right || left.shape() == right.shape() && left.iter::<f64>().eq(right.iter::<f64>()))
    }

    /// The values of a float tensor.
    fn read(&self, key: &str) -> Result<TensorData> {
        let (tensor, ..) = self.float_tensor(key)?;
        let (mut values, dtype) = self.values(key)?;
        values.read(&tensor.shape, dtype, false)
    }

    /// What reads the values of a float tensor, with what an adapter adds to them, and their dtype.
    fn values<'a>(&'a self, key: &'a str) -> Result<(ValueReader<'a>, DType)> {
        let (tensor, file, dtype) = self.float_tensor(key)?;
        self.adapted(key, &tensor.shape, dtype, file.values(key, tensor)?)
    }

    /// Refuses to read more than there can be.
    fn check_size<'a>(&self, mut keys: impl Iterator<Item = &'a str>) -> Result<()> {
        // Before anything is allocated: views in PyTorch's files can repeat what they see. Twice the file, as it has a tied
        // tensor once under two names, and a model that does not tie them reads both. Saturating, as shapes are the file's word.
        let claimed = keys.try_fold(0, |total: u64, key| {
            Ok::<_, Error>(total.saturating_add(self.float_tensor(key)?.0.size()))
        })?;
        let length = self.files.iter().fold(0, |total: u64, file| total.saturating_add(file.length));
        if claimed > length.saturating_mul(2) {
            let problem = format!("its tensors claim {claimed} bytes, but it has {length}");
            return Err(Error::not_a_checkpoint(&self.path, problem));
        }
        Ok(())
    }
}

/// Burn's dtype of a tensor; an error if it does not hold floats.
fn float_dtype(tensor: &StoredTensor, file: &WeightFile, key: &str) -> Result<DType> {
    let dtype = FLOATS.into_iter().find(|(stored, ..)| *stored == tensor.dtype).map(|(_, dtype, _)| dtype);
    let (path, key) = (|| file.path.clone(), || key.to_string());
    dtype.ok_or_else(|| Error::CheckpointDType { path: path(), key: key(), found: tensor.dtype.to_string() })
}

/// The `weight_map` of an index: the shards beside it, and the keys that each holds.
fn read_index(path: &Path) -> Result<BTreeMap<PathBuf, Vec<String>>> {
    let mut index: Map<String, Value> = read_json(path)?;
    let Some(Value::Object(weight_map)) = index.remove("weight_map") else {
        return Err(Error::not_a_checkpoint(
            path,
            "it has no weight_map, so it is not a shard index; name the model's directory or a file of its weights",
        ));
    };
    let mut shards: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for (key, name) in weight_map {
        let Some(name) = name.as_str().filter(|name| regular_file::is_plain_name(name)) else {
            let (key, name) = (shown(&key), shown(&name.to_string()));
            let problem = format!("{key} is in {name}, which is not the name of a file beside the index");
            return Err(Error::not_a_checkpoint(path, problem));
        };
        shards.entry(path.with_file_name(name)).or_default().push(key);
    }
    Ok(shards)
}

fn ambiguous(path: &Path, keys: &[impl AsRef<str>]) -> Error {
    // A file can have thousands.
    let keys: Vec<_> = keys.iter().take(3).map(|key| shown(key.as_ref())).collect();
    let problem = "which stand for the same parameter; remove or rename one";
    Error::file(path, format!("has {}, {problem}", keys.join(" and ")))
}

/// Whether keys of a supported family with this [`word`](FamilySpec::word) have this prefix: none, the layer's name, or the model's
/// and the layer's.
fn is_known(prefix: &str, word: [&str; 2]) -> bool {
    prefix.is_empty() || prefix == word[0] || FamilySpec::with_prefix(prefix, word).is_some()
}

/// The prefixes of DataParallel and `torch.compile`, and those of trainers such as Lightning.
const WRAPPERS: [&str; 4] = ["module.", "_orig_mod.", "state_dict.", "model."];

/// The prefix before the model's own key, empty without a wrapper, if the key is that of word embeddings.
fn wrapper(key: &str) -> Option<&str> {
    let mut words = FAMILIES.iter().map(FamilySpec::word);
    let (prefix, word) = words.find_map(|word| Some((key.strip_suffix(word[1])?, word)))?;
    // Wrappers nest, as `module._orig_mod.`.
    let mut rest = prefix;
    while !is_known(rest, word) {
        rest = WRAPPERS.iter().find_map(|wrapper| rest.strip_prefix(wrapper))?;
    }
    Some(&prefix[..prefix.len() - rest.len()])
}
