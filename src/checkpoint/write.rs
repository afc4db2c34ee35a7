//! Writing safetensors, and replacing several files as one.

use super::formats::safetensors::{NOTE, SafetensorsFile};
use super::formats::values::transposed;
use crate::error::{Error, Result};
use crate::regular_file;
use burn::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{NamedTempFile, TempPath};

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
    pub(super) fn keep(&mut self, file: SafetensorsFile, renamed: impl Fn(&str) -> Option<String>) {
        for key in file.keys() {
            if let (Some(info), Some(name)) = (file.metadata().info(&key), renamed(&key)) {
                let (start, end) = info.data_offsets;
                let payload =
                    Payload::Copy(Arc::clone(file.file()), file.position(info), (end - start) as u64);
                self.tensors.push((name, info.dtype, info.shape.clone(), payload));
            }
        }
        self.metadata =
            file.metadata().metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    }

    /// Notes which config the tensors go with.
    pub(super) fn set_note(&mut self, note: String) {
        self.metadata.insert(NOTE.into(), note);
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

/// Replaces the weights, their config and what else describes the model, or nothing.
///
/// All are complete on disk before the first is renamed; if one cannot be, those before it are put back. The
/// weights are first because they note their config: a reader that finds them beside another one, after a crash or
/// between the renames, detects it.
pub(super) fn replace_files(model_path: &Path, model: Tensors, jsons: &[JsonFile]) -> Result<()> {
    replace_with(model_path, model, jsons, || ())
}

/// As [`replace_files`]; `between` is called after the first rename.
fn replace_with(model_path: &Path, model: Tensors, jsons: &[JsonFile], between: impl FnOnce()) -> Result<()> {
    let mut complete = vec![(model_path, written_beside(model_path, |out| model.write(out))?)];
    for JsonFile { path, value } in jsons {
        let json = serde_json::to_string_pretty(value)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        let directory = directory_of(path);
        fs::create_dir_all(directory).map_err(|source| Error::writing(directory, source))?;
        complete.push((path, written_beside(path, |out| writeln!(out, "{json}"))?));
    }
    let mut replaced: Vec<(&Path, OldFile)> = Vec::new();
    let mut between = Some(between);
    for (path, new) in complete {
        let renamed = OldFile::keep(path).and_then(|old| match rename(new, path) {
            Ok(()) => {
                replaced.push((path, old));
                Ok(())
            }
            Err(error) => {
                if !regular_file::exists(path) {
                    let _ = old.put_back(path);
                }
                Err(error)
            }
        });
        if let Err(error) = renamed {
            for (path, old) in replaced.into_iter().rev() {
                // The failure to report is this one, whether or not the old files can be put back.
                let _ = old.put_back(path);
            }
            return Err(error);
        }
        if let Some(between) = between.take() {
            between();
        }
    }
    replaced.iter().try_for_each(|(path, _)| sync_directory(path))
}

/// The file that is replaced, under a temporary name until this is dropped.
struct OldFile(Option<TempPath>);

impl OldFile {
    fn keep(path: &Path) -> Result<Self> {
        if !regular_file::exists(path) {
            return Ok(Self(None));
        }
        let failed = |source| Error::writing(path, source);
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let kept = temporary_in(directory_of(path)).map_err(failed)?.into_temp_path();
        fs::remove_file(&kept).map_err(failed)?;
        // On a file system without hard links, the file is missing until the new one is renamed.
        fs::hard_link(path, &kept).or_else(|_| fs::rename(path, &kept)).map_err(failed)?;
        Ok(Self(Some(kept)))
    }

    fn put_back(self, path: &Path) -> io::Result<()> {
        match self.0 {
            Some(kept) => kept.persist(path).map_err(|error| error.error),
            None => fs::remove_file(path),
        }
    }
}

/// Flushes the renames to disk, on systems and file systems that can sync a directory.
fn sync_directory(path: &Path) -> Result<()> {
    if cfg!(unix) {
        let directory = directory_of(path);
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        if let Err(source) = synced
            && !is_without_sync(&source)
        {
            return Err(Error::writing(directory, source));
        }
    }
    Ok(())
}

/// Whether a file system has no sync of directories, as SMB and some of FUSE's: the files are replaced all the same.
fn is_without_sync(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn written_beside(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<NamedTempFile> {
    let written = || {
        let file = temporary_in(directory_of(path))?;
        let mut out = BufWriter::with_capacity(1 << 20, file.as_file());
        write(&mut out)?;
        out.flush()?;
        drop(out);
        file.as_file().sync_all()?;
        Ok(file)
    };
    written().map_err(|source| Error::writing(path, source))
}

/// A temporary file with the permissions that `File::create` gives; `tempfile`'s own exclude all other users.
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
    use serde_json::json;
    use std::collections::BTreeMap;

    fn new(path: &Path) -> [JsonFile; 1] {
        [JsonFile { path: path.to_path_buf(), value: json!("new") }]
    }

    fn model() -> Tensors {
        let values = Tensor::<1>::from_data([1.0f32, 2.0], &Device::default());
        let mut tensors = Tensors::default();
        tensors.push("a", Dtype::F32, vec![2], Payload::Values(Box::new(values)));
        tensors
    }

    /// Every file of a directory, by name.
    fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
        let named = |file: fs::DirEntry| (file.file_name().into_string().unwrap(), file.path());
        let files = fs::read_dir(dir).unwrap().map(|file| named(file.unwrap()));
        files.map(|(name, path)| (name, fs::read(path).unwrap_or_default())).collect()
    }

    #[test]
    fn if_the_config_cannot_be_put_in_place_the_weights_are_put_back() {
        for old in [Some("old"), None] {
            let dir = tempfile::tempdir().unwrap();
            let (config, model_path) = (dir.path().join("config"), dir.path().join("model"));
            if let Some(old) = old {
                fs::write(&model_path, old).unwrap();
            }
            // A directory that is not empty cannot be replaced by a file.
            fs::create_dir_all(config.join("inside")).unwrap();
            let before = files(dir.path());
            replace_files(&model_path, model(), &new(&config)).unwrap_err();
            assert_eq!(files(dir.path()), before);
        }
    }

    #[test]
    fn if_the_weights_cannot_be_put_in_place_the_config_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (config, model_path) = (dir.path().join("config"), dir.path().join("model"));
        fs::write(&config, "old").unwrap();
        fs::create_dir_all(model_path.join("inside")).unwrap();
        replace_files(&model_path, model(), &new(&config)).unwrap_err();
        assert_eq!(fs::read_to_string(&config).unwrap(), "old");
    }

    #[test]
    fn between_the_renames_the_new_weights_are_beside_the_old_config() {
        let dir = tempfile::tempdir().unwrap();
        let (config, model_path) = (dir.path().join("config"), dir.path().join("model"));
        fs::write(&config, "old").unwrap();
        fs::write(&model_path, "old").unwrap();
        replace_with(&model_path, model(), &new(&config), || {
            assert_eq!(fs::read_to_string(&config).unwrap(), "old");
            assert_ne!(fs::read(&model_path).unwrap(), b"old");
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), "\"new\"\n");
        assert_eq!(files(dir.path()).len(), 2, "nothing temporary is left");
    }

    #[test]
    fn if_the_last_of_several_files_cannot_be_put_in_place_all_others_are_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let model_path = dir.path().join("model");
        let [first, second, third] = ["first", "second", "third"].map(|name| dir.path().join(name));
        fs::write(&model_path, "old").unwrap();
        fs::write(&first, "old").unwrap();
        fs::create_dir_all(third.join("inside")).unwrap();
        let before = files(dir.path());
        let jsons = [&first, &second, &third].map(|path| {
            let [json] = new(path);
            json
        });
        replace_files(&model_path, model(), &jsons).unwrap_err();
        assert_eq!(files(dir.path()), before);
        replace_files(&model_path, model(), &jsons[..2]).unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "\"new\"\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_system_that_syncs_no_directory_is_no_failure_of_a_save() {
        let directory = Path::new("/proc/self");
        let error = File::open(directory).unwrap().sync_all().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        sync_directory(&directory.join("model.safetensors")).unwrap();
        // A directory that is not there, and one that cannot be written to disk, are failures.
        sync_directory(Path::new("/proc/nowhere/model.safetensors")).unwrap_err();
        assert!(!is_without_sync(&io::Error::from_raw_os_error(5)), "EIO");
    }

    #[test]
    fn a_copy_of_fewer_bytes_than_announced_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::write(&source, [0; 7]).unwrap();
        let source = Arc::new(File::open(source).unwrap());
        let mut tensors = model();
        tensors.push("b", Dtype::F32, vec![2], Payload::Copy(source, 0, 8));
        let target = dir.path().join("model");
        replace_files(&target, tensors, &new(&dir.path().join("config"))).unwrap_err();
        assert!(!target.exists());
    }
}
