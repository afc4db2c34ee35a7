use super::history::Evaluation;
use crate::error::{Error, Result};
use burn::train::Interrupter;
use serde::Serialize;
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow::{self, Continue};
use std::path::{Path, PathBuf};

/// How far a run of a [`Trainer`](super::Trainer) has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Optimizer steps so far, those from before a resume too.
    pub step: usize,
    /// Optimizer steps of the whole run.
    pub steps: usize,
    /// Passes over the training data so far.
    pub epoch: f64,
    /// Passes of the whole run.
    pub epochs: f64,
}

/// What a run logs every [`logging_steps`](super::TrainingArguments::logging_steps), for a [`Callback`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LogEntry {
    /// How far the run has come.
    #[serde(flatten)]
    pub progress: Progress,
    /// The mean loss of the training batches since the last entry; of several ranks, of those of rank 0.
    pub loss: Option<f64>,
    /// The learning rate of the last step, of parameters without a rate of their own.
    pub learning_rate: f64,
    /// Optimizer steps a second since this process began to train, evaluations left out.
    pub steps_per_second: f64,
    /// How long the remaining steps take at that speed, in seconds, without evaluations.
    pub seconds_left: f64,
}

/// What is called while a [`Trainer`](super::Trainer) trains, on rank 0; transformers' `TrainerCallback`. Each method may stop the run
/// with a reason, as an `Interrupter` does: after the step on all ranks.
///
/// ```no_run
/// use burn_bert::data::{Columns, LabelledTexts};
/// use burn_bert::training::{Callback, LogEntry, Trainer, TrainingArguments};
/// use std::ops::ControlFlow;
///
/// struct Budget;
///
/// impl Callback for Budget {
///     fn on_log(&mut self, entry: &LogEntry) -> ControlFlow<String> {
///         if entry.seconds_left > 3600.0 {
///             return ControlFlow::Break("it would take more than an hour".into());
///         }
///         ControlFlow::Continue(())
///     }
/// }
///
/// let train = LabelledTexts::open("train.csv", &Columns::default())?;
/// let trainer = Trainer::from_pretrained("path/to/bert", train, TrainingArguments::new("out"))?;
/// let trained = trainer.with_callback(Budget).train()?;
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub trait Callback: Send {
    /// Called after an optimizer step.
    fn on_step(&mut self, _progress: &Progress) -> ControlFlow<String> {
        Continue(())
    }

    /// Called every [`logging_steps`](super::TrainingArguments::logging_steps).
    fn on_log(&mut self, _entry: &LogEntry) -> ControlFlow<String> {
        Continue(())
    }

    /// Called after an evaluation; without validation data it has metrics of the training batches alone.
    fn on_evaluate(&mut self, _progress: &Progress, _evaluation: &Evaluation) -> ControlFlow<String> {
        Continue(())
    }

    /// Called after a checkpoint was saved in a folder.
    fn on_save(&mut self, _progress: &Progress, _checkpoint: &Path) -> ControlFlow<String> {
        Continue(())
    }

    /// Called at the end, with the reason in words.
    fn on_end(&mut self, _progress: &Progress, _reason: &str) {}
}

/// A [`Callback`] that appends a line of JSON to a file for each log entry and each evaluation: `{"step":10,…,"loss":0.41,…}` and
/// `{"step":34,…,"train":{…},"valid":{…}}`. A line that cannot be written is lost, and the run goes on.
#[derive(Clone, Debug)]
pub struct JsonLines(PathBuf);

impl JsonLines {
    /// Appends to a file, which is made with its folder if it is not there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn write(&mut self, value: &impl Serialize) -> ControlFlow<String> {
        let append = || {
            self.0.parent().map_or(Ok(()), fs::create_dir_all)?;
            let line = serde_json::to_string(value).expect("plain data");
            writeln!(File::options().create(true).append(true).open(&self.0)?, "{line}")
        };
        let _: io::Result<()> = append();
        Continue(())
    }
}

impl Callback for JsonLines {
    fn on_log(&mut self, entry: &LogEntry) -> ControlFlow<String> {
        self.write(entry)
    }

    fn on_evaluate(&mut self, progress: &Progress, evaluation: &Evaluation) -> ControlFlow<String> {
        let Evaluation { train, valid, .. } = evaluation;
        let Progress { step, epoch, .. } = progress;
        self.write(&json!({ "step": step, "epoch": epoch, "train": train, "valid": valid }))
    }
}

/// Refuses to begin a run that is stopped.
pub(super) fn check_not_stopped(interrupter: &Interrupter) -> Result<()> {
    if interrupter.should_stop() { Err(stopped(interrupter)) } else { Ok(()) }
}

pub(super) fn stopped(interrupter: &Interrupter) -> Error {
    let reason = interrupter.get_message().unwrap_or_else(|| "another rank was stopped".into());
    let problem = format!("was stopped before the first step ({reason}), so there is nothing to save");
    Error::data("the training run", problem)
}
