//! Safetensors files, read and written.

use super::{StoredTensor, WeightFile, to_little_endian};
use crate::error::{Result, shown};
use ::safetensors::Dtype;
use ::safetensors::tensor::{Metadata, TensorInfo};
use burn::tensor::TensorData;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A header of a hundred thousand tensors. The format allows more, but parsing takes many times its size.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// The tensors and the metadata in the header of a file that begins with `start`, with which they are checked to agree.
pub(super) fn read_header(
    file: &WeightFile,
    start: &[u8],
) -> Result<(BTreeMap<String, StoredTensor>, BTreeMap<String, String>)> {
    let length = file.length;
    // The length of the header comes first, as a little-endian u64.
    let Some((prefix, _)) = start.split_first_chunk() else {
        return Err(file.invalid(format!("it has {length} bytes, and a safetensors file has at least 8")));
    };
    let (header_length, header_start) = (u64::from_le_bytes(*prefix), prefix.len() as u64);
    if header_length > length - header_start {
        return Err(file.invalid(format!(
            "as safetensors its header would be {header_length} bytes long, but the file has {length}; it is \
             truncated or of another format (safetensors and PyTorch's zip and legacy files are read)"
        )));
    }
    if header_length > MAX_HEADER_BYTES {
        return Err(file.invalid(format!(
            "its header is {header_length} bytes long, more than the {MAX_HEADER_BYTES} that are read"
        )));
    }
    let metadata: Metadata = serde_json::from_slice(&file.bytes(header_start, header_length)?)
        .map_err(|error| file.corrupt(shown(&error.to_string())))?;
    let (data_start, data_length) = (header_start + header_length, metadata.data_len());
    if data_start.checked_add(data_length as u64) != Some(length) {
        return Err(file.invalid(format!(
            "its header describes {data_length} bytes of tensors, but {} follow; it is truncated or corrupt",
            length - data_start
        )));
    }
    let tensors = metadata.tensors().into_iter().map(|(key, info)| {
        // The library has checked that they rise without gaps.
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
    let strings = metadata.metadata().clone().unwrap_or_default();
    Ok((tensors.collect(), strings.into_iter().collect()))
}

/// Writes the bytes of one tensor.
pub(crate) type WriteTensor<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + 'a>;

/// The header of a file. `safetensors` would write the metadata in another order each time.
#[derive(Serialize)]
struct WrittenHeader<'a> {
    #[serde(rename = "__metadata__")]
    metadata: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: Metadata,
}

pub(crate) struct Tensors<'a> {
    pub(crate) tensors: Vec<(String, Dtype, Vec<usize>, WriteTensor<'a>)>,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl<'a> Tensors<'a> {
    /// Adds a tensor of another file, whose bytes are copied.
    pub(crate) fn copy(&mut self, name: String, file: &'a WeightFile, stored: &'a StoredTensor) {
        let bytes = || file.bytes(stored.start, stored.length).map_err(io::Error::other);
        let write: WriteTensor = Box::new(move |out| out.write_all(&bytes()?));
        self.tensors.push((name, stored.dtype, stored.shape.clone(), write));
    }

    /// Writes the header and, tensor by tensor, the values: those of the widest dtype first, so that all lie
    /// aligned, and by key among themselves, as the `safetensors` library orders them.
    pub(crate) fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.tensors.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
        // transformers refuses a file that does not say which framework's tensors it holds.
        self.metadata.entry("format".into()).or_insert_with(|| "pt".into());
        let mut end = 0;
        let infos = self.tensors.iter().map(|(key, dtype, shape, _)| {
            let start = end;
            end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
            (key.clone(), TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets: (start, end) })
        });
        let tensors = Metadata::new(None, infos.collect()).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&WrittenHeader { metadata: &self.metadata, tensors })?;
        // So that the values start aligned.
        header.resize(header.len().next_multiple_of(8), b' ');
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        self.tensors.into_iter().try_for_each(|(.., write)| write(out))
    }
}

pub(crate) fn write_values(data: TensorData, out: &mut dyn Write) -> io::Result<()> {
    let size = data.dtype().size();
    let mut bytes = data.into_bytes();
    to_little_endian(&mut bytes, size);
    out.write_all(&bytes)
}
