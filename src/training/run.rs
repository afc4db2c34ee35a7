//! The folder of a training run.

use super::checkpoints::{Checkpoints, LastAndBest, UNFINISHED, checksum, names, whole};
use super::losses::{Logs, Losses};
use super::progress::{ProgressLines, progress};
use crate::data::Finished;
use crate::distributed::Ranks;
use crate::error::{Error, Result};
use crate::files::hub::directory_without_weights;
use crate::files::regular_file;
use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use burn::train::renderer::MetricsRenderer;
use burn::train::{Interrupter, LearnerModel, SupervisedTraining};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The files of a Hugging Face model beside its weights.
const COMPANIONS: [&str; 10] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
];

const SAME_LOSS: f64 = 1e-3; // relative: devices add up in different orders

const TRAINING: &str = "training";
const BEGINNING: &str = "run.json";
const LOCK: &str = "lock";

const MAX_BEGINNING: u64 = 16 << 20; // larger than any `run.json`

/// A run as it began.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Beginning {
    /// As `{:#?}` writes them, which unlike JSON has infinity and every bit of a number.
    settings: String,
    /// Before training, which reveals another checkpoint.
    loss: f64,
    /// The checksums of the files that it reads.
    data: Vec<u32>,
    /// Each of its starts: how many epochs were finished, and the number of ranks.
    #[serde(default)]
    ranks: Vec<(usize, usize)>,
}

/// The output directory of a training run: the model, and in the folder `training` the checkpoints and logs of Burn's
/// trainer, from which the run is resumed.
///
/// A run is resumed only with the settings that it began with, as `{:#?}` prints them (so a map among them must be
/// ordered). Leave out of the settings what may change, such as the number of epochs without a schedule.
///
/// ```
/// use burn_bert::training::Run;
///
/// # let dir = tempfile::tempdir()?;
/// # let (output, text) = (dir.path().join("model"), dir.path().join("text"));
/// # std::fs::write(&text, "text")?;
/// let learning_rate = 5e-5; // the settings; usually a struct
/// Run::create(&output, &learning_rate)?.begin(3.2, &[&text])?; // the loss before training
/// assert!(Run::resume(&output, &1e-5).is_err());
/// let run = Run::resume(&output, &learning_rate)?;
/// run.begin(3.2, &[&text])?;
/// assert_eq!(run.finished_epochs(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Run {
    output: PathBuf,
    folder: PathBuf,
    /// Where this rank's logs are: `folder` on the first.
    own_folder: PathBuf,
    settings: String,
    /// How the run that is resumed began.
    begun: Option<Beginning>,
    finished_epochs: usize,
    ranks: Ranks,
    /// Locked from [`begin`](Self::begin) until the last clone is dropped, or the process ends in whatever way.
    lock: Arc<OnceLock<File>>,
}

impl Run {
    /// A new run. Writes nothing. Returns [`Error::File`] if the directory is not empty; [`Error::Io`].
    pub fn create(output: impl AsRef<Path>, settings: &impl Debug) -> Result<Self> {
        let run = Self::new(output.as_ref(), settings);
        run.refuse_begun()?;
        // A start that was broken off leaves a lock, and what it had written of its beginning.
        let begun = format!("{BEGINNING}{UNFINISHED}");
        if !holds_only(&run.output, &[TRAINING])? || !holds_only(&run.folder, &[LOCK, &begun])? {
            return Err(Error::file(&run.output, "is not empty; choose another output directory"));
        }
        Ok(run)
    }

    /// The run in a directory, to go on after its last checkpoint. Writes nothing. Returns [`Error::File`] if there is
    /// no run, it began with other settings, or its checkpoints are damaged; [`Error::Json`] if its `run.json` is;
    /// [`Error::Io`].
    pub fn resume(output: impl AsRef<Path>, settings: &impl Debug) -> Result<Self> {
        let run = Self::new(output.as_ref(), settings);
        let Some(begun) = run.read_beginning()? else {
            return Err(Error::file(&run.folder, "holds no run to resume; start a new one"));
        };
        if begun.settings != run.settings {
            let problem = format!(
                "holds a run with other settings: {}; resume it with those it began with, or choose another output \
                 directory",
                differences(&begun.settings, &run.settings)
            );
            return Err(Error::file(&run.folder, problem));
        }
        let finished_epochs = run.last_checkpoint()?;
        Ok(Self { begun: Some(begun), finished_epochs, ..run })
    }

    fn new(output: &Path, settings: &impl Debug) -> Self {
        let (output, folder) = (output.to_path_buf(), output.join(TRAINING));
        Self {
            output,
            own_folder: folder.clone(),
            folder,
            settings: format!("{settings:#?}"),
            begun: None,
            finished_epochs: 0,
            ranks: Ranks::single(),
            lock: Arc::default(),
        }
    }

    /// The run of all ranks, in a directory that all of them share. Rank 0 alone writes it; the others keep logs of their own.
    /// Returns [`Error::Rank`] if the settings of a rank differ, or it could not open the run.
    pub fn shared(self, ranks: &Ranks) -> Result<Self> {
        // Nobody writes before all have opened it.
        ranks.same("setting or output directory", &(&self.output, &self.settings, self.finished_epochs))?;
        let own_folder = match ranks.rank() {
            0 => self.folder.clone(),
            rank => self.folder.join(format!("rank-{rank}")),
        };
        Ok(Self { ranks: ranks.clone(), own_folder, ..self })
    }

    /// The directory that the model is saved to.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The folder of checkpoints and logs, for `SupervisedTraining::new`; of a rank that is not the first, of its logs.
    #[allow(clippy::misnamed_getters)] // what a caller needs is this rank's
    pub fn folder(&self) -> &Path {
        &self.own_folder
    }

    /// Epochs that were finished before the run was stopped, for a loader's `starting_after`.
    pub fn finished_epochs(&self) -> usize {
        self.finished_epochs
    }

    /// The same with the ranks that trained these epochs, so that a run that goes on with another number of ranks goes on at the
    /// same place in the data.
    pub fn finished(&self) -> Finished {
        Finished::of(self.finished_epochs, &self.earlier_ranks())
    }

    /// How many ranks trained the finished epochs, as in [`Beginning`].
    fn earlier_ranks(&self) -> Vec<(usize, usize)> {
        let ranks = self.begun.iter().flat_map(|begun| begun.ranks.iter().copied());
        // Later ones ended before their first checkpoint, or with one that is damaged.
        ranks.filter(|(epoch, _)| *epoch < self.finished_epochs).collect()
    }

    /// Records how a new run begins; a resumed run must begin in the same way. From here on no other process can begin a run in
    /// this directory, until this one ends or drops the run and its clones.
    ///
    /// `loss` is the loss before training, which reveals another checkpoint; the files `data` are compared by a
    /// checksum. Returns [`Error::File`] if the loss is not finite, loss or data differ from those of the first start,
    /// or another process holds the run or has changed it since it was opened; [`Error::Io`].
    pub fn begin(&self, loss: f64, data: &[&Path]) -> Result<()> {
        if !loss.is_finite() {
            let problem = format!(
                "cannot hold a run that begins at a loss of {loss}; check the checkpoint and the data"
            );
            return Err(Error::file(&self.folder, problem));
        }
        let sum =
            |path: &Path| checksum(regular_file::open(path)?).map_err(|source| Error::reading(path, source));
        let sums = data.iter().map(|path| sum(path)).collect::<Result<Vec<_>>>()?;
        self.ranks.same("data", &sums)?;
        if !self.ranks.is_first() {
            return Ok(());
        }
        // Before anything is removed or written: what is unfinished may be another process's.
        let lock = self.lock()?;
        Checkpoints::remove_unfinished(&self.folder);
        match &self.begun {
            None => {
                self.refuse_begun()?;
                self.write_beginning(loss, sums)?;
            }
            Some(begun) => {
                self.compare(begun, loss, &sums, data)?;
                self.write_beginning(begun.loss, sums)?;
            }
        }
        if let Some(lock) = lock {
            let _ = self.lock.set(lock);
        }
        Ok(())
    }

    fn write_beginning(&self, loss: f64, data: Vec<u32>) -> Result<()> {
        let mut ranks = self.earlier_ranks();
        // A run from before this was recorded had as many ranks as now, as far as anybody knows.
        let start = if ranks.is_empty() { 0 } else { self.finished_epochs };
        ranks.push((start, self.ranks.size()));
        let beginning = Beginning { settings: self.settings.clone(), loss, data, ranks };
        let text = serde_json::to_string_pretty(&beginning).expect("text and numbers are JSON");
        let path = self.folder.join(BEGINNING);
        // Written whole, since `resume` takes a directory with this file for a run.
        whole(&path, |path| fs::write(path, text)).map_err(|source| Error::writing(&path, source))
    }

    /// Refuses a resumed run that does not begin as it did.
    fn compare(&self, begun: &Beginning, loss: f64, sums: &[u32], data: &[&Path]) -> Result<()> {
        let refused = |problem: String| Err(Error::file(&self.folder, problem));
        if self.last_checkpoint()? != self.finished_epochs {
            return refused("was continued by another process meanwhile; resume it again".into());
        }
        if sums.len() != begun.data.len() {
            return refused(format!("holds a run of {} data files, not {}", begun.data.len(), sums.len()));
        }
        if let Some(other) = (0..sums.len()).find(|&file| sums[file] != begun.data[file]) {
            let path = data[other].display();
            let problem =
                format!("holds a run that began with other data than {path}; resume with the original file");
            return refused(problem);
        }
        if (loss - begun.loss).abs() > SAME_LOSS * begun.loss.abs() {
            return refused(format!(
                "holds a run that began at a loss of {}, but with this checkpoint it is {loss}; resume with the original \
                 checkpoint",
                begun.loss
            ));
        }
        Ok(())
    }

    /// Stores the checkpoints and logs of a trainer in this run, and lets it continue after the last checkpoint.
    ///
    /// Use it in place of `SupervisedTraining::with_default_checkpointers` and `checkpoint`. Each checkpoint has a
    /// checksum and replaces a file only when complete. The last two are kept, and the one with the lowest validation
    /// loss. A log that cannot be written, on a full disk, does not end the training. Returns [`Error::File`] if the
    /// last checkpoint is not of `model`.
    pub fn checkpointed<M: LearnerModel>(
        &self,
        training: SupervisedTraining<M>,
        model: &M,
    ) -> Result<SupervisedTraining<M>> {
        let own = |files: Checkpoints| Checkpoints { is_read_only: !self.ranks.is_first(), ..files };
        let [models, optimizers, schedules] = Checkpoints::all(&self.folder).map(own);
        let training = training
            .with_custom_checkpointers(models, optimizers, schedules)
            .with_checkpointing_strategy(LastAndBest { folder: self.folder.clone() })
            .with_metric_logger(Logs::new(&self.own_folder));
        if self.finished_epochs == 0 {
            return Ok(training);
        }
        // So that a checkpoint of another model is an error here, and not one inside the trainer.
        self.model_of(self.finished_epochs, model.clone())?;
        Ok(training.checkpoint(self.finished_epochs))
    }

    /// The renderer of the run, see [`progress()`]; of several ranks, the first prints lines.
    pub fn progress(&self, interrupter: &Interrupter) -> Box<dyn MetricsRenderer> {
        match (self.ranks.rank(), self.ranks.size()) {
            (0, 1) => progress(interrupter, self.finished_epochs),
            // mpirun gives every rank a terminal of its own, which nobody sees.
            (0, _) => Box::new(ProgressLines::default()),
            _ => Box::new(ProgressLines::silent()),
        }
    }

    /// Copies config, tokenizer and other files beside the weights into the output directory, except those that exist
    /// there. Of several ranks the first does it. Returns [`Error::Io`].
    pub fn copy_companions(&self, checkpoint: impl AsRef<Path>) -> Result<()> {
        let checkpoint = directory_without_weights(checkpoint.as_ref())?;
        for name in COMPANIONS.into_iter().filter(|_| self.ranks.is_first()) {
            let (from, to) = (checkpoint.join(name), self.output.join(name));
            if from.is_file() && !to.exists() {
                let copied = fs::create_dir_all(&self.output)
                    .and_then(|()| whole(&to, |unfinished| fs::copy(&from, unfinished)));
                copied.map_err(|source| Error::writing(&to, source))?;
            }
        }
        Ok(())
    }

    /// The losses that the trainer logged. Returns [`Error::Io`].
    pub fn losses(&self) -> Result<Losses> {
        Losses::read(&self.folder)
    }

    /// The last epoch whose model, optimizer and schedule can all be read; 0 if there is none. Returns [`Error::File`]
    /// if there are checkpoints, but each is damaged; [`Error::Io`] if their folder cannot be listed.
    pub fn last_checkpoint(&self) -> Result<usize> {
        let checkpoints = Checkpoints::all(&self.folder);
        let mut damaged = Ok(0);
        // From the latest on: a damaged checkpoint costs an epoch, not the run.
        for epoch in checkpoints[0].epochs()?.into_iter().rev() {
            match checkpoints.iter().try_for_each(|files| files.read(epoch).map(drop)) {
                Ok(()) => return Ok(epoch),
                // The process ended before it had written all three.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => damaged = Err(error),
            }
        }
        damaged
    }

    /// The model after an epoch. Returns [`Error::File`] if its checkpoint is damaged, of another model or no regular
    /// file; [`Error::Io`].
    pub fn model_of<M: Module>(&self, epoch: usize, model: M) -> Result<M> {
        let [models, ..] = Checkpoints::all(&self.folder);
        let bytes = Bytes::from_bytes_vec(models.read(epoch)?);
        let loaded = ModuleRecord::from_bytes(bytes).and_then(|record| model.try_load_record(record));
        loaded.map_err(|error| Error::file(&models.path(epoch), format!("does not fit the model: {error}")))
    }

    fn refuse_begun(&self) -> Result<()> {
        if self.read_beginning()?.is_none() {
            return Ok(());
        }
        let problem = "holds a run already; resume it, or choose another output directory";
        Err(Error::file(&self.folder, problem))
    }

    fn read_beginning(&self) -> Result<Option<Beginning>> {
        let path = self.folder.join(BEGINNING);
        match regular_file::read(&path, MAX_BEGINNING) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            text => serde_json::from_slice(&text?).map(Some).map_err(|source| Error::Json { path, source }),
        }
    }

    /// The lock of the folder, if this run does not hold it already and the file system has locks.
    fn lock(&self) -> Result<Option<File>> {
        if self.lock.get().is_some() {
            return Ok(None);
        }
        let path = self.folder.join(LOCK);
        let failed = |source| Error::writing(&path, source);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        if path.exists() {
            regular_file::open(&path)?; // opening a FIFO would wait
        }
        let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(Error::file(
                &self.folder,
                "is in use by another training; wait for it to end, or choose another output directory",
            )),
            // NFS without its lock daemon and some of FUSE's file systems have no locks: a run there is not guarded.
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }
}

/// The fields that differ between two settings, as `{:#?}` writes them.
fn differences(begun: &str, now: &str) -> String {
    let (begun, now) = (fields(begun), fields(now));
    let mut found = Vec::new();
    for (name, value) in &begun {
        // Settings that are a single value have no name.
        let label = if name.is_empty() { String::new() } else { format!("{name}: ") };
        match now.get(name) {
            Some(other) if other == value => {}
            Some(other) => found.push(format!("{label}{value}, now {other}")),
            None => found.push(format!("{label}{value}, now missing")),
        }
    }
    let new = now.iter().filter(|(name, _)| !begun.contains_key(*name));
    found.extend(new.map(|(name, value)| format!("{name}: {value}, which is new")));
    found.join("; ")
}

/// The fields of a value that `{:#?}` wrote, one a line, by their paths; a struct or a list has its name as its value.
fn fields(settings: &str) -> BTreeMap<String, String> {
    let (mut found, mut path) = (BTreeMap::new(), Vec::<(String, usize)>::new());
    for line in settings.lines().map(|line| line.trim().trim_end_matches(',')) {
        if matches!(line, "}" | ")" | "]") {
            path.pop();
            continue;
        }
        let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let (name, value) = match line.split_once(": ").filter(|(name, _)| is_name(name)) {
            Some((name, value)) => (name.to_string(), value),
            // An element of a list, or of a tuple.
            None => {
                let index = path.last_mut().map(|(_, elements)| std::mem::replace(elements, *elements + 1));
                (index.map_or(String::new(), |index| index.to_string()), line)
            }
        };
        let names = path.iter().map(|(name, _)| name.as_str()).filter(|name| !name.is_empty());
        let whole = names.chain([name.as_str()]).collect::<Vec<_>>().join(".");
        let opened = value.strip_suffix(['{', '(', '[']);
        found.insert(whole, opened.unwrap_or(value).trim().to_string());
        if opened.is_some() {
            path.push((name, 0));
        }
    }
    found
}

/// Whether a directory holds nothing but these names, or does not exist.
fn holds_only(path: &Path, known: &[&str]) -> Result<bool> {
    Ok(names(path)?.iter().all(|name| known.iter().any(|known| name == known)))
}
