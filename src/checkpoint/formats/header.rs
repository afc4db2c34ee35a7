//! What the header of a file of weights says, whatever the format.

use crate::error::Error;
use burn::tensor::DType;
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::path::Path;

/// What a file says of its tensors.
pub(super) struct Header {
    pub(super) tensors: BTreeMap<String, StoredTensor>,
    /// `None` in other formats than safetensors.
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

/// Where in its file a tensor is.
#[derive(Clone, Debug)]
pub(in crate::checkpoint) struct StoredTensor {
    pub(in crate::checkpoint) dtype: Dtype,
    pub(in crate::checkpoint) shape: Vec<usize>,
    pub(in crate::checkpoint) start: u64,
    /// Bytes from its first value to the end of its last.
    pub(in crate::checkpoint) length: u64,
    /// How many values lie from one to the next along each axis; `None` if all lie row by row.
    pub(super) strides: Option<Vec<usize>>,
    /// CRC-32 of the bytes, if the file has one of exactly these.
    pub(super) checksum: Option<u32>,
}

impl StoredTensor {
    /// Bytes of all values, which a view may have more of than it sees.
    pub(super) fn size(&self) -> u64 {
        let elements = self.shape.iter().fold(1, |product: u64, &axis| product.saturating_mul(axis as u64));
        elements.saturating_mul(self.dtype.bitsize() as u64) / 8
    }
}

/// Burn's dtype of a float that weights can have.
pub(in crate::checkpoint) fn float_dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F64 => Some(DType::F64),
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// A file that starts like a checkpoint and does not parse.
pub(super) fn corrupt(path: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::CorruptCheckpoint { path: path.to_path_buf(), source: source.into() }
}
