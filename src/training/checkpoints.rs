use super::adamw_record::check_adamw;
use super::disk::{Sum, names, removed, whole};
use super::history::History;
use crate::error::{Error, Result};
use crate::files::regular_file;
use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use crc32fast::Hasher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const CHECKPOINT: &str = "checkpoint-";
const MODEL: &str = "model.bpk";
const OPTIMIZER: &str = "optimizer.bpk";
const STATE: &str = "state.msgpack";

const DAMAGED: &str = "is damaged, or was not saved by this run: its checksum is wrong; delete its folder";

/// What a run is resumed from, besides model and optimizer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) history: History,
    /// The training items that all ranks together have read.
    pub(super) items_read: usize,
    /// Checksums of the files of the model and of the optimizer.
    checksums: [u32; 2],
}

/// The numbered checkpoints of a run, each a folder that is written under another name and renamed once: it is there as a whole, or
/// not.
pub(super) struct Checkpoints(pub(super) PathBuf);

impl Checkpoints {
    fn path(&self, number: usize) -> PathBuf {
        self.0.join(format!("{CHECKPOINT}{number}"))
    }

    /// The numbers of the checkpoints.
    pub(super) fn numbers(&self) -> Result<BTreeSet<usize>> {
        let number = |name: &OsString| name.to_str()?.strip_prefix(CHECKPOINT)?.parse().ok();
        Ok(names(&self.0)?.iter().filter_map(number).collect())
    }

    /// Saves a checkpoint of a number, and returns its folder.
    pub(super) fn save(
        &self,
        number: usize,
        model: ModuleRecord,
        optimizer: OptimizerRecord,
        (history, items_read): (History, usize),
    ) -> Result<PathBuf> {
        let path = self.path(number);
        let mut state = State { history, items_read, checksums: [0; 2] };
        let write = |unfinished: &Path| {
            removed(unfinished).map_err(io::Error::other)?;
            fs::create_dir(unfinished)?;
            let [model_path, optimizer_path] = [MODEL, OPTIMIZER].map(|name| unfinished.join(name));
            model.save(&model_path).map_err(io::Error::other)?;
            optimizer.save(&optimizer_path).map_err(io::Error::other)?;
            for (sum, path) in state.checksums.iter_mut().zip([model_path, optimizer_path]) {
                let mut file = File::open(path)?;
                file.sync_all()?;
                // As a stream: a record may be larger than what memory is left.
                let mut hasher = Sum(Hasher::new());
                io::copy(&mut file, &mut hasher)?;
                *sum = hasher.0.finalize();
            }
            // Not JSON, which rounds some numbers: a resumed run must find the same best evaluation.
            let mut bytes = rmp_serde::to_vec(&state).expect("plain data");
            bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
            let mut file = File::create(unfinished.join(STATE))?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            // One that was damaged, and trained again.
            removed(&path).map_err(io::Error::other)
        };
        whole(&path, write).map_err(|source| Error::writing(&path, source))?;
        Ok(path)
    }

    /// Deletes the checkpoints whose number is not kept.
    pub(super) fn delete(&self, is_kept: impl Fn(usize) -> bool) -> Result<()> {
        let mut old = self.numbers()?.into_iter().filter(|&number| !is_kept(number));
        old.try_for_each(|number| removed(&self.path(number)))
    }

    /// The last checkpoint that can be read as a whole; number 0 if there is none, an error if all are damaged.
    pub(super) fn last(&self) -> Result<(usize, State)> {
        let mut damaged = Ok((0, State::default()));
        // From the latest on: a damaged checkpoint costs a part, not the run.
        for number in self.numbers()?.into_iter().rev() {
            let read = self.state(number).and_then(|state| {
                [MODEL, OPTIMIZER]
                    .into_iter()
                    .try_for_each(|name| self.read(number, name, &state).map(drop))?;
                Ok(state)
            });
            match read {
                Ok(state) => return Ok((number, state)),
                Err(error) => damaged = Err(error),
            }
        }
        damaged
    }

    fn state(&self, number: usize) -> Result<State> {
        let path = self.path(number).join(STATE);
        let mut bytes = regular_file::read(&path, u64::MAX)?;
        // A file of fewer than four bytes is all checksum, and refused below.
        let sum = bytes.split_off(bytes.len().saturating_sub(4));
        let state =
            rmp_serde::from_slice(&bytes).ok().filter(|_| sum == crc32fast::hash(&bytes).to_le_bytes());
        state
            .filter(|state: &State| state.history.evaluations.len() == number)
            .ok_or_else(|| Error::file(&path, DAMAGED))
    }

    /// A file of a checkpoint, in memory: Burn's records are windows on a file that may be deleted.
    fn read(&self, number: usize, name: &str, state: &State) -> Result<Bytes> {
        let path = self.path(number).join(name);
        let bytes = regular_file::read(&path, u64::MAX)?;
        let sum = state.checksums[usize::from(name == OPTIMIZER)];
        if crc32fast::hash(&bytes) == sum {
            Ok(Bytes::from_bytes_vec(bytes))
        } else {
            Err(Error::file(&path, DAMAGED))
        }
    }

    /// The model of a checkpoint; an error if it is damaged, or of another model.
    pub(super) fn model<M: Module>(&self, number: usize, model: M) -> Result<M> {
        let record = ModuleRecord::from_bytes(self.read(number, MODEL, &self.state(number)?)?);
        record
            .and_then(|record| model.try_load_record(record))
            .map_err(|error| self.misfit(number, MODEL, error))
    }

    /// The optimizer of a checkpoint of `model`; an error if it is damaged, or of another optimizer or model.
    pub(super) fn optimizer<M: Module>(
        &self,
        number: usize,
        (optimizer, is_adamw): (ModuleOptimizer, bool),
        model: &M,
    ) -> Result<ModuleOptimizer> {
        let bytes = self.read(number, OPTIMIZER, &self.state(number)?)?;
        if is_adamw {
            check_adamw(bytes.clone(), model).map_err(|problem| self.misfit(number, OPTIMIZER, problem))?;
        }
        let record =
            OptimizerRecord::from_bytes(bytes).map_err(|error| self.misfit(number, OPTIMIZER, error))?;
        let saved = record.len();
        let optimizer = optimizer.load_record(record);
        // Burn leaves out what it does not know, and would begin with zeros.
        if optimizer.to_record().len() != saved {
            return Err(self.misfit(number, OPTIMIZER, "it is of another optimizer"));
        }
        Ok(optimizer)
    }

    fn misfit(&self, number: usize, name: &str, problem: impl Display) -> Error {
        Error::file(&self.path(number).join(name), format!("does not fit the model: {problem}"))
    }
}
