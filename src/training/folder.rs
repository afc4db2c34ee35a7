use super::arguments::{SavedSettings, TrainingArguments, differences};
use super::checkpoints::{Checkpoints, State};
use super::disk::{UNFINISHED, names, removed, whole};
use super::history::History;
use super::plan::Plan;
use crate::error::{Error, Result};
use crate::files::{ADAPTER_CONFIG_NAME, ADAPTER_NAMES, regular_file};
use burn::optim::OptimizerRecord;
use burn::store::ModuleRecord;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SAME_LOSS: f64 = 1e-3; // relative: devices add up in different orders

/// The folder of the adapters in an output directory.
pub(super) const ADAPTER: &str = "adapter";

const TRAINING: &str = "training";
const BEGINNING: &str = "run.json";
const LOCK: &str = "lock";

const BEGUN: &str = "holds a run already; resume or overwrite it, or choose another output directory";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Beginning {
    settings: SavedSettings,
    /// The loss before training, which reveals another checkpoint.
    loss: f64,
    /// Items in the batches of that loss, by which a resumed run computes it too; without validation data it is the loss of one batch,
    /// and not compared if its size is another.
    batch_size: usize,
    /// The parts that are planned; a resumed run may have more.
    parts: usize,
    /// The steps of a part, if it is not an epoch, and how many parts an epoch has.
    part: Option<(usize, usize)>,
    /// Checksums of the training data and of the validation data.
    data: [u32; 2],
}

/// The output directory of a training run: the model, and in the folder `training` what the run is resumed from with the same
/// settings.
pub(super) struct RunFolder {
    output: PathBuf,
    folder: PathBuf,
    pub(super) checkpoints: Checkpoints,
    is_overwriting: bool,
    settings: SavedSettings,
    begun: Option<Beginning>,
    /// The lock, if the file system has locks, and what this process wrote of the beginning: meanwhile no other process can begin a
    /// run in the directory.
    held: Mutex<(Option<File>, String)>,
    /// The number of the last checkpoint that can be read, 0 if there is none, and its state.
    pub(super) resumed: (usize, State),
}

impl RunFolder {
    /// Writes nothing. Refuses a directory that is not empty, and to resume a run that is not there, began with other settings, or
    /// is damaged; [`Error::Rank`] if the settings of a rank differ.
    pub(super) fn open(arguments: &TrainingArguments) -> Result<Self> {
        let TrainingArguments { output_dir, ranks, resume, overwrite_output_dir, .. } = arguments;
        let mut run = Self {
            output: output_dir.clone(),
            folder: output_dir.join(TRAINING),
            checkpoints: Checkpoints(output_dir.join(TRAINING)),
            is_overwriting: *overwrite_output_dir && !resume,
            settings: arguments.settings(),
            begun: None,
            held: Mutex::default(),
            resumed: Default::default(),
        };
        match run.read_beginning() {
            // Whatever it is, it is replaced.
            _ if run.is_overwriting && run.folder.join(BEGINNING).exists() => {}
            Ok(Some(begun)) if *resume => {
                if begun.settings != run.settings {
                    return run.refused(format!(
                        "holds a run with other settings: {}; resume it with those it began with, or choose another \
                         output directory",
                        differences(&begun.settings, &run.settings)
                    ));
                }
                run.begun = Some(begun);
                run.resumed = run.checkpoints.last()?;
            }
            Ok(None) if *resume => return run.refused("holds no run to resume; start a new one"),
            Ok(Some(_)) => return run.refused(BEGUN),
            Ok(None) => run.check_empty()?,
            Err(error) => return Err(error),
        }
        // Nobody writes before all have opened it.
        ranks.same("setting or output directory", &(output_dir, &run.settings, run.resumed.0))?;
        Ok(run)
    }

    /// Refuses a directory that holds something else than a start that was broken off.
    fn check_empty(&self) -> Result<()> {
        // A start that was broken off leaves a lock, and what it had written of its beginning.
        let begun = format!("{BEGINNING}{UNFINISHED}");
        let has_other = |folder: &Path, known: &[&str]| -> Result<bool> {
            Ok(names(folder)?.iter().any(|name| known.iter().all(|known| name != known)))
        };
        if has_other(&self.output, &[TRAINING])? || has_other(&self.folder, &[LOCK, &begun])? {
            let problem =
                "is not empty, and holds no run to resume or to overwrite; choose another output directory";
            return Err(Error::file(&self.output, problem));
        }
        Ok(())
    }

    fn refused<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(Error::file(&self.folder, problem))
    }

    fn held(&self) -> MutexGuard<'_, (Option<File>, String)> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records how a new run begins; a resumed run must begin in the same way. Holds the lock. Refuses a loss that is not
    /// finite, another beginning than that of the first start, and a run that another process holds or has changed.
    pub(super) fn begin(&self, loss: f64, batch_size: usize, plan: Plan, data: [u32; 2]) -> Result<()> {
        // A resumed run is compared with it.
        if !loss.is_finite() {
            return self.refused(format!(
                "cannot hold a run that begins at a loss of {loss}; check the checkpoint and the data"
            ));
        }
        // Before anything is removed or written: what is unfinished may be another process's.
        self.held().0 = self.lock()?;
        let part = plan.parts_of_epoch.map(|parts| (plan.steps, parts));
        let (settings, parts) = (self.settings.clone(), plan.parts);
        let mut beginning = Beginning { settings, loss, batch_size, parts, part, data };
        match &self.begun {
            Some(begun) => {
                self.compare(begun, &beginning)?;
                // Losses before training may differ a little, and must not drift.
                (beginning.loss, beginning.batch_size) = (begun.loss, begun.batch_size);
            }
            // The checkpoints of the run that is replaced.
            None if self.is_overwriting => {
                let mut old = names(&self.folder)?.into_iter().filter(|name| name != LOCK);
                old.try_for_each(|name| removed(&self.folder.join(name)))?;
            }
            // Another process may have begun one since it was opened.
            None if self.read_beginning()?.is_some() => return self.refused(BEGUN),
            None => {}
        }
        // What a killed process left half written.
        let left =
            names(&self.folder)?.into_iter().filter(|name| name.to_string_lossy().ends_with(UNFINISHED));
        left.for_each(|name| drop(removed(&self.folder.join(name)))); // what stays is written over
        let text = serde_json::to_string_pretty(&beginning).expect("text and numbers are JSON");
        self.write_beginning(&text)?;
        self.held().1 = text;
        Ok(())
    }

    /// Items in the batches of the loss at the first start of a run that is resumed.
    pub(super) fn begun_batch_size(&self) -> Option<usize> {
        self.begun.as_ref().map(|begun| begun.batch_size)
    }

    fn write_beginning(&self, text: &str) -> Result<()> {
        let path = self.folder.join(BEGINNING);
        // Written whole, since `open` takes a directory with this file for a run.
        whole(&path, |path| fs::write(path, text)).map_err(|source| Error::writing(&path, source))
    }

    /// Writes the beginning and locks the folder again if they were removed meanwhile, so that the run can be resumed from the
    /// checkpoint that follows. Refuses a folder in which another run has begun.
    fn restore_beginning(&self) -> Result<()> {
        let (lock, beginning) = &mut *self.held();
        match regular_file::read_text(&self.folder.join(BEGINNING)) {
            Ok(text) if text == *beginning => return Ok(()),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return self.refused(
                    "was removed, and another run has begun in it; the run that was there cannot be saved or resumed",
                );
            }
        }
        // The old one first: it may be of the file that is still there.
        *lock = None;
        *lock = self.lock()?;
        self.write_beginning(beginning)
    }

    /// Removes of the model that is replaced what a save would keep; once the new one, which may have begun from it, is trained.
    pub(super) fn remove_replaced_model(&self) -> Result<()> {
        if !self.is_overwriting {
            return Ok(());
        }
        for name in ["config.json", "model.safetensors", "modules.json"] {
            removed(&self.output.join(name))?;
        }
        let adapter = self.output.join(ADAPTER);
        if adapter.is_dir() {
            for name in [ADAPTER_CONFIG_NAME, ADAPTER_NAMES[0]] {
                removed(&adapter.join(name))?;
            }
            // With what else is there it stays.
            let _ = fs::remove_dir(adapter);
        }
        Ok(())
    }

    fn compare(&self, begun: &Beginning, now: &Beginning) -> Result<()> {
        let other_data = (0..2).find(|&index| begun.data[index] != now.data[index]);
        self.refused(if self.checkpoints.last()?.0 != self.resumed.0 {
            "was continued by another process meanwhile; resume it again".into()
        } else if let Some(index) = other_data {
            let data = ["training data", "validation data"][index];
            format!("holds a run that began with other {data}; resume with the original")
        } else if now.part != begun.part {
            "holds a run that read another number of batches between two evaluations; resume it with as many ranks and \
             devices as it began with"
                .into()
        } else if now.parts < begun.parts {
            let [began, now] = [begun, now].map(|run| run.parts);
            format!("holds a run of {began} evaluations, now {now}; resume it with as many epochs or steps, or more")
        } else if now.batch_size == begun.batch_size
            && (now.loss - begun.loss).abs() > SAME_LOSS * begun.loss.abs()
        {
            let [began, now] = [begun, now].map(|run| run.loss);
            format!(
                "holds a run that began at a loss of {began}, but with this checkpoint it is {now}; resume with the \
                 original checkpoint"
            )
        } else {
            return Ok(());
        })
    }

    /// Saves a checkpoint of a number, and returns its folder.
    pub(super) fn save(
        &self,
        number: usize,
        model: ModuleRecord,
        optimizer: OptimizerRecord,
        state: (History, usize),
    ) -> Result<PathBuf> {
        // The directory may have been removed in the hours since the last one.
        self.restore_beginning()?;
        self.checkpoints.save(number, model, optimizer, state)
    }

    fn read_beginning(&self) -> Result<Option<Beginning>> {
        match regular_file::read_json(&self.folder.join(BEGINNING)) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            beginning => beginning.map(Some),
        }
    }

    /// The lock of the folder, if the file system has locks.
    fn lock(&self) -> Result<Option<File>> {
        let path = self.folder.join(LOCK);
        let failed = |source| Error::writing(&path, source);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        if path.exists() {
            regular_file::open(&path)?; // opening a FIFO would wait
        }
        let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => self.refused(
                "is in use by another training run; wait for it to end, or choose another output directory",
            ),
            // NFS without its lock daemon and some of FUSE's file systems have no locks: a run there is not guarded.
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }
}
