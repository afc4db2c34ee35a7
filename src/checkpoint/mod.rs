//! Hugging Face checkpoints: `config.json` and weights, in and out.
//!
//! A load opens config (`fields`) and weights ([`Checkpoint`], `formats`) of one save, finds the keys (`keys`) and fills the
//! parameters (`params`). Formats, keys, dtypes and shapes are checked before anything is applied, so a load that fails
//! has changed nothing.

mod directory;
mod embeddings;
mod families;
mod fields;
mod formats;
mod keys;
mod params;

pub(crate) use directory::{Directory, JsonFile};
pub(crate) use families::FamilySpec;
pub use fields::Fields;
pub(crate) use fields::{agree, merged_fields, replace_changed};
pub use keys::ModelKeys;
pub(crate) use params::{StoredParam, check_stored, filled, torch_name};

use crate::error::{Error, Result, shown};
use crate::files::{MODEL_NAME, read_json, regular_file};
use burn::tensor::TensorData;
use formats::{StoredTensor, WeightFile};
use safetensors::Dtype;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The names of a directory's weights, in the order in which transformers looks for them.
const WEIGHT_NAMES: [&str; 4] =
    [MODEL_NAME, "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];

const WORD: &str = "word_embeddings.weight";
const POSITION: &str = "position_embeddings.weight";
const TOKEN_TYPE: &str = "token_type_embeddings.weight";
const LAYER_NORM: &str = "LayerNorm";
/// γ and β, as PyTorch has named them since 2019 and as files converted from TensorFlow name them.
const GAMMA_BETA: [[&str; 2]; 2] = [["weight", "bias"], ["gamma", "beta"]];
/// A buffer of older files: 0, 1, 2, ….
const BUFFERS: [&str; 2] = ["position_ids", "token_type_ids"];

/// The prefix of the layer's keys in a file without a head.
const MODEL_PREFIX: &str = "embeddings.";

/// A checkpoint in one file or several, without the prefix that a wrapper such as DataParallel gave to all keys. Only headers
/// are read until [`read`](Self::read).
pub(crate) struct Checkpoint {
    /// The weights file or shard index.
    path: PathBuf,
    /// The prefix that a wrapper gave to the keys of the model, such as `module.`; mostly empty.
    wrapper: String,
    places: BTreeMap<String, Place>,
    open: BTreeMap<PathBuf, WeightFile>,
}

struct Place {
    path: PathBuf,
    key: String,
}

impl Checkpoint {
    /// Opens a directory, a weights file or an index of shards.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = weights_path(path)?;
        // By its name: JSON has no magic number.
        if path.extension().is_some_and(|extension| extension == "json") {
            return Self::of(read_index(&path)?, BTreeMap::new(), path);
        }
        let file = WeightFile::open(&path)?;
        let keys = file.tensors.keys().map(|key| (key.clone(), path.clone())).collect();
        Self::of(keys, BTreeMap::from([(path.clone(), file)]), path)
    }

    fn of(
        files: BTreeMap<String, PathBuf>,
        open: BTreeMap<PathBuf, WeightFile>,
        path: PathBuf,
    ) -> Result<Self> {
        let refused = |keys: Vec<String>| Err(ambiguous(&path, &keys));
        let mut wrappers: Vec<&str> = files.keys().filter_map(|key| wrapper(key)).collect();
        wrappers.dedup(); // the keys are sorted
        let wrapper = match wrappers[..] {
            [] => String::new(),
            [wrapper] => wrapper.to_string(),
            _ => return refused(files.into_keys().filter(|key| wrapper(key).is_some()).collect()),
        };
        let mut places = BTreeMap::new();
        for (key, path) in files {
            let name = key.strip_prefix(&wrapper).unwrap_or(&key).to_string();
            // With and without the wrapper's prefix a key can be there twice.
            if let Some(other) = places.insert(name, Place { path, key: key.clone() }) {
                return refused(vec![other.key, key]);
            }
        }
        Ok(Self { path, wrapper, places, open })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// The one safetensors file that it is, whose tensors can be copied byte by byte; an error for another format.
    fn into_safetensors(self) -> Result<WeightFile> {
        let file = self.open.into_values().next().filter(|file| file.metadata.is_some());
        file.ok_or_else(|| {
            let problem = "it has the name of a safetensors file and is none; save into another directory";
            Error::not_a_checkpoint(&self.path, problem)
        })
    }

    /// What a file says of a tensor, and that file.
    fn tensor(&mut self, key: &str) -> Result<(&StoredTensor, &Path)> {
        let Some(Place { path, key }) = self.places.get(key) else {
            let key = format!("{}{key}", self.wrapper);
            return Err(Error::missing_key(&self.path, key, "the layer cannot be loaded in part"));
        };
        // Shards are opened when one of their tensors is asked for: a model may need only some.
        if !self.open.contains_key(path) {
            self.open.insert(path.clone(), WeightFile::open(path)?);
        }
        match self.open.get(path).and_then(|file| file.tensors.get(key)) {
            Some(tensor) => Ok((tensor, path)),
            None => Err(Error::missing_key(path, key, "the index of shards says that it is there")),
        }
    }

    /// [`tensor`](Self::tensor), if it holds floats.
    fn float_tensor(&mut self, key: &str) -> Result<(&StoredTensor, &Path)> {
        let (tensor, path) = self.tensor(key)?;
        if matches!(tensor.dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            return Ok((tensor, path));
        }
        let (path, found) = (path.to_path_buf(), tensor.dtype.to_string());
        Err(Error::CheckpointDType { path, key: key.to_string(), found })
    }

    /// Whether two tensors have the same shape and values, in whatever dtype each is stored.
    pub(crate) fn are_equal(&mut self, keys: &[String; 2]) -> Result<bool> {
        for key in keys {
            self.float_tensor(key)?;
        }
        let values = self.read(keys)?;
        let (left, right) = (&values[0], &values[1]);
        // As f64, which holds every value of the others.
        Ok(left == right || left.shape() == right.shape() && left.iter::<f64>().eq(right.iter::<f64>()))
    }

    /// The values of tensors that were checked to be [floats](Self::float_tensor), in the order of `keys`.
    fn read(&self, keys: &[String]) -> Result<Vec<TensorData>> {
        // Before anything is allocated: views in PyTorch's files can repeat what they see.
        for (path, file) in &self.open {
            let here = keys.iter().filter_map(|key| self.places.get(key)).filter(|place| place.path == *path);
            file.check_total(here.map(|place| place.key.as_str()))?;
        }
        let read = |key: &String| {
            let found =
                self.places.get(key).and_then(|place| Some((self.open.get(&place.path)?, &place.key)));
            let data = found.map(|(file, key)| file.read(key)).transpose()?.flatten();
            data.ok_or_else(|| Error::missing_key(&self.path, key, "the file changed while it was read"))
        };
        keys.iter().map(read).collect()
    }
}

/// The path itself, or the first of [`WEIGHT_NAMES`] in a directory. What has that name need not be a file:
/// opening it says so, rather than another one being read in its place.
fn weights_path(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let found = WEIGHT_NAMES.iter().map(|name| path.join(name)).find(|path| regular_file::exists(path));
    let problem = || format!("the directory has none of {}", WEIGHT_NAMES.join(", "));
    found.ok_or_else(|| Error::not_a_checkpoint(path, problem()))
}

/// The `weight_map` of an index: for each key the shard beside the index that holds it.
fn read_index(path: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut index: Map<String, Value> = read_json(path)?;
    let Some(Value::Object(weight_map)) = index.remove("weight_map") else {
        return Err(Error::not_a_checkpoint(path, "it has no weight_map, so it is not a shard index"));
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let shard = |(key, name): (String, Value)| {
        let plain = name.as_str().filter(|name| is_plain_file_name(name));
        match plain {
            Some(name) => Ok((key, directory.join(name))),
            None => {
                let (key, name) = (shown(&key), shown(&name.to_string()));
                let problem = format!("{key} is in {name}, which is not the name of a file beside the index");
                Err(Error::not_a_checkpoint(path, problem))
            }
        }
    };
    weight_map.into_iter().map(shard).collect()
}

/// Whether `name` names a file in the same directory, on every system.
pub(crate) fn is_plain_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    // Windows' separators and drives are checked everywhere: a checkpoint is moved between systems.
    let plain = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    plain && !name.contains(['/', '\\', ':'])
}

fn ambiguous(path: &Path, keys: &[String]) -> Error {
    // A file can have thousands.
    let keys: Vec<_> = keys.iter().take(3).map(|key| shown(key)).collect();
    let problem = "which stand for the same parameter; remove or rename one";
    Error::file(path, format!("has {}, {problem}", keys.join(" and ")))
}

/// Whether keys of a supported family that calls its word embeddings `word` have this prefix: none, the layer's name, or the
/// model's and the layer's.
fn is_known(prefix: &str, word: &str) -> bool {
    prefix.is_empty()
        || prefix == MODEL_PREFIX
        || prefix
            .strip_suffix(&format!(".{MODEL_PREFIX}"))
            .is_some_and(|base| FamilySpec::of_base(base, word).is_some())
}

/// The prefixes of DataParallel and `torch.compile`, and those of trainers such as Lightning.
const WRAPPERS: [&str; 4] = ["module.", "_orig_mod.", "state_dict.", "model."];

/// The prefix before the model's own key, empty without a wrapper, if the key is that of word embeddings.
fn wrapper(key: &str) -> Option<&str> {
    let words = families::FAMILIES.iter().map(|spec| spec.keys.word);
    let (prefix, word) = words.into_iter().find_map(|word| Some((key.strip_suffix(word)?, word)))?;
    // Wrappers nest, as `module._orig_mod.`.
    let mut rest = prefix;
    while !is_known(rest, word) {
        rest = WRAPPERS.iter().find_map(|wrapper| rest.strip_prefix(wrapper))?;
    }
    Some(&prefix[..prefix.len() - rest.len()])
}
