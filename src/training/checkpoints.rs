//! The checkpoints of a run: what Burn's trainer saves, with checksums.

use super::history::{Best, Watch};
use crate::error::{Error, Result};
use crate::files::regular_file;
use burn::tensor::Bytes;
use burn::train::checkpoint::{
    Checkpoint, Checkpointer, CheckpointerError, CheckpointingAction, CheckpointingStrategy,
};
use burn::train::metric::store::EventStoreClient;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// In the name of a file that is not yet complete.
pub(super) const UNFINISHED: &str = ".unfinished";

/// Burnpack files of models, optimisers or schedules, one per epoch, each followed by four bytes: its [`checksum`].
pub(super) struct Checkpoints {
    pub(super) folder: PathBuf,
    pub(super) name: &'static str,
    /// Saves and deletes nothing: another rank does.
    pub(super) is_read_only: bool,
}

impl Checkpoints {
    /// Those of models, optimisers and schedules.
    pub(super) fn all(training: &Path) -> [Self; 3] {
        ["model", "optim", "scheduler"].map(|name| Self {
            folder: training.join("checkpoint"),
            name,
            is_read_only: false,
        })
    }

    /// Removes what a killed process left half written.
    pub(super) fn remove_unfinished(training: &Path) {
        let entries = fs::read_dir(training.join("checkpoint")).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().contains(UNFINISHED)) {
            let _ = fs::remove_file(entry.path());
        }
    }

    pub(super) fn path(&self, epoch: usize) -> PathBuf {
        self.folder.join(format!("{}-{epoch}.bpk", self.name))
    }

    /// The epochs of which there is a file, in ascending order.
    pub(super) fn epochs(&self) -> Result<Vec<usize>> {
        let mut epochs = Vec::new();
        for name in names(&self.folder)? {
            let stem = name.to_str().and_then(|name| name.strip_suffix(".bpk"));
            let number = stem.and_then(|stem| stem.strip_prefix(self.name)?.strip_prefix('-'));
            epochs.extend(number.and_then(|number| number.parse::<usize>().ok()));
        }
        epochs.sort_unstable();
        Ok(epochs)
    }

    /// The checkpoint of an epoch without its checksum, in memory: Burn's records are windows on a file that may be deleted.
    pub(super) fn read(&self, epoch: usize) -> Result<Vec<u8>> {
        let path = self.path(epoch);
        let mut bytes = regular_file::read(&path, u64::MAX)?;
        let sum = bytes.split_off(bytes.len().saturating_sub(4));
        let found = self.checksum(bytes.as_slice()).map_err(|source| Error::reading(&path, source))?;
        if sum != found.to_le_bytes() {
            let problem = "is damaged, or was not saved by this run: its checksum is wrong; delete it".into();
            return Err(Error::File { path, problem });
        }
        Ok(bytes)
    }

    /// Burn takes a model's record for an optimizer's without an error, so the sum covers which one it is.
    fn checksum(&self, record: impl Read) -> io::Result<u32> {
        checksum(self.name.as_bytes().chain(record))
    }
}

impl<R: Checkpoint> Checkpointer<R> for Checkpoints {
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        if self.is_read_only {
            return Ok(());
        }
        let path = self.path(epoch);
        let save = |path: &Path| {
            record.save(path.to_path_buf()).map_err(io::Error::other)?;
            let sum = self.checksum(File::open(path)?)?;
            let mut file = File::options().append(true).open(path)?;
            file.write_all(&sum.to_le_bytes())
        };
        let saved = fs::create_dir_all(&self.folder).and_then(|()| whole(&path, save));
        saved.map_err(CheckpointerError::IOError)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        if self.is_read_only {
            return Ok(());
        }
        match fs::remove_file(self.path(epoch)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(CheckpointerError::IOError(error)),
            _ => Ok(()),
        }
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        let bytes = self.read(epoch).map_err(|error| CheckpointerError::Unknown(error.to_string()))?;
        R::checkpoint_from_bytes(Bytes::from_bytes_vec(bytes)).map_err(CheckpointerError::Record)
    }
}

/// Keeps the last two checkpoints and the best one, of those on disk: the checkpoints from before a resume are deleted as well.
pub(super) struct LastAndBest {
    pub(super) folder: PathBuf,
    pub(super) best: Best,
    pub(super) watch: Watch,
}

impl CheckpointingStrategy for LastAndBest {
    fn checkpointing(&mut self, epoch: usize, store: &EventStoreClient) -> Vec<CheckpointingAction> {
        let best = self.best.epoch(&self.best.validated(store, epoch));
        // Known now at the latest, since the store has answered: a model with such a loss is not saved.
        if self.watch.problem.get().is_some() {
            return Vec::new();
        }
        let saved = Checkpoints::all(&self.folder).map(|files| files.epochs().unwrap_or_default());
        let old: BTreeSet<usize> = saved.into_iter().flatten().collect();
        let old = old.into_iter().filter(|&old| old + 1 < epoch && Some(old) != best);
        [CheckpointingAction::Save].into_iter().chain(old.map(CheckpointingAction::Delete)).collect()
    }
}

/// The names in a folder; none if it does not exist.
pub(super) fn names(folder: &Path) -> Result<Vec<OsString>> {
    let failed = |source| Error::reading(folder, source);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(failed)?.map(|entry| Ok(entry.map_err(failed)?.file_name())).collect(),
    }
}

/// Writes a file under another name and renames it, so that `path` never holds half of it, not even after a power failure.
pub(super) fn whole<T>(path: &Path, write: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<()> {
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

/// CRC-32 of what is read.
pub(super) fn checksum(mut source: impl Read) -> io::Result<u32> {
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
