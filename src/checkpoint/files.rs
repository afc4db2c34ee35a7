//! Which files a checkpoint is made of.

use super::pytorch::{Container, PytorchFile};
use super::safetensors::SafetensorsFile;
use crate::error::{Error, Result};
use burn::tensor::{DType, TensorData};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Where a directory keeps its weights, in the order in which transformers looks.
pub(super) const WEIGHT_NAMES: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// More than any config or index has; a file beyond it is not one.
const MAX_JSON_BYTES: u64 = 16 << 20;

/// What a file says of one tensor.
pub(super) struct Entry {
    pub(super) shape: Vec<usize>,
    pub(super) dtype: StoredDType,
}

/// The element type of a tensor in a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoredDType {
    /// One of f16, bf16, f32 and f64.
    Float(DType),
    /// What no table of weights is made of, by the name that the file gives it.
    Other(String),
}

/// A checkpoint whose tensors lie in one file or several. Nothing but headers is read until
/// [`read`](Self::read).
pub(crate) struct Checkpoint {
    /// What the user named, or the weights file found there.
    path: PathBuf,
    /// The file that holds each key.
    keys: BTreeMap<String, PathBuf>,
    open: BTreeMap<PathBuf, WeightFile>,
}

enum WeightFile {
    Safetensors(SafetensorsFile),
    Pytorch(PytorchFile),
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
            if let WeightFile::Pytorch(file) = file {
                let here = keys.iter().filter(|key| self.keys.get(*key) == Some(path));
                file.check_total(here.map(String::as_str))?;
            }
        }
        let read = |key: &String| {
            let file = self.keys.get(key).and_then(|path| self.open.get(path));
            let data = match file {
                Some(WeightFile::Safetensors(file)) => file.read(key)?,
                Some(WeightFile::Pytorch(file)) => file.read(key)?,
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

impl WeightFile {
    /// Tells the format by the file's first bytes: extensions lie.
    fn open(path: &Path) -> Result<Self> {
        let mut start = [0; 14];
        let mut file = File::open(path).map_err(|source| Error::reading(path, source))?;
        let mut length = 0;
        while length < start.len() {
            match file.read(&mut start[length..]).map_err(|source| Error::reading(path, source))? {
                0 => break,
                read => length += read,
            }
        }
        if length == 0 {
            return Err(Error::NotACheckpoint { path: path.to_path_buf(), problem: "it is empty".into() });
        }
        match Container::of(&start[..length]) {
            Some(container) => PytorchFile::open(path, container).map(Self::Pytorch),
            None => SafetensorsFile::open(path).map(Self::Safetensors),
        }
    }

    fn keys(&self) -> Vec<String> {
        match self {
            Self::Safetensors(file) => file.keys(),
            Self::Pytorch(file) => file.keys(),
        }
    }

    fn entry(&self, key: &str) -> Option<Entry> {
        match self {
            Self::Safetensors(file) => file.entry(key),
            Self::Pytorch(file) => file.entry(key),
        }
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

/// A JSON file whose root is an object.
pub(crate) fn read_json(path: &Path) -> Result<Map<String, Value>> {
    let failed = |source| Error::reading(path, source);
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > MAX_JSON_BYTES {
        return Err(Error::NotACheckpoint {
            path: path.to_path_buf(),
            problem: format!("it is larger than {} MiB, which no config or index is", MAX_JSON_BYTES >> 20),
        });
    }
    let mut text = Vec::new();
    file.take(MAX_JSON_BYTES).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|source| Error::Json { path: path.to_path_buf(), source })
}

/// Which end of a number a reader hands over first.
#[derive(Clone, Copy)]
pub(super) enum ByteOrder {
    Little,
    Native,
}

/// The values of a tensor from its bytes; `None` if they are not as many as the shape says, or no floats.
pub(super) fn decode(bytes: &[u8], shape: &[usize], dtype: DType, order: ByteOrder) -> Option<TensorData> {
    use burn::tensor::{bf16, f16};
    macro_rules! values {
        ($type:ty, $size:literal) => {{
            let (chunks, rest) = bytes.as_chunks::<$size>();
            let values: Vec<$type> = match order {
                ByteOrder::Little => chunks.iter().map(|&bytes| <$type>::from_le_bytes(bytes)).collect(),
                ByteOrder::Native => chunks.iter().map(|&bytes| <$type>::from_ne_bytes(bytes)).collect(),
            };
            (rest.is_empty() && values.len() == shape.iter().product::<usize>())
                .then(|| TensorData::new(values, shape.to_vec()))
        }};
    }
    match dtype {
        DType::F64 => values!(f64, 8),
        DType::F32 => values!(f32, 4),
        DType::F16 => values!(f16, 2),
        DType::BF16 => values!(bf16, 2),
        _ => None,
    }
}
