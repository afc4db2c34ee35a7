//! The folder of a training run.

use super::losses::Losses;
use crate::error::{Error, Result};
use burn::module::Module;
use burn::optim::OptimizerRecord;
use burn::optim::lr_scheduler::LrSchedulerRecord;
use burn::store::ModuleRecord;
use burn::train::EarlyStoppingStrategy;
use burn::train::metric::store::{Aggregate, Direction, EventStoreClient, Split};
use burn::train::metric::{LossMetric, Metric};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The files beside the weights that are needed to use a Hugging Face model.
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

/// How far the loss before training may differ, relatively, between devices.
const SAME_LOSS: f64 = 1e-3;

/// A run as it began.
#[derive(Serialize, Deserialize)]
struct Beginning<S> {
    settings: S,
    /// What tells another checkpoint or other data from those of the run.
    #[serde(alias = "held_out_loss")]
    loss: f64,
}

/// The output directory of a training run: the model, and in the folder `training` the checkpoints and logs of Burn's
/// trainer, from which the run is resumed.
///
/// A run is resumed only with the settings that it began with.
///
/// ```
/// use burn_bert::training::Run;
///
/// # let dir = tempfile::tempdir()?;
/// # let output = dir.path().join("model");
/// let (learning_rate, other) = (5e-5, 1e-5); // the settings; usually a struct
/// let run = Run::open(&output, &learning_rate, false)?;
/// run.begin(&learning_rate, 3.2)?; // the loss before training
/// assert!(Run::open(&output, &other, true).is_err());
/// assert_eq!(Run::open(&output, &learning_rate, true)?.finished_epochs(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Run {
    output: PathBuf,
    folder: PathBuf,
    /// The loss at the beginning of the run that is resumed.
    loss_before: Option<f64>,
    finished_epochs: usize,
}

impl Run {
    /// A new run, or with `resume` the existing one. Writes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the directory of a new run is not empty, there is no run to resume, or it began with other
    /// settings; [`Error::Io`].
    pub fn open<S>(output: impl AsRef<Path>, settings: &S, resume: bool) -> Result<Self>
    where
        S: PartialEq + Debug + Serialize + DeserializeOwned,
    {
        let output = output.as_ref().to_path_buf();
        let folder = output.join("training");
        let run = Self { output, folder, loss_before: None, finished_epochs: 0 };
        let refused = |path: &Path, problem: String| Err(Error::File { path: path.to_path_buf(), problem });
        let begun: Option<Beginning<serde_json::Value>> = run.read(BEGINNING)?;
        match (resume, begun) {
            (false, Some(_)) => refused(
                &run.folder,
                "holds a run already; resume it, or choose another output directory".into(),
            ),
            (true, None) => {
                refused(&run.folder, "holds no run to resume; start a new one without resume".into())
            }
            (false, None) => {
                if !is_empty(&run.output)? {
                    return refused(&run.output, "is not empty; choose another output directory".into());
                }
                Ok(run)
            }
            (true, Some(Beginning { settings: theirs, loss })) => {
                let same =
                    serde_json::from_value::<S>(theirs.clone()).is_ok_and(|theirs| theirs == *settings);
                if !same {
                    let problem = format!(
                        "holds a run with other settings: {theirs}; resume it with these, or choose another output \
                         directory"
                    );
                    return refused(&run.folder, problem);
                }
                let finished_epochs = run.last_checkpoint()?;
                Ok(Self { loss_before: Some(loss), finished_epochs, ..run })
            }
        }
    }

    /// The directory that the model is saved to.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The folder of checkpoints and logs, for `SupervisedTraining::new`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Epochs that were finished before the run was stopped, for `SupervisedTraining::checkpoint` (unless it is 0) and
    /// a loader's `starting_after`.
    pub fn finished_epochs(&self) -> usize {
        self.finished_epochs
    }

    /// Records how a new run begins; a resumed run must begin in the same way.
    ///
    /// `loss` is the loss of the model before training; it reveals another checkpoint or other data.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the loss is not finite, or differs from that of the first start; [`Error::Io`].
    pub fn begin<S: Serialize>(&self, settings: &S, loss: f64) -> Result<()> {
        if !loss.is_finite() {
            let problem = format!(
                "cannot hold a run that begins at a loss of {loss}; check the checkpoint and the data"
            );
            return Err(Error::File { path: self.folder.clone(), problem });
        }
        let Some(theirs) = self.loss_before else {
            return self.write(BEGINNING, &Beginning { settings, loss });
        };
        if (loss - theirs).abs() > SAME_LOSS * theirs.abs() {
            let problem = format!(
                "holds a run that began at a loss of {theirs}, but with this checkpoint and this data it is {loss}; \
                 resume with the original checkpoint and data"
            );
            return Err(Error::File { path: self.folder.clone(), problem });
        }
        Ok(())
    }

    /// Copies config, tokenizer and other files beside the weights into the output directory, except those that exist
    /// there.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn copy_companions(&self, checkpoint: impl AsRef<Path>) -> Result<()> {
        for name in COMPANIONS {
            let (from, to) = (checkpoint.as_ref().join(name), self.output.join(name));
            if from.is_file() && !to.exists() {
                let copied = fs::create_dir_all(&self.output)
                    .and_then(|()| whole(&to, |unfinished| fs::copy(&from, unfinished)));
                copied.map_err(|source| Error::writing(&to, source))?;
            }
        }
        Ok(())
    }

    /// Reads what [`write`](Self::write) wrote under a name; `None` if there is nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Json`].
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.folder.join(name);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|source| Error::reading(&path, source))?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|source| Error::Json { path, source })
    }

    /// Writes a JSON file into the folder.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        let path = self.folder.join(name);
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other);
        let written = text.and_then(|text| {
            fs::create_dir_all(&self.folder)?;
            whole(&path, |unfinished| fs::write(unfinished, text))
        });
        written.map_err(|source| Error::writing(&path, source))
    }

    /// The losses that the trainer logged.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn losses(&self) -> Result<Losses> {
        Losses::read(&self.folder)
    }

    /// The last epoch whose model, optimiser and schedule can all be read, which excludes one that was interrupted
    /// while it was saved; 0 if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the folder of the checkpoints cannot be listed.
    pub fn last_checkpoint(&self) -> Result<usize> {
        let folder = self.folder.join(CHECKPOINTS);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            entries => entries.map_err(|source| Error::reading(&folder, source))?,
        };
        let mut epochs = Vec::new();
        for entry in entries {
            let name = entry.map_err(|source| Error::reading(&folder, source))?.file_name();
            let stem = name.to_str().and_then(|name| name.split('.').next());
            epochs.extend(stem.and_then(|stem| stem.strip_prefix("model-")?.parse::<usize>().ok()));
        }
        epochs.sort_unstable();
        let is_whole = |&epoch: &usize| {
            ModuleRecord::load(self.checkpoint("model", epoch)).is_ok()
                && OptimizerRecord::load(self.checkpoint("optim", epoch)).is_ok()
                && LrSchedulerRecord::load(self.checkpoint("scheduler", epoch)).is_ok()
        };
        Ok(epochs.into_iter().rev().find(is_whole).unwrap_or(0))
    }

    /// The model after an epoch.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if its checkpoint is missing, cannot be read, or is of another model.
    pub fn model_of<M: Module>(&self, epoch: usize, model: M) -> Result<M> {
        let path = self.checkpoint("model", epoch);
        let failed = |problem: String| Error::File { path: path.clone(), problem };
        let record = ModuleRecord::load(&path).map_err(|error| failed(format!("cannot be read: {error}")))?;
        model.try_load_record(record).map_err(|error| failed(format!("does not fit the model: {error}")))
    }

    fn checkpoint(&self, name: &str, epoch: usize) -> PathBuf {
        self.folder.join(CHECKPOINTS).join(format!("{name}-{epoch}"))
    }
}

const BEGINNING: &str = "run.json";
const CHECKPOINTS: &str = "checkpoint";

/// Writes a file under another name and renames it, so that `path` never holds half of it.
fn whole<T>(path: &Path, write: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = Path::new(&unfinished);
    write(unfinished)?;
    fs::rename(unfinished, path)
}

/// Whether there is nothing at `path`, or nothing in it.
fn is_empty(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(source) => Err(Error::reading(path, source)),
    }
}

/// Early stopping when the validation loss has not fallen for a number of epochs. Epochs before a resume count too,
/// unlike with Burn's `MetricEarlyStoppingStrategy`. Given to `SupervisedTraining::early_stopping`; see [`Run`].
#[derive(Clone, Debug)]
pub struct Patience {
    /// Epochs without a lower loss.
    pub epochs: usize,
}

impl EarlyStoppingStrategy for Patience {
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool {
        let loss = LossMetric::new().name();
        let best = store.find_epoch(&loss, Aggregate::Mean, Direction::Lowest, &Split::Valid);
        // The logs of a run that was resumed go beyond this epoch if its last checkpoint could not be read.
        best.is_some_and(|best| epoch.saturating_sub(best) >= self.epochs)
    }
}
