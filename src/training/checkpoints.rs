use crate::error::{Error, Result};
use crate::files::regular_file;
use crate::optim::{MEAN, SQUARE, TIME};
use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;
use burn::tensor::Bytes;
use burn::train::checkpoint::{Checkpoint, Checkpointer, CheckpointerError};
use burn_pack::Reader;
use crc32fast::Hasher;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// In the name of a file that is not yet complete.
pub(super) const UNFINISHED: &str = ".unfinished";

/// Burnpack files of models, optimizers or schedules, one per epoch, each followed by four bytes: its checksum.
#[derive(Clone)]
pub(super) struct Checkpoints {
    folder: PathBuf,
    name: &'static str,
}

impl Checkpoints {
    pub(super) fn all(training: &Path) -> [Self; 3] {
        let folder = training.join("checkpoint");
        ["model", "optim", "scheduler"].map(|name| Self { folder: folder.clone(), name })
    }

    /// Removes what a killed process left half written.
    pub(super) fn remove_unfinished(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().contains(UNFINISHED)) {
            let _ = fs::remove_file(entry.path()); // what stays is written over by the next save of that name
        }
    }

    pub(super) fn path(&self, epoch: usize) -> PathBuf {
        self.folder.join(format!("{}-{epoch}.bpk", self.name))
    }

    pub(super) fn epochs(&self) -> Result<BTreeSet<usize>> {
        let epoch = |name: &OsString| {
            let stem = name.to_str()?.strip_suffix(".bpk")?.strip_prefix(self.name)?;
            stem.strip_prefix('-')?.parse().ok()
        };
        Ok(names(&self.folder)?.iter().filter_map(epoch).collect())
    }

    /// The checkpoint of an epoch without its checksum, in memory: Burn's records are windows on a file that may be deleted.
    pub(super) fn read(&self, epoch: usize) -> Result<Vec<u8>> {
        let path = self.path(epoch);
        let mut bytes = regular_file::read(&path, u64::MAX)?;
        // A file of fewer than four bytes is all checksum, and refused below.
        let sum = bytes.split_off(bytes.len().saturating_sub(4));
        if sum != self.checksum(&bytes[..]).map_err(|source| Error::reading(&path, source))? {
            let problem = "is damaged, or was not saved by this run: its checksum is wrong; delete it".into();
            return Err(Error::File { path, problem });
        }
        Ok(bytes)
    }

    /// Burn takes a model's record for an optimizer's without an error, so the sum covers which one it is.
    fn checksum(&self, mut record: impl Read) -> io::Result<[u8; 4]> {
        let mut sum = Sum(Hasher::new());
        sum.0.update(self.name.as_bytes());
        io::copy(&mut record, &mut sum)?;
        Ok(sum.0.finalize().to_le_bytes())
    }
}

impl<R: Checkpoint> Checkpointer<R> for Checkpoints {
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        let path = self.path(epoch);
        let save = |path: &Path| {
            record.save(path.to_path_buf()).map_err(io::Error::other)?;
            // At the end, since the sum is known only once Burn has written the rest. As a stream: a record may be larger than what
            // memory is left.
            let sum = self.checksum(File::open(path)?)?;
            File::options().append(true).open(path)?.write_all(&sum)
        };
        whole(&path, save).map_err(CheckpointerError::IOError)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
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

/// Refuses a record that is not of [`AdamW`](crate::optim::AdamW) for parameters of `model`: Burn would leave out the state of some, or
/// panic at it in the first step. Parameters without a gradient so far have none.
pub(super) fn check_optimizer_record<M: Module>(record: Vec<u8>, model: &M) -> Result<(), String> {
    struct Shapes(HashMap<u64, Vec<usize>>);
    impl ModuleVisitor for Shapes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.insert(param.id.val(), param.lazy_shape().to_vec());
        }
    }
    let mut shapes = Shapes(HashMap::new());
    model.visit(&mut shapes);
    let damaged = |error: burn_pack::Error| error.to_string();
    let reader = Reader::from_bytes(Bytes::from_bytes_vec(record)).map_err(damaged)?;
    let scalars = reader.scalars().clone();
    let mut names = BTreeSet::new();
    for tensor in reader.into_tensors().map_err(damaged)? {
        let (name, dtype, shape, id, _) = tensor.into_parts().map_err(damaged)?;
        let shape = shape.to_vec();
        let expected = id.and_then(|id| Some((id, shapes.0.get(&id)?)));
        let Some((id, _)) = expected.filter(|(_, expected)| **expected == shape && dtype.is_float()) else {
            return Err(format!("{name} has shape {shape:?} and dtype {dtype:?}, which no parameter has"));
        };
        let number = |name: &str| scalars.get(&format!("{id}.{name}")).and_then(|&n| u32::try_from(n).ok());
        if number("__rank") != Some(shape.len() as u32) || number(TIME).is_none_or(|time| time == 0) {
            return Err(format!("{name} has no number of steps or another rank than its parameter"));
        }
        names.insert(name);
    }
    if names.is_empty() {
        return Err("has no state".into());
    }
    let ids = scalars.keys().filter_map(|name| Some(name.split_once('.')?.0));
    let expected: BTreeSet<String> =
        ids.flat_map(|id| [MEAN, SQUARE].map(|moment| format!("{id}.{moment}"))).collect();
    let other = names.symmetric_difference(&expected).next();
    other.map_or(Ok(()), |name| Err(format!("{name} is missing, or no state of AdamW")))
}

pub(super) fn names(folder: &Path) -> Result<Vec<OsString>> {
    let failed = |source| Error::reading(folder, source);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(failed)?.map(|entry| Ok(entry.map_err(failed)?.file_name())).collect(),
    }
}

/// Writes a file under another name and renames it, so that `path` never holds half of it, not even after a power failure. Its
/// folder need not exist.
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

struct Sum(Hasher);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn checksum_of(data: &impl Debug) -> u32 {
    let mut sum = Sum(Hasher::new());
    let _ = write!(sum, "{data:?}"); // a sum is never full
    sum.0.finalize()
}
