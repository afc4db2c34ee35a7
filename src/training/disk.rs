//! Files and folders that are there as a whole or not, and checksums.

use crate::error::{Error, Result};
use crc32fast::Hasher;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// The end of the name of what is not yet complete.
pub(super) const UNFINISHED: &str = ".unfinished";

/// The names in a folder; none if it is not there.
pub(super) fn names(folder: &Path) -> Result<Vec<OsString>> {
    let failed = |source| Error::reading(folder, source);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(failed)?.map(|entry| Ok(entry.map_err(failed)?.file_name())).collect(),
    }
}

/// Removes a file or a folder, if it is there.
pub(super) fn removed(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::writing(path, source)),
        _ => Ok(()),
    }
}

/// Writes a file or a folder under another name and renames it, so that `path` never holds half of it, not even after a power
/// failure. Its folder need not exist.
pub(super) fn whole(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = Path::new(&unfinished);
    write(unfinished)?;
    File::open(unfinished)?.sync_all()?;
    fs::rename(unfinished, path)?;
    // The new name lasts once its folder is synced, which some file systems cannot do.
    let _ = path.parent().map(File::open).and_then(|folder| folder.ok()?.sync_all().ok());
    Ok(())
}

/// A CRC-32 of what is written to it.
pub(super) struct Sum(pub(super) Hasher);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The checksum of what `Debug` writes of data.
pub(super) fn checksum(data: &impl Debug) -> u32 {
    let mut sum = Sum(Hasher::new());
    let _ = write!(sum, "{data:?}"); // a sum is never full
    sum.0.finalize()
}
