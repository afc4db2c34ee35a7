//! One PyTorch file (`torch.save`): its pickle, and single tensors on demand.
//!
//! The pickle is read by `pytorch-reader`, which runs none of it: a call in it is recorded by name, never executed. This
//! file checks that reading it takes no more memory than the file's size allows.

use super::entry::{Entry, StoredDType};
use super::pickle::{MAX_PICKLE_BYTES, skip_pickle};
use super::values::{ByteOrder, decode};
use crate::error::{Error, Result};
use burn::tensor::{DType, TensorData};
use pytorch_reader::{DType as TorchDType, PytorchReader, Tensor};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use zip::ZipArchive;

/// The first bytes of a zip archive: PyTorch since 1.6.
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// After a pickle's two bytes of protocol, PyTorch's magic number as a pickled integer: PyTorch up to 1.5.
const LEGACY_MAGIC: [u8; 12] = *b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// How `torch.save` wrapped the pickle.
pub(super) enum Container {
    Zip,
    Legacy,
}

impl Container {
    /// The container that a file's first 14 bytes begin.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x80, _protocol, rest @ ..] if rest.starts_with(&LEGACY_MAGIC) => Some(Self::Legacy),
            start if start.starts_with(&ZIP_MAGIC) => Some(Self::Zip),
            _ => None,
        }
    }
}

pub(in crate::checkpoint) struct PytorchFile {
    path: PathBuf,
    length: u64,
    tensors: HashMap<String, Tensor>,
}

impl PytorchFile {
    pub(super) fn open(path: &Path, file: File, container: Container) -> Result<Self> {
        let length = file.metadata().map_err(|source| Error::reading(path, source))?.len();
        let reader = BufReader::new(file);
        let has_lazy_sign = match container {
            Container::Zip => check_archive(path, reader, length)?,
            Container::Legacy => check_pickles(path, reader)?,
        };
        if has_lazy_sign {
            return Err(Error::NotACheckpoint {
                path: path.to_path_buf(),
                problem:
                    "it holds a lazily negated or conjugated view; save tensor.resolve_neg().resolve_conj() instead"
                        .into(),
            });
        }
        let reader = PytorchReader::new(path).map_err(|error| corrupt(path, error))?;
        Ok(Self { path: path.to_path_buf(), length, tensors: reader.into_tensors() })
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    pub(super) fn entry(&self, key: &str) -> Option<Entry> {
        let tensor = self.tensors.get(key)?;
        let dtype = match float_dtype(tensor.dtype()) {
            Some(dtype) => StoredDType::Float(dtype),
            None => StoredDType::Other(format!("{:?}", tensor.dtype())),
        };
        Some(Entry { shape: tensor.shape().to_vec(), dtype })
    }

    /// Refuses tensors that would be larger in memory than the file is: views that repeat what they see.
    pub(super) fn check_total<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result<()> {
        let sizes = keys.filter_map(|key| self.tensors.get(key)).map(|tensor| tensor.byte_len() as u64);
        let total = sizes.fold(0, u64::saturating_add);
        if total > self.length {
            return Err(Error::NotACheckpoint {
                path: self.path.clone(),
                problem: format!("its tensors claim {total} bytes, but it has {}", self.length),
            });
        }
        Ok(())
    }

    pub(super) fn read(&self, key: &str) -> Result<Option<TensorData>> {
        let Some(tensor) = self.tensors.get(key) else { return Ok(None) };
        let Some(dtype) = float_dtype(tensor.dtype()) else { return Ok(None) };
        let bytes = tensor.read().map_err(|error| corrupt(&self.path, error))?;
        Ok(decode(&bytes, tensor.shape(), dtype, ByteOrder::Native))
    }
}

fn corrupt(path: &Path, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::CorruptCheckpoint { path: path.to_path_buf(), source: Box::new(source) }
}

/// `torch.save` compresses nothing, so what a file unpacks to is no more than the file, and its pickle is small.
/// Returns whether the pickle has a view with a lazy sign.
fn check_archive(path: &Path, reader: BufReader<File>, length: u64) -> Result<bool> {
    let mut archive = ZipArchive::new(reader).map_err(|error| corrupt(path, error))?;
    let invalid = |problem: String| Err(Error::NotACheckpoint { path: path.to_path_buf(), problem });
    let mut total = 0u64;
    let mut pickles = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| corrupt(path, error))?;
        total = total.saturating_add(entry.size());
        if entry.name().is_ok_and(|name| name.ends_with("data.pkl")) {
            if entry.size() > MAX_PICKLE_BYTES {
                return invalid(format!(
                    "its data.pkl has {} bytes, more than the {MAX_PICKLE_BYTES} that are read",
                    entry.size()
                ));
            }
            pickles.push(index);
        }
    }
    if total > length {
        return invalid(format!(
            "it has {length} bytes and would unpack to {total}; torch.save compresses nothing"
        ));
    }
    let mut has_lazy_sign = false;
    for index in pickles {
        let entry = archive.by_index(index).map_err(|error| corrupt(path, error))?;
        has_lazy_sign |= skip_pickle(&mut BufReader::new(entry)).map_err(|error| corrupt(path, error))?;
    }
    Ok(has_lazy_sign)
}

/// The five pickles that a legacy file begins with: magic number, version, system, object, storage keys.
/// Returns whether any has a view with a lazy sign.
fn check_pickles(path: &Path, mut reader: BufReader<File>) -> Result<bool> {
    let mut has_lazy_sign = false;
    for _ in 0..5 {
        has_lazy_sign |= skip_pickle(&mut reader).map_err(|error| corrupt(path, error))?;
    }
    Ok(has_lazy_sign)
}

fn float_dtype(dtype: TorchDType) -> Option<DType> {
    match dtype {
        TorchDType::F64 => Some(DType::F64),
        TorchDType::F32 => Some(DType::F32),
        TorchDType::F16 => Some(DType::F16),
        TorchDType::BF16 => Some(DType::BF16),
        _ => None,
    }
}
