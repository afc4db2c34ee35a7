//! One safetensors file: its header, and single tensors on demand.

use super::entry::{Entry, StoredDType};
use super::values::{ByteOrder, decode};
use crate::error::{Error, Result};
use crate::regular_file;
use burn::tensor::{DType, TensorData};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A header of a hundred thousand tensors. The format allows more, but parsing takes many times its size.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// The length of the header comes first, as a little-endian u64.
const PREFIX_BYTES: u64 = 8;

/// An open file whose header was found to agree with its length.
///
/// It stays open, so a file that is put in its place meanwhile is not read with this one's header.
pub(in crate::checkpoint) struct SafetensorsFile {
    path: PathBuf,
    file: Arc<File>,
    metadata: Metadata,
    /// Where the tensors start.
    data_start: u64,
}

impl SafetensorsFile {
    pub(in crate::checkpoint) fn open(path: &Path) -> Result<Self> {
        Self::new(path, regular_file::open(path)?)
    }

    /// Reads the header of a file that was opened at `path`.
    pub(super) fn new(path: &Path, mut file: File) -> Result<Self> {
        let failed = |source| Error::reading(path, source);
        let invalid = |problem: String| Err(Error::NotACheckpoint { path: path.to_path_buf(), problem });
        let length = file.metadata().map_err(failed)?.len();
        if length < PREFIX_BYTES {
            return invalid(format!("it has {length} bytes, and a safetensors file has at least 8"));
        }
        let mut prefix = [0; PREFIX_BYTES as usize];
        file.read_exact(&mut prefix).map_err(failed)?;
        let header_length = u64::from_le_bytes(prefix);
        if header_length > length - PREFIX_BYTES {
            return invalid(format!(
                "as safetensors its header would be {header_length} bytes long, but the file has {length}; it is \
                 truncated or of another format (safetensors and PyTorch's zip and legacy files are read)"
            ));
        }
        if header_length > MAX_HEADER_BYTES {
            return invalid(format!(
                "its header is {header_length} bytes long, more than the {MAX_HEADER_BYTES} that are read"
            ));
        }
        let mut header = vec![0; header_length as usize];
        file.read_exact(&mut header).map_err(failed)?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|source| Error::CorruptCheckpoint { path: path.to_path_buf(), source: source.into() })?;
        let data_start = PREFIX_BYTES + header_length;
        let end = data_start.checked_add(metadata.data_len() as u64);
        if end != Some(length) {
            return invalid(format!(
                "its header describes {} bytes of tensors, but {} follow; it is truncated or corrupt",
                metadata.data_len(),
                length - data_start
            ));
        }
        Ok(Self { path: path.to_path_buf(), file: Arc::new(file), metadata, data_start })
    }

    pub(in crate::checkpoint) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(in crate::checkpoint) fn keys(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    pub(in crate::checkpoint) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Where in the file a tensor starts.
    pub(in crate::checkpoint) fn position(&self, info: &TensorInfo) -> u64 {
        self.data_start + info.data_offsets.0 as u64
    }

    pub(in crate::checkpoint) fn entry(&self, key: &str) -> Option<Entry> {
        let info = self.metadata.info(key)?;
        let dtype = match float_dtype(info.dtype) {
            Some(dtype) => StoredDType::Float(dtype),
            None => StoredDType::Other(info.dtype.to_string()),
        };
        Some(Entry { shape: info.shape.clone(), dtype })
    }

    pub(in crate::checkpoint) fn read(&self, key: &str) -> Result<Option<TensorData>> {
        let Some(info) = self.metadata.info(key) else { return Ok(None) };
        let Some(dtype) = float_dtype(info.dtype) else { return Ok(None) };
        let failed = |source| Error::reading(&self.path, source);
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.position(info))).map_err(failed)?;
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        file.read_exact(&mut bytes).map_err(failed)?;
        Ok(decode(&bytes, &info.shape, dtype, ByteOrder::Little))
    }
}

fn float_dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F64 => Some(DType::F64),
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}
