use super::arguments::{Plan, Settings, TrainingArguments};
use super::checkpoints::{Checkpoints, UNFINISHED, check_optimizer_record, names, whole};
use super::history::Log;
use crate::error::{Error, Result};
use crate::files::regular_file;
use burn::module::Module;
use burn::optim::lr_scheduler::LrSchedulerRecord;
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SAME_LOSS: f64 = 1e-3; // relative: devices add up in different orders

const TRAINING: &str = "training";
const BEGINNING: &str = "run.json";
const LOCK: &str = "lock";

const BEGUN: &str = "holds a run already; resume or overwrite it, or choose another output directory";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Beginning {
    settings: Settings,
    /// The loss before training, which reveals another checkpoint.
    loss: f64,
    /// The evaluations that are planned; a resumed run may have more.
    evaluations: usize,
    /// What is read between two evaluations, if not an epoch: batches of a rank, and how many of such parts an epoch has.
    interval: Option<(usize, usize)>,
    /// Checksums of the training data and of the validation data.
    data: [u32; 2],
    /// Each of its starts: how many epochs were finished, and the number of ranks.
    starts: Vec<(usize, usize)>,
}

/// The output directory of a training run: the model, and in the folder `training` checkpoints and metrics, from which the run
/// is resumed with the same settings.
pub(super) struct Run {
    pub(super) arguments: TrainingArguments,
    pub(super) folder: PathBuf,
    pub(super) checkpoints: [Checkpoints; 3],
    pub(super) log: Log,
    /// With the starts whose epochs were finished.
    begun: Option<Beginning>,
    /// Epochs of Burn's trainer that were finished before the run was stopped.
    pub(super) finished_epochs: usize,
    held: Arc<Mutex<Held>>,
}

/// What this process holds of the folder: the lock, if the file system has locks, and what it wrote of the beginning.
#[derive(Default)]
struct Held {
    lock: Option<File>,
    beginning: String,
}

/// No other process can begin a run in the directory while this is alive, if the file system has locks.
pub(super) struct Locked(Arc<Mutex<Held>>);

impl Drop for Locked {
    fn drop(&mut self) {
        held(&self.0).lock = None;
    }
}

fn held(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    /// The run of all ranks in a directory that they share; rank 0 alone writes it, the others keep metrics of their own. Writes
    /// nothing. Refuses a directory that is not empty, and to resume a run that is not there, began with other settings, or is
    /// damaged; [`Error::Rank`] if the settings of a rank differ.
    pub(super) fn open(arguments: &TrainingArguments) -> Result<Self> {
        let (arguments, folder) = (arguments.clone(), arguments.output_dir.join(TRAINING));
        let checkpoints = Checkpoints::all(&folder);
        let log = Log::new(&match arguments.ranks.rank() {
            0 => folder.clone(),
            rank => folder.join(format!("rank-{rank}")),
        });
        let held = Arc::default();
        let mut run = Self { arguments, folder, checkpoints, log, begun: None, finished_epochs: 0, held };
        let settings = run.arguments.settings();
        match run.read_beginning()? {
            Some(mut begun) if run.arguments.resume => {
                if begun.settings != settings {
                    return run.refused(format!(
                        "holds a run with other settings: {}; resume it with those it began with, or choose another \
                         output directory",
                        differences(&begun.settings, &settings)
                    ));
                }
                run.finished_epochs = run.last_checkpoint()?;
                // Later ones ended before their first checkpoint, or with one that is damaged.
                begun.starts.retain(|(epoch, _)| *epoch < run.finished_epochs);
                run.begun = Some(begun);
                // That of rank 0, on which all have to agree.
                run.log.load(&run.folder, run.finished_epochs)?;
            }
            None if run.arguments.resume => return run.refused("holds no run to resume; start a new one"),
            Some(_) if run.is_overwriting() => {}
            Some(_) => return run.refused(BEGUN),
            None => run.check_empty()?,
        }
        // Nobody writes before all have opened it.
        let TrainingArguments { output_dir, ranks, .. } = &run.arguments;
        ranks.same("setting or output directory", &(output_dir, settings, run.finished_epochs))?;
        Ok(run)
    }

    /// Refuses a directory that holds something else than a start that was broken off.
    fn check_empty(&self) -> Result<()> {
        // A start that was broken off leaves a lock, and what it had written of its beginning.
        let (output, begun) = (&self.arguments.output_dir, format!("{BEGINNING}{UNFINISHED}"));
        let has_other = |folder: &Path, known: &[&str]| -> Result<bool> {
            Ok(names(folder)?.iter().any(|name| known.iter().all(|known| name != known)))
        };
        if has_other(output, &[TRAINING])? || has_other(&self.folder, &[LOCK, &begun])? {
            return Err(Error::file(output, "is not empty; choose another output directory"));
        }
        Ok(())
    }

    fn refused<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(Error::file(&self.folder, problem))
    }

    fn is_overwriting(&self) -> bool {
        self.arguments.overwrite_output_dir && !self.arguments.resume
    }

    /// The items that the finished epochs of so many batches of a rank have read, with whatever number of ranks.
    pub(super) fn items_read(&self, batches: usize) -> usize {
        let starts = self.begun.as_ref().map_or(&[][..], |begun| &begun.starts[..]);
        let ends = starts.iter().skip(1).map(|&(epoch, _)| epoch).chain([self.finished_epochs]);
        // Wrapping, as what was read from a file may be anything.
        let shards = starts.iter().zip(ends).fold(0_usize, |shards, (&(start, ranks), end)| {
            shards.wrapping_add(end.wrapping_sub(start).wrapping_mul(ranks))
        });
        shards.wrapping_mul(batches * self.arguments.batch_size)
    }

    /// Records how a new run begins; a resumed run must begin in the same way. Rank 0 holds the lock. Refuses a loss that is not
    /// finite, another beginning than that of the first start, and a run that another process holds or has changed.
    pub(super) fn begin(&self, loss: f64, plan: Plan, data: [u32; 2]) -> Result<Locked> {
        // A resumed run is compared with it.
        if !loss.is_finite() {
            return self.refused(format!(
                "cannot hold a run that begins at a loss of {loss}; check the checkpoint and the data"
            ));
        }
        let locked = Locked(self.held.clone());
        if !self.arguments.ranks.is_first() {
            return Ok(locked);
        }
        // Before anything is removed or written: what is unfinished may be another process's.
        held(&self.held).lock = self.lock()?;
        self.checkpoints[0].remove_unfinished();
        let mut starts = self.begun.as_ref().map_or_else(Vec::new, |begun| begun.starts.clone());
        starts.push((self.finished_epochs, self.arguments.ranks.size()));
        let (settings, Plan { evaluations, interval, .. }) = (self.arguments.settings(), plan);
        let mut beginning = Beginning { settings, loss, evaluations, interval, data, starts };
        match &self.begun {
            Some(begun) => {
                self.compare(begun, &beginning)?;
                // Losses before training may differ a little, and must not drift.
                beginning.loss = begun.loss;
            }
            // The checkpoints and metrics of the run that is replaced.
            None if self.is_overwriting() => {
                let mut old = names(&self.folder)?.into_iter().filter(|name| name != LOCK);
                old.try_for_each(|name| removed(&self.folder.join(name)))?;
            }
            // Another process may have begun one since it was opened.
            None if self.read_beginning()?.is_some() => return self.refused(BEGUN),
            None => {}
        }
        let text = serde_json::to_string_pretty(&beginning).expect("text and numbers are JSON");
        self.write_beginning(&text)?;
        held(&self.held).beginning = text;
        Ok(locked)
    }

    fn write_beginning(&self, text: &str) -> Result<()> {
        let path = self.folder.join(BEGINNING);
        // Written whole, since `open` takes a directory with this file for a run.
        whole(&path, |path| fs::write(path, text)).map_err(|source| Error::writing(&path, source))
    }

    /// Writes the beginning and locks the folder again if they were removed meanwhile, so that the run can be resumed from the
    /// checkpoint that follows. Refuses a folder in which another run has begun.
    pub(super) fn restore_beginning(&self) -> Result<()> {
        let (path, mut held) = (self.folder.join(BEGINNING), held(&self.held));
        match regular_file::read_text(&path) {
            Ok(text) if text == held.beginning => return Ok(()),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return self.refused(
                    "was removed, and another run has begun in it; the run that was there cannot be saved or resumed",
                );
            }
        }
        // The old one first: it may be of the file that is still there.
        held.lock = None;
        held.lock = self.lock()?;
        self.write_beginning(&held.beginning)
    }

    /// Removes of the model that is replaced what a save would keep; once the new one, which may have begun from it, is trained.
    pub(super) fn remove_replaced_model(&self) -> Result<()> {
        let old = ["config.json", "model.safetensors", "modules.json"];
        let mut old = old.into_iter().filter(|_| self.is_overwriting());
        old.try_for_each(|name| removed(&self.arguments.output_dir.join(name)))
    }

    fn compare(&self, begun: &Beginning, now: &Beginning) -> Result<()> {
        let other_data = (0..2).find(|&place| begun.data[place] != now.data[place]);
        self.refused(if self.last_checkpoint()? != self.finished_epochs {
            "was continued by another process meanwhile; resume it again".into()
        } else if let Some(place) = other_data {
            let data = ["training data", "validation data"][place];
            format!("holds a run that began with other {data}; resume with the original")
        } else if now.interval != begun.interval {
            "holds a run that read another number of batches between two evaluations; resume it with as many ranks and \
             devices as it began with"
                .into()
        } else if now.evaluations < begun.evaluations {
            let [began, now] = [begun, now].map(|run| run.evaluations);
            format!("holds a run of {began} evaluations, now {now}; resume it with as many epochs or steps, or more")
        } else if (now.loss - begun.loss).abs() > SAME_LOSS * begun.loss.abs() {
            let [began, now] = [begun, now].map(|run| run.loss);
            format!(
                "holds a run that began at a loss of {began}, but with this checkpoint it is {now}; resume with the \
                 original checkpoint"
            )
        } else {
            return Ok(());
        })
    }

    /// The last epoch whose model, optimizer and schedule can all be read; 0 if there is none, an error if all are damaged.
    pub(super) fn last_checkpoint(&self) -> Result<usize> {
        let mut damaged = Ok(0);
        // From the latest on: a damaged checkpoint costs an epoch, not the run.
        for epoch in self.checkpoints[0].epochs()?.into_iter().rev() {
            match self.checkpoints.iter().try_for_each(|files| files.read(epoch).map(drop)) {
                Ok(()) => return Ok(epoch),
                // The process ended before it had written all three.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => damaged = Err(error),
            }
        }
        damaged
    }

    /// Refuses what [`SupervisedTraining`](burn::train::SupervisedTraining) would panic at when it goes on after an epoch: a model,
    /// optimizer or schedule that is damaged, or of another model.
    pub(super) fn check_checkpoint<M: Module>(&self, epoch: usize, model: M) -> Result<()> {
        let model = self.model_of(epoch, model)?;
        let [_, optimizers, schedules] = &self.checkpoints;
        let record = optimizers.read(epoch)?;
        let misfit =
            |problem| Error::file(&optimizers.path(epoch), format!("does not fit the model: {problem}"));
        check_optimizer_record(record, &model).map_err(misfit)?;
        let record = LrSchedulerRecord::from_bytes(Bytes::from_bytes_vec(schedules.read(epoch)?));
        let damaged = |error| Error::file(&schedules.path(epoch), format!("is no schedule: {error}"));
        record.map(drop).map_err(damaged)
    }

    /// The model after an epoch; an error if its checkpoint is damaged, or of another model.
    pub(super) fn model_of<M: Module>(&self, epoch: usize, model: M) -> Result<M> {
        let models = &self.checkpoints[0];
        let bytes = Bytes::from_bytes_vec(models.read(epoch)?);
        let loaded = ModuleRecord::from_bytes(bytes).and_then(|record| model.try_load_record(record));
        loaded.map_err(|error| Error::file(&models.path(epoch), format!("does not fit the model: {error}")))
    }

    fn read_beginning(&self) -> Result<Option<Beginning>> {
        let path = self.folder.join(BEGINNING);
        match regular_file::read_json(&path) {
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

fn removed(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::writing(path, source)),
        _ => Ok(()),
    }
}

fn differences(begun: &Settings, now: &Settings) -> String {
    let names: BTreeSet<&String> = begun.keys().chain(now.keys()).collect();
    let changed = names.into_iter().filter(|name| begun.get(*name) != now.get(*name));
    let found = changed.map(|name| {
        let [begun, now] = [begun, now].map(|settings| settings.get(name).map_or("missing", String::as_str));
        format!("{name}: {begun}, now {now}")
    });
    found.collect::<Vec<_>>().join("; ")
}
