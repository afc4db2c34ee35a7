//! Replacing several files as one.
//!
//! A save writes its files into a hidden folder beside the old ones. When that folder is complete it gets another name:
//! from then on the new files count, wherever they lie, and they are moved to their places. If the process ends in between,
//! the next load or save moves the rest. So at every moment the directory holds the old model, or the new one.

use super::regular_file::{self, SAVED, current, is_folder};
use super::{ADAPTER_NAMES, MODEL_NAME};
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::TempDir;

const PART: &str = ".burn_bert_save_";

/// The new files of a directory, until they are complete.
pub(crate) struct Replacement {
    dir: PathBuf,
    part: TempDir,
    names: Vec<PathBuf>,
    /// Locked while the process lives, where a folder can be.
    _lock: Option<File>,
}

impl Replacement {
    /// Removes what interrupted saves left. One that is complete is finished when this one is.
    pub(crate) fn begin(dir: &Path) -> Result<Self> {
        let begun = || {
            remove_abandoned(dir)?;
            let part = tempfile::Builder::new().prefix(PART).tempdir_in(dir)?;
            let lock = locked(part.path());
            Ok(Self { dir: dir.to_path_buf(), part, names: Vec::new(), _lock: lock })
        };
        begun().map_err(|source| Error::writing(dir, source))
    }

    /// Writes the file `path`, which lies in the directory.
    pub(crate) fn write(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<()> {
        let written = || {
            let name = path.strip_prefix(&self.dir).map_err(io::Error::other)?;
            // What cannot be moved to its place is found out here, while nothing has changed.
            if directory_of(path) != self.dir {
                create_inside(directory_of(path))?;
            }
            if path.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let new = self.part.path().join(name);
            fs::create_dir_all(directory_of(&new))?;
            // Large enough for a row of any tensor: a write is a system call.
            let mut out = BufWriter::with_capacity(1 << 20, File::create(&new)?);
            write(&mut out)?;
            // Before the rename: a crash must not leave the new name with old or no content.
            out.into_inner()?.sync_all()?;
            Ok(name.to_path_buf())
        };
        let name = written().map_err(|source| Error::writing(path, source))?;
        self.names.push(name);
        Ok(())
    }

    pub(crate) fn commit(self) -> Result<()> {
        // A file's name is flushed with its directory, not with the file.
        for name in &self.names {
            sync(directory_of(&self.part.path().join(name)))?;
        }
        let saved = self.dir.join(SAVED);
        // Another process may have completed a save into the same directory meanwhile.
        if fs::rename(self.part.path(), &saved).is_err() {
            finish(&self.dir)?;
            fs::rename(self.part.path(), &saved).map_err(|source| Error::writing(&saved, source))?;
        }
        sync(&self.dir)?;
        finish(&self.dir)
    }
}

/// Moves the files of a complete save to their places in `dir`, if it has any. Those that cannot be moved stay.
pub(crate) fn finish(dir: &Path) -> Result<()> {
    let saved = dir.join(SAVED);
    if !is_folder(&saved) {
        return Ok(());
    }
    move_all(&saved, dir).map_err(|source| Error::Io {
        action: "finish the interrupted save in",
        path: dir.into(),
        source,
    })
}

/// What `read` reads at `path`, a directory or a file of weights: config and weights of one save. It is read again if a
/// save replaced the weights, as every save does, meanwhile.
pub(crate) fn read_consistently<T>(path: &Path, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let dir = folder_of(path);
    let versions = || [MODEL_NAME, ADAPTER_NAMES[0]].map(|name| version(&dir.join(name)));
    loop {
        // Other programs see the new files too then. Where they cannot be moved, they are read where they are.
        let _ = finish(dir);
        let before = versions();
        let found = read();
        if versions() == before {
            return found;
        }
    }
}

/// The directory of a model that is named by it, or by a file in it.
pub(crate) fn folder_of(path: &Path) -> &Path {
    if path.is_dir() { path } else { directory_of(path) }
}

/// What tells a file from the one that replaces it, and from itself before it was moved to its place; `None` if there is
/// none.
fn version(path: &Path) -> Option<(PathBuf, u64, u64, SystemTime)> {
    let path = current(path);
    let metadata = fs::metadata(&path).ok()?;
    #[cfg(unix)]
    let id = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let id = 0;
    // Three of them, as an inode can be given out again and clocks are coarse.
    Some((path, id, metadata.len(), metadata.modified().ok()?))
}

/// Moves everything in `from` into `to`. What is missing was moved by another process.
fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    let mut entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    // Sorted, so that every process moves them in the same order.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            create_inside(&new)?;
            move_all(&old, &new)?;
            continue;
        }
        match fs::rename(&old, &new) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !regular_file::exists(&old) => {}
            renamed => renamed?,
        }
    }
    sync(to).map_err(io::Error::other)?;
    // Not with what is in it: another save may have been completed meanwhile, under the same name.
    let _ = fs::remove_dir(from);
    Ok(())
}

/// Creates a folder inside the directory. A link in its place could lead out of the directory.
fn create_inside(folder: &Path) -> io::Result<()> {
    if regular_file::exists(folder) && !is_folder(folder) {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    fs::create_dir_all(folder)
}

fn remove_abandoned(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_part = entry.file_name().as_encoded_bytes().starts_with(PART.as_bytes());
        // Who can lock it is alone with it.
        if is_part && locked(&entry.path()).is_some() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The folder's lock, unless a process has it, or folders cannot be locked.
fn locked(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.try_lock().ok()?;
    Some(folder)
}

/// Flushes what was renamed in a directory to disk, on systems and file systems that can sync a directory.
fn sync(dir: &Path) -> Result<()> {
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        Err(source) if cfg!(unix) && !is_without_sync(&source) => Err(Error::writing(dir, source)),
        _ => Ok(()),
    }
}

/// Whether a file system has no sync of directories, as SMB and some of FUSE's: the files are replaced all the same.
fn is_without_sync(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Saves files; as a process that is killed when the save is complete and so many of them are in their place.
    fn save(dir: &Path, names: &[&str], killed_after: Option<usize>) {
        let mut new = Replacement::begin(dir).unwrap();
        for name in names {
            new.write(&dir.join(name), |out| out.write_all(b"new")).unwrap();
        }
        let Some(moved) = killed_after else { return new.commit().unwrap() };
        let saved = dir.join(SAVED);
        fs::rename(new.part.keep(), &saved).unwrap();
        names[..moved].iter().for_each(|name| fs::rename(saved.join(name), dir.join(name)).unwrap());
    }

    #[test]
    fn files_that_are_replaced_while_they_are_read_are_read_again() {
        for killed_after in [None, Some(0), Some(1), Some(2)] {
            let dir = tempfile::tempdir().unwrap();
            let names = ["config.json", MODEL_NAME];
            names.iter().for_each(|name| fs::write(dir.path().join(name), "old").unwrap());
            let text = |name| fs::read_to_string(dir.path().join(name)).unwrap();
            let read = || {
                let config = text(names[0]);
                // Between the two files, once.
                if config == "old" {
                    save(dir.path(), &names, killed_after);
                }
                Ok([config, text(names[1])])
            };
            assert_eq!(read_consistently(dir.path(), read).unwrap(), ["new"; 2], "{killed_after:?}");
        }
    }

    #[test]
    fn a_file_that_another_process_moves_to_its_place_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let weights = dir.path().join(MODEL_NAME);
        save(dir.path(), &[MODEL_NAME], Some(0));
        let before = version(&weights);
        assert!(before.is_some());
        // Between the look for the file and its opening: what was found is no longer there.
        finish(dir.path()).unwrap();
        assert_ne!(version(&weights), before);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_system_that_syncs_no_directory_is_no_failure_of_a_save() {
        let directory = Path::new("/proc/self");
        let error = File::open(directory).unwrap().sync_all().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        sync(directory).unwrap();
        // A directory that does not exist, and one that cannot be written to disk, are failures.
        sync(Path::new("/proc/nowhere")).unwrap_err();
        assert!(!is_without_sync(&io::Error::from_raw_os_error(5)), "EIO");
    }
}
