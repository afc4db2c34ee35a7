//! The header of a safetensors file.

use super::header::{Header, StoredTensor, corrupt};
use crate::error::{Error, Result, shown};
use ::safetensors::tensor::Metadata;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A header of a hundred thousand tensors. The format allows more, but parsing takes many times its size.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// The length of the header comes first, as a little-endian u64.
const PREFIX_BYTES: u64 = 8;

/// Reads the header of a file of so many bytes, and checks that they agree.
pub(super) fn read_header(path: &Path, mut file: &File, length: u64) -> Result<Header> {
    let failed = |source| Error::reading(path, source);
    let invalid = |problem: String| Err(Error::NotACheckpoint { path: path.to_path_buf(), problem });
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
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|error| corrupt(path, shown(&error.to_string())))?;
    let data_start = PREFIX_BYTES + header_length;
    let end = data_start.checked_add(metadata.data_len() as u64);
    if end != Some(length) {
        return invalid(format!(
            "its header describes {} bytes of tensors, but {} follow; it is truncated or corrupt",
            metadata.data_len(),
            length - data_start
        ));
    }
    let tensors = metadata.tensors().into_iter().map(|(key, info)| {
        let (start, end) = info.data_offsets;
        let tensor = StoredTensor {
            dtype: info.dtype,
            shape: info.shape.clone(),
            start: data_start + start as u64,
            length: (end - start) as u64,
            strides: None,
            checksum: None,
        };
        (key, tensor)
    });
    let strings = metadata.metadata().iter().flatten();
    Ok(Header {
        tensors: tensors.collect(),
        metadata: Some(strings.map(|(key, value)| (key.clone(), value.clone())).collect()),
    })
}
