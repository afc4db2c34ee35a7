//! Opening files that may be anything.

use crate::error::{Error, Result};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::path::Path;

/// What the pointer starts with that a clone without git-LFS leaves in the place of a large file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Opens a file for reading, with links followed.
///
/// # Errors
///
/// - [`Error::EmptyPath`] if the path is empty;
/// - [`Error::NotAFile`] if it names a FIFO, a device, a socket or a directory: opening a FIFO waits for its
///   other end for ever;
/// - [`Error::Io`] if it cannot be opened.
pub(crate) fn open(path: &Path) -> Result<File> {
    if path.as_os_str().is_empty() {
        return Err(Error::EmptyPath { action: "read" });
    }
    let failed = |source| Error::reading(path, source);
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::NotAFile { path: path.to_path_buf(), found: kind(&metadata) });
    }
    File::open(path).map_err(failed)
}

/// The first `limit` bytes of a file, or all of them if it is shorter.
///
/// # Errors
///
/// Those of [`open`], and [`Error::GitLfsPointer`] if the file is one.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit).read_to_end(&mut bytes).map_err(|source| Error::reading(path, source))?;
    refuse_lfs_pointer(path, &bytes)?;
    Ok(bytes)
}

/// Whether anything has this name, be it a link to nowhere.
#[cfg(any(feature = "checkpoint", feature = "tokenizers"))]
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Refuses a file that starts as a pointer of git-LFS does.
///
/// # Errors
///
/// [`Error::GitLfsPointer`].
pub(crate) fn refuse_lfs_pointer(path: &Path, start: &[u8]) -> Result<()> {
    if start.starts_with(LFS_POINTER) {
        return Err(Error::GitLfsPointer { path: path.to_path_buf() });
    }
    Ok(())
}

/// The kind of a file that is not a regular one.
fn kind(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() {
        return "a directory";
    }
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
    "a device"
}
