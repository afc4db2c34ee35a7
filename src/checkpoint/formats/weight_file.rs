//! One file of weights, in any of the formats.

use super::entry::Entry;
use super::pytorch::{Container, PytorchFile};
use super::safetensors::SafetensorsFile;
use crate::error::{Error, Result};
use burn::tensor::TensorData;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A file whose header was read.
pub(in crate::checkpoint) enum WeightFile {
    Safetensors(SafetensorsFile),
    Pytorch(PytorchFile),
}

impl WeightFile {
    /// Tells the format by the file's first bytes: extensions lie.
    pub(in crate::checkpoint) fn open(path: &Path) -> Result<Self> {
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

    pub(in crate::checkpoint) fn keys(&self) -> Vec<String> {
        match self {
            Self::Safetensors(file) => file.keys(),
            Self::Pytorch(file) => file.keys(),
        }
    }

    pub(in crate::checkpoint) fn entry(&self, key: &str) -> Option<Entry> {
        match self {
            Self::Safetensors(file) => file.entry(key),
            Self::Pytorch(file) => file.entry(key),
        }
    }

    /// Refuses to read tensors that would be larger in memory than the file is.
    pub(in crate::checkpoint) fn check_total<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result<()> {
        match self {
            Self::Safetensors(_) => Ok(()),
            Self::Pytorch(file) => file.check_total(keys),
        }
    }

    /// The values of a tensor of floats.
    pub(in crate::checkpoint) fn read(&self, key: &str) -> Result<Option<TensorData>> {
        match self {
            Self::Safetensors(file) => file.read(key),
            Self::Pytorch(file) => file.read(key),
        }
    }
}
