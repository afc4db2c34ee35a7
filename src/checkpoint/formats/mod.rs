//! Files of tensors: safetensors, and PyTorch's zip and legacy files.
//!
//! A header says where each tensor is, whatever the format; the values of single tensors are read on demand.

mod pickle;
mod pytorch;
pub(super) mod safetensors;
mod state_dict;
mod value_reader;

use crate::error::{Error, Result};
use crate::files::regular_file;
use ::safetensors::Dtype;
use burn::tensor::DType;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
pub(super) use value_reader::{ValueReader, transposed};

/// Where in its file a tensor is. Equal ones have the same values.
#[derive(PartialEq)]
pub(super) struct StoredTensor {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) start: u64,
    /// Bytes from its first value to the end of its last.
    pub(super) length: u64,
    /// How many values lie from one to the next along each axis; `None` if all lie row by row.
    strides: Option<Vec<usize>>,
    /// CRC-32 of the bytes, if the file has one of exactly these.
    checksum: Option<u32>,
}

impl StoredTensor {
    /// Bytes of all values, which a view may have more of than it sees.
    pub(super) fn size(&self) -> u64 {
        // Saturating: the shape is the file's word.
        let elements = self.shape.iter().fold(1, |product: u64, &axis| product.saturating_mul(axis as u64));
        elements.saturating_mul(self.dtype.bitsize() as u64) / 8
    }
}

/// The dtypes that weights can have, in files and in Burn, and PyTorch's names of them.
pub(super) const FLOATS: [(Dtype, DType, &str); 4] = [
    (Dtype::F64, DType::F64, "float64"),
    (Dtype::F32, DType::F32, "float32"),
    (Dtype::F16, DType::F16, "float16"),
    (Dtype::BF16, DType::BF16, "bfloat16"),
];

/// Turns values of `size` bytes between the machine's order of bytes and that of files, which is little-endian on every machine.
fn to_little_endian(bytes: &mut [u8], size: usize) {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// A file whose header was read.
///
/// It stays open, so a file that is put in its place meanwhile is not read with this one's header.
pub(super) struct WeightFile {
    pub(super) path: PathBuf,
    file: File,
    pub(super) length: u64,
    /// `None` in other formats than safetensors.
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

impl WeightFile {
    /// Opens a file, and reads where its tensors are. Its first bytes determine the format, not its extension.
    pub(super) fn open(path: &Path) -> Result<(Self, BTreeMap<String, StoredTensor>)> {
        let file = regular_file::open(path)?;
        let length = file.metadata().map_err(|source| Error::reading(path, source))?.len();
        let mut file = Self { path: path.to_path_buf(), file, length, metadata: None };
        // As many bytes as tell the format, or a pointer of git-LFS.
        let start = file.bytes(0, length.min(64))?;
        if start.is_empty() {
            return Err(file.invalid("it is empty"));
        }
        regular_file::refuse_lfs_pointer(path, &start)?;
        if let Some(tensors) = pytorch::tensors(&file, &start)? {
            return Ok((file, tensors));
        }
        let (tensors, metadata) = safetensors::read_header(&file, &start)?;
        file.metadata = Some(metadata);
        Ok((file, tensors))
    }

    fn invalid(&self, problem: impl Into<String>) -> Error {
        Error::not_a_checkpoint(&self.path, problem)
    }

    fn corrupt(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::CorruptCheckpoint { path: self.path.clone(), source: source.into() }
    }

    /// A part that lies within the file.
    fn bytes(&self, start: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        self.fill(start, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` with those from `start` on.
    fn fill(&self, start: u64, bytes: &mut [u8]) -> Result<()> {
        fill_at(&self.file, start, bytes).map_err(|source| Error::reading(&self.path, source))
    }

    /// What reads a tensor's values. Only PyTorch's zip has checksums, and only of whole storages.
    pub(super) fn values<'a>(&'a self, key: &'a str, tensor: &'a StoredTensor) -> Result<ValueReader<'a>> {
        let Some(strides) = &tensor.strides else { return Ok(ValueReader::from_file(self, key, tensor)) };
        let mut bytes = vec![0; tensor.length as usize];
        ValueReader::from_file(self, key, tensor).fill(&mut bytes)?;
        let bytes = gathered(&bytes, &tensor.shape, strides, tensor.dtype.bitsize() / 8);
        Ok(ValueReader::from_memory(bytes))
    }
}

/// Fills `bytes` with those of a file from `start` on, without a cursor, which several readers would move.
#[cfg(unix)]
fn fill_at(file: &File, start: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, start)
}

#[cfg(windows)]
fn fill_at(file: &File, mut start: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, start) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                start += count as u64;
                bytes = &mut bytes[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file whose cursor no threads share.
#[cfg(not(any(unix, windows)))]
fn fill_at(mut file: &File, start: u64, bytes: &mut [u8]) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(bytes)
}

/// The values of a tensor row by row; its neighbours along an axis lie as many values apart as the stride says.
fn gathered(bytes: &[u8], shape: &[usize], strides: &[usize], size: usize) -> Vec<u8> {
    fn gathered_values<const N: usize>(
        bytes: &[u8],
        axes: &[(usize, usize)],
        (columns, stride): (usize, usize),
    ) -> Vec<u8> {
        let (elements, _) = bytes.as_chunks::<N>();
        let rows: usize = axes.iter().map(|(axis, _)| axis).product();
        // As large as the tensor and no larger, whatever strides a file states.
        let mut values = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            let (mut start, mut index) = (0, row);
            for (axis, stride) in axes.iter().rev() {
                start += index % axis * stride;
                index /= axis;
            }
            values.extend((0..columns).map(|i| elements[start + i * stride]));
        }
        values.into_flattened()
    }
    let mut axes: Vec<_> = shape.iter().copied().zip(strides.iter().copied()).collect();
    let last = axes.pop().unwrap_or((1, 1));
    // By size and not by dtype: values are moved, not computed with.
    match size {
        2 => gathered_values::<2>(bytes, &axes, last),
        4 => gathered_values::<4>(bytes, &axes, last),
        _ => gathered_values::<8>(bytes, &axes, last),
    }
}
