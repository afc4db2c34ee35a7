//! Opening files that may be anything.

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// The folder of a complete save, from which its files are moved to their places.
pub(super) const SAVED: &str = ".burn_bert_saved";

/// Opens a file for reading, with links followed; [`Error::File`] for a FIFO, a device, a socket or a directory.
pub(crate) fn open(path: &Path) -> Result<File> {
    if path.as_os_str().is_empty() {
        return Err(empty_path("read"));
    }
    let failed = |source| Error::reading(path, source);
    loop {
        let at = current(path);
        // Another process may have moved it to its place meanwhile.
        let is_moved = |error: &io::Error| error.kind() == io::ErrorKind::NotFound && at != path;
        // Before it is opened: opening a FIFO waits for its other end for ever.
        let metadata = match fs::metadata(&at) {
            Err(error) if is_moved(&error) => continue,
            metadata => metadata.map_err(failed)?,
        };
        if !metadata.is_file() {
            let problem = format!("is {}, but must be a regular file or a link to one", kind(&metadata));
            return Err(Error::file(path, problem));
        }
        match File::open(&at) {
            Err(error) if is_moved(&error) => {}
            file => return file.map_err(failed),
        }
    }
}

/// Where the file is that is read as `path`: there, or where a complete save that was interrupted left it. So what it wrote
/// counts for a reader that may not move it.
pub(super) fn current(path: &Path) -> PathBuf {
    // A save writes into its directory and into folders there.
    for dir in path.ancestors().skip(1).take(2) {
        let folder = dir.join(SAVED);
        if let Ok(name) = path.strip_prefix(dir)
            && is_folder(&folder)
            && fs::symlink_metadata(folder.join(name)).is_ok()
        {
            return folder.join(name);
        }
    }
    path.to_path_buf()
}

pub(super) fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// The first `limit` bytes of a file, or all of them if it is shorter; an error for a git-LFS pointer.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Limited whatever its metadata says: the file may grow while it is read.
    open(path)?.take(limit).read_to_end(&mut bytes).map_err(|source| Error::reading(path, source))?;
    refuse_lfs_pointer(path, &bytes)?;
    Ok(bytes)
}

/// A file of a tokenizer or of labelled texts, of at most 4 GiB: an error, where a wrong path would take all memory. What
/// parses the bytes has limits of its own.
#[cfg(feature = "tokenizers")]
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>> {
    const MAX: u64 = 4 << 30;
    let size = open(path)?.metadata().map_err(|source| Error::reading(path, source))?.len();
    if size > MAX {
        let problem = format!("has {size} bytes, but at most 4 GiB are read into memory; split it");
        return Err(Error::file(path, problem));
    }
    read(path, MAX)
}

/// The text of a UTF-8 file, without a byte order mark.
#[cfg(feature = "train")]
pub(crate) fn read_text(path: &Path) -> Result<String> {
    text(path, read_whole(path)?)
}

/// The text in the bytes of the file at `path`, without a byte order mark.
#[cfg(feature = "tokenizers")]
pub(crate) fn text(path: &Path, bytes: Vec<u8>) -> Result<String> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count();
        Error::NotUtf8 { path: path.to_path_buf(), line, offset: offset as u64 }
    })?;
    // Windows' editors write one, and it would be part of the first word.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// A JSON file whose root is what is asked for, such as an object.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    /// Larger than any config or index.
    const MAX_JSON_BYTES: u64 = 16 << 20;
    let text = read(path, MAX_JSON_BYTES + 1)?;
    if text.len() as u64 > MAX_JSON_BYTES {
        let problem = format!("it is larger than {} MiB, which no config or index is", MAX_JSON_BYTES >> 20);
        return Err(Error::not_a_checkpoint(path, problem));
    }
    serde_json::from_slice(&text).map_err(|source| Error::Json { path: path.to_path_buf(), source })
}

pub(crate) fn create_directory(dir: &Path) -> Result<()> {
    if dir.as_os_str().is_empty() {
        return Err(empty_path("saved into"));
    }
    fs::create_dir_all(dir).map_err(|source| Error::writing(dir, source))
}

/// Whether `name` names something in the directory itself, on every system, and nothing that a terminal would obey.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    // Windows' separators and drives are checked everywhere: a checkpoint is moved between systems.
    let plain = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    plain && !name.contains(['/', '\\', ':']) && !name.contains(char::is_control)
}

/// An empty path, where a file was to be `read` or a directory to be `saved into`.
fn empty_path(done: &str) -> Error {
    Error::data("the empty path", format!("cannot be {done}; the current directory is \".\""))
}

/// Whether anything has this name, including a dangling symlink.
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(current(path)).is_ok()
}

/// The path itself, or the first of these names in a directory. What has that name need not be a file: opening it says so,
/// rather than another one being read in its place.
pub(crate) fn first_in(path: &Path, names: &[&str]) -> Option<PathBuf> {
    if !path.is_dir() {
        return Some(path.to_path_buf());
    }
    names.iter().map(|name| path.join(name)).find(|path| exists(path))
}

pub(crate) fn refuse_lfs_pointer(path: &Path, start: &[u8]) -> Result<()> {
    // A clone without git-LFS leaves it in the place of a large file.
    if start.starts_with(b"version https://git-lfs.github.com/spec/") {
        let problem = "is a git-LFS pointer and not the file itself; run `git lfs pull` in its directory, or download the file";
        return Err(Error::file(path, problem));
    }
    Ok(())
}

fn kind(metadata: &Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = metadata.file_type();
        if kind.is_fifo() {
            return "a FIFO";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    if metadata.is_dir() { "a directory" } else { "a device" }
}
