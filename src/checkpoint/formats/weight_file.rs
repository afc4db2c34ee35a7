//! One file of weights, in any of the formats.

use super::entry::Entry;
use super::pytorch::{Container, PytorchFile};
use super::safetensors::SafetensorsFile;
use crate::error::{Error, Result};
use crate::regular_file;
use burn::tensor::TensorData;
use std::io::{Read, Seek};
use std::path::Path;

/// As many bytes as tell the format, or a pointer of git-LFS.
const START_BYTES: u64 = 64;

/// A file whose header was read.
pub(in crate::checkpoint) enum WeightFile {
    Safetensors(SafetensorsFile),
    Pytorch(PytorchFile),
}

impl WeightFile {
    /// Opens a file. Its first bytes determine the format, not its extension.
    ///
    /// # Errors
    ///
    /// Those of [`regular_file::open`]; [`Error::File`] if the file is one;
    /// [`Error::NotACheckpoint`] or [`Error::CorruptCheckpoint`] if it is of neither format or damaged.
    pub(in crate::checkpoint) fn open(path: &Path) -> Result<Self> {
        let mut start = Vec::new();
        let mut file = regular_file::open(path)?;
        let failed = |source| Error::reading(path, source);
        (&mut file).take(START_BYTES).read_to_end(&mut start).map_err(failed)?;
        if start.is_empty() {
            return Err(Error::NotACheckpoint { path: path.to_path_buf(), problem: "it is empty".into() });
        }
        regular_file::refuse_lfs_pointer(path, &start)?;
        file.rewind().map_err(failed)?;
        match Container::of(&start) {
            Some(container) => PytorchFile::open(path, file, container).map(Self::Pytorch),
            None => SafetensorsFile::new(path, file).map(Self::Safetensors),
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
