//! Files of tensors: safetensors, and PyTorch's zip and legacy files.
//!
//! A header says where each tensor is, whatever the format; the values of single tensors are read on demand.

mod pickle;
mod pytorch;
pub(super) mod safetensors;
mod state_dict;

use crate::error::{Error, Result};
use crate::files::regular_file;
use ::safetensors::Dtype;
use burn::tensor::{Bytes, DType, TensorData};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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

/// Turns values between the machine's order of bytes and that of files, which is little-endian on every machine.
fn to_little_endian(bytes: &mut [u8], dtype: DType) {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
}

/// A file whose header was read.
///
/// It stays open, so a file that is put in its place meanwhile is not read with this one's header.
pub(super) struct WeightFile {
    pub(super) path: PathBuf,
    file: File,
    /// Readers take turns, as each moves the cursor of the file.
    turn: Mutex<()>,
    pub(super) length: u64,
    /// `None` in other formats than safetensors.
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

impl WeightFile {
    /// Opens a file, and reads where its tensors are. Its first bytes determine the format, not its extension.
    pub(super) fn open(path: &Path) -> Result<(Self, BTreeMap<String, StoredTensor>)> {
        let file = regular_file::open(path)?;
        let length = file.metadata().map_err(|source| Error::reading(path, source))?.len();
        let mut file = Self { path: path.to_path_buf(), file, turn: Mutex::new(()), length, metadata: None };
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
        let mut bytes = Vec::new();
        self.read_bytes(start, length, &mut bytes)?;
        Ok(bytes)
    }

    fn read_bytes(&self, start: u64, length: u64, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(length as usize, 0);
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Through a reference, as other tensors are borrowed of the same file.
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(bytes));
        read.map_err(|source| Error::reading(&self.path, source))
    }

    /// Reads the bytes of a tensor's values, which lie row by row then.
    pub(super) fn read(&self, key: &str, tensor: &StoredTensor, bytes: &mut Vec<u8>) -> Result<()> {
        self.read_bytes(tensor.start, tensor.length, bytes)?;
        // Only PyTorch's zip has checksums, and only of whole storages.
        if tensor.checksum.is_some_and(|checksum| checksum != crc32fast::hash(bytes)) {
            return Err(self.corrupt(format!("{key} does not have the checksum that the file states")));
        }
        if let Some(strides) = &tensor.strides {
            *bytes = gathered(bytes, &tensor.shape, strides, tensor.dtype.bitsize() / 8);
        }
        Ok(())
    }
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

/// The values of a file's bytes, or of a matrix their transpose.
pub(super) fn values(bytes: &[u8], shape: &[usize], dtype: DType, is_transposed: bool) -> TensorData {
    // As many bytes as the shape has values, which reading the header has checked.
    let (matrix, shape) = match *shape {
        [rows, columns] if is_transposed => ([rows, columns], vec![columns, rows]),
        _ => ([bytes.len() / dtype.size(), 1], shape.to_vec()),
    };
    // Numbers lie in memory as Burn aligns them; it would copy bytes that need not. They are little-endian in files.
    let bytes = match dtype.size() {
        2 => Bytes::from_elems(turned(bytes, matrix, u16::from_le_bytes)),
        4 => Bytes::from_elems(turned(bytes, matrix, u32::from_le_bytes)),
        _ => Bytes::from_elems(turned(bytes, matrix, u64::from_le_bytes)),
    };
    TensorData::from_bytes(bytes, shape, dtype)
}

/// The bytes of a matrix's transpose.
pub(super) fn transposed(bytes: &[u8], matrix: [usize; 2], size: usize) -> Vec<u8> {
    match size {
        2 => turned::<2, _>(bytes, matrix, |value| value).into_flattened(),
        4 => turned::<4, _>(bytes, matrix, |value| value).into_flattened(),
        _ => turned::<8, _>(bytes, matrix, |value| value).into_flattened(),
    }
}

fn turned<const N: usize, T: Copy>(
    bytes: &[u8],
    [rows, columns]: [usize; 2],
    value: impl Fn([u8; N]) -> T,
) -> Vec<T> {
    /// The rows and columns that are turned at a time: whole cache lines of both matrices, from few pages.
    const SIDE: usize = 32;
    let (values, _) = bytes.as_chunks::<N>();
    let mut turned = vec![value([0; N]); values.len()];
    for top in (0..rows).step_by(SIDE) {
        let bottom = rows.min(top + SIDE);
        for left in (0..columns).step_by(SIDE) {
            for column in left..columns.min(left + SIDE) {
                let line = &mut turned[column * rows + top..column * rows + bottom];
                let column = values[top * columns + column..].iter().step_by(columns);
                line.iter_mut().zip(column).for_each(|(turned, found)| *turned = value(*found));
            }
        }
    }
    turned
}
