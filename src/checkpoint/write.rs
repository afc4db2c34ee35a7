//! Writing a model: safetensors and the JSON files beside them.

use super::formats::weight_file::{WeightFile, transposed};
use crate::error::{Error, Result};
use crate::files::{Replacement, directory_of};
use burn::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The source of a tensor's bytes.
pub(super) enum Payload {
    Values(Box<Tensor<1>>),
    /// A matrix that is stored transposed.
    Transposed(Box<Tensor<2>>),
    /// A position in an open file and a number of bytes.
    Copy(Arc<File>, u64, u64),
}

/// The header of a file. `safetensors` would write the metadata in another order each time.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__")]
    metadata: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: Metadata,
}

/// The tensors of a file that will be written.
#[derive(Default)]
pub(crate) struct Tensors {
    tensors: Vec<(String, Dtype, Vec<usize>, Payload)>,
    metadata: BTreeMap<String, String>,
}

impl Tensors {
    pub(super) fn push(&mut self, key: &str, dtype: Dtype, shape: Vec<usize>, payload: Payload) {
        self.tensors.push((key.to_string(), dtype, shape, payload));
    }

    /// Adds another file's tensors under the names that `renamed` returns; those without a name are left out.
    pub(super) fn keep(&mut self, file: WeightFile, renamed: impl Fn(&str) -> Option<String>) {
        for (key, stored) in file.tensors() {
            if let Some(name) = renamed(key) {
                let payload = Payload::Copy(Arc::clone(file.file()), stored.start, stored.length);
                self.tensors.push((name, stored.dtype, stored.shape.clone(), payload));
            }
        }
        self.metadata = file.metadata().cloned().unwrap_or_default();
    }

    /// Writes the header and, tensor by tensor, the values: those of the widest dtype first, so that all lie
    /// aligned, and by key among themselves, as the `safetensors` library orders them.
    fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        self.tensors.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
        // transformers refuses a file that does not say which framework's tensors it holds.
        self.metadata.entry("format".into()).or_insert_with(|| "pt".into());
        let mut end = 0;
        let mut infos = Vec::new();
        for (key, dtype, shape, _) in &self.tensors {
            let start = end;
            end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
            let info = TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets: (start, end) };
            infos.push((key.clone(), info));
        }
        let tensors = Metadata::new(None, infos).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&Header { metadata: &self.metadata, tensors })?;
        header.resize(header.len().next_multiple_of(8), b' ');
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        self.tensors.into_iter().try_for_each(|(.., payload)| payload.write(out))
    }
}

impl Payload {
    fn write(self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Values(values) => write_values(values.into_data(), out),
            Self::Transposed(matrix) => write_values(transposed(matrix.into_data()), out),
            Self::Copy(file, position, length) => {
                let mut file = &*file;
                file.seek(SeekFrom::Start(position))?;
                if io::copy(&mut file.take(length), out)? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(())
            }
        }
    }
}

fn write_values(data: TensorData, out: &mut impl Write) -> io::Result<()> {
    let size = data.dtype().size();
    let mut bytes = data.into_bytes();
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    out.write_all(&bytes)
}

/// A JSON file to be written.
pub struct JsonFile {
    pub(crate) path: PathBuf,
    pub(crate) value: Value,
}

/// Replaces files of weights, of which the last is in the directory itself, their config and what else describes the model, or
/// nothing. A JSON file that would be the same stays, so that a save with the same config replaces the weights alone.
pub(super) fn replace_files(weights: Vec<(PathBuf, Tensors)>, jsons: &[JsonFile]) -> Result<()> {
    let model_path = weights.last().map_or(Path::new(""), |(path, _)| path);
    let mut files = Replacement::begin(directory_of(model_path))?;
    for (path, tensors) in weights {
        files.write(&path, |out| tensors.write(out))?;
    }
    for JsonFile { path, value } in jsons {
        let json = serde_json::to_string_pretty(value)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        let json = format!("{json}\n");
        if !(path.is_file() && fs::read(path).is_ok_and(|old| old == json.as_bytes())) {
            files.write(path, |out| out.write_all(json.as_bytes()))?;
        }
    }
    files.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copy_of_fewer_bytes_than_announced_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::write(&source, [0; 7]).unwrap();
        let source = Arc::new(File::open(source).unwrap());
        let mut tensors = Tensors::default();
        tensors.push("b", Dtype::F32, vec![2], Payload::Copy(source, 0, 8));
        let target = dir.path().join("model");
        let config = JsonFile { path: dir.path().join("config"), value: json!("new") };
        replace_files(vec![(target.clone(), tensors)], &[config]).unwrap_err();
        assert!(!target.exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_config_that_would_be_the_same_is_not_written() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let save = |value| {
            let config = JsonFile { path: dir.path().join("config"), value };
            replace_files(vec![(dir.path().join("model"), Tensors::default())], &[config]).unwrap();
            fs::metadata(dir.path().join("config")).unwrap().ino()
        };
        let first = save(json!("a"));
        assert_eq!(save(json!("a")), first);
        assert_ne!(save(json!("b")), first);
    }
}
