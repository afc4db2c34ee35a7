//! Writing safetensors, and replacing two files as one.

use super::formats::safetensors::SafetensorsFile;
use super::formats::values::transposed;
use crate::error::{Error, Result};
use burn::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Where a tensor's bytes come from.
pub(super) enum Payload {
    Values(Box<Tensor<1>>),
    /// A matrix that is stored with rows as columns.
    Transposed(Box<Tensor<2>>),
    /// So many bytes of another file, from a position on.
    Copy(PathBuf, u64, u64),
}

/// The tensors of a file to be.
#[derive(Default)]
pub(crate) struct Tensors {
    tensors: Vec<(String, Dtype, Vec<usize>, Payload)>,
    metadata: HashMap<String, String>,
}

impl Tensors {
    pub(super) fn push(&mut self, key: &str, dtype: Dtype, shape: Vec<usize>, payload: Payload) {
        self.tensors.push((key.to_string(), dtype, shape, payload));
    }

    /// Takes over another file's tensors by the names that `renamed` gives them, but for those without.
    pub(super) fn keep(&mut self, file: SafetensorsFile, renamed: impl Fn(&str) -> Option<String>) {
        for key in file.keys() {
            if let (Some(info), Some(name)) = (file.metadata().info(&key), renamed(&key)) {
                let (start, end) = info.data_offsets;
                let payload =
                    Payload::Copy(file.path().to_path_buf(), file.position(info), (end - start) as u64);
                self.tensors.push((name, info.dtype, info.shape.clone(), payload));
            }
        }
        self.metadata = file.metadata().metadata().clone().unwrap_or_default();
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
        let metadata = Metadata::new(Some(self.metadata), infos).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&metadata)?;
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
            Self::Copy(path, position, length) => {
                let mut file = File::open(path)?;
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

/// Puts both files in their places, or neither.
///
/// Both are complete on disk before the first is renamed; if the second cannot be, the first is put back.
pub(super) fn replace_files(
    config_path: &Path,
    config: &[u8],
    model_path: &Path,
    model: Tensors,
) -> Result<()> {
    let new_model = written_beside(model_path, |out| model.write(out))?;
    let new_config = written_beside(config_path, |out| out.write_all(config))?;
    let old_config = match fs::read(config_path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(Error::reading(config_path, source)),
    };
    rename(new_config, config_path)?;
    rename(new_model, model_path).inspect_err(|_| {
        // The failure to report is the first one, whether or not this succeeds.
        let _ = match old_config {
            Some(bytes) => written_beside(config_path, |out| out.write_all(&bytes))
                .and_then(|file| rename(file, config_path)),
            None => fs::remove_file(config_path).map_err(|source| Error::writing(config_path, source)),
        };
    })
}

fn written_beside(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<NamedTempFile> {
    let written = || {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let file = temporary_in(directory.unwrap_or(Path::new(".")))?;
        let mut out = BufWriter::with_capacity(1 << 20, file.as_file());
        write(&mut out)?;
        out.flush()?;
        drop(out);
        file.as_file().sync_all()?;
        Ok(file)
    };
    written().map_err(|source| Error::writing(path, source))
}

/// A temporary file with the permissions that `File::create` gives, not `tempfile`'s own, which shut all others out.
fn temporary_in(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(directory)
}

fn rename(file: NamedTempFile, path: &Path) -> Result<()> {
    match file.persist(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::writing(path, error.error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Tensors {
        let values = Tensor::<1>::from_data([1.0f32, 2.0], &Device::default());
        let mut tensors = Tensors::default();
        tensors.push("a", Dtype::F32, vec![2], Payload::Values(Box::new(values)));
        tensors
    }

    #[test]
    fn if_the_weights_cannot_be_put_in_place_the_config_is_put_back() {
        for old in [Some("old"), None] {
            let dir = tempfile::tempdir().unwrap();
            let (config, model_path) = (dir.path().join("config"), dir.path().join("model"));
            if let Some(old) = old {
                fs::write(&config, old).unwrap();
            }
            // A directory that is not empty cannot be replaced by a file.
            fs::create_dir_all(model_path.join("inside")).unwrap();
            replace_files(&config, b"new", &model_path, model()).unwrap_err();
            assert_eq!(fs::read_to_string(&config).ok().as_deref(), old);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1 + usize::from(old.is_some()));
        }
    }

    #[test]
    fn a_copy_of_fewer_bytes_than_announced_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::write(&source, [0; 7]).unwrap();
        let mut tensors = model();
        tensors.push("b", Dtype::F32, vec![2], Payload::Copy(source, 0, 8));
        let target = dir.path().join("model");
        replace_files(&dir.path().join("config"), b"{}", &target, tensors).unwrap_err();
        assert!(!target.exists());
    }
}
