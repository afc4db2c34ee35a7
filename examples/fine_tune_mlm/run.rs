//! The folder in which a run can be resumed.

use crate::settings::Settings;
use anyhow::{Context, Result, bail, ensure};
use burn::data::dataloader::DataLoader;
use burn::optim::OptimizerRecord;
use burn::optim::lr_scheduler::LrSchedulerRecord;
use burn::prelude::*;
use burn::store::ModuleRecord;
use burn::train::EarlyStoppingStrategy;
use burn::train::metric::store::{Aggregate, Direction, EventStoreClient, Split};
use burn::train::metric::{LossMetric, Metric};
use burn_bert::model::BertForMaskedLm;
use burn_bert::training::{Corpus, Training, ValidationLoader, WindowIndex};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What lies beside the weights of a Hugging Face model and is needed to use it.
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

/// Where the windows of the text start.
const INDEX: &str = "windows.json";

/// A run as it began.
#[derive(Serialize, Deserialize)]
struct Beginning {
    settings: Settings,
    /// What tells another checkpoint or text from those of the run.
    held_out_loss: f64,
}

/// How far the held-out loss of the same checkpoint and text may differ, relatively, between devices.
const SAME_LOSS: f64 = 1e-3;

/// An output directory, and how far the run in it has come.
pub struct Run {
    output: PathBuf,
    folder: PathBuf,
    /// That of the run that is resumed.
    beginning: Option<Beginning>,
    finished_epochs: usize,
}

impl Run {
    /// A new run, or with `resume` the one that is there. Writes nothing.
    pub fn open(output: &Path, settings: &Settings, resume: bool) -> Result<Self> {
        let folder = output.join("training");
        let run = Self { output: output.to_path_buf(), folder, beginning: None, finished_epochs: 0 };
        let path = run.path();
        match (resume, path.exists()) {
            (false, true) => bail!(
                "{} holds a run already; add --resume to go on with it, or take another --output",
                run.folder.display()
            ),
            (true, false) => bail!("there is no run in {} to go on with", run.folder.display()),
            (false, false) => {
                ensure!(is_empty(output)?, "{} is not empty; take another --output", output.display());
                Ok(run)
            }
            (true, true) => {
                let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let beginning: Beginning = serde_json::from_slice(&text)
                    .with_context(|| format!("{} is not of this program", path.display()))?;
                let theirs = &beginning.settings;
                ensure!(
                    theirs == settings,
                    "the run in {} has other settings: {theirs:?}",
                    run.folder.display()
                );
                let finished_epochs = run.last_checkpoint(settings.epochs());
                Ok(Self { beginning: Some(beginning), finished_epochs, ..run })
            }
        }
    }

    /// Where checkpoints and logs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn finished_epochs(&self) -> usize {
        self.finished_epochs
    }

    fn path(&self) -> PathBuf {
        self.folder.join("run.json")
    }

    fn checkpoint(&self, name: &str, epoch: usize) -> PathBuf {
        self.folder.join("checkpoint").join(format!("{name}-{epoch}"))
    }

    /// The last epoch, of so many, of which model, optimiser and schedule can all be read; one that was cut short
    /// by a kill can not.
    pub fn last_checkpoint(&self, epochs: usize) -> usize {
        let is_whole = |&epoch: &usize| {
            ModuleRecord::load(self.checkpoint("model", epoch)).is_ok()
                && OptimizerRecord::load(self.checkpoint("optim", epoch)).is_ok()
                && LrSchedulerRecord::load(self.checkpoint("scheduler", epoch)).is_ok()
        };
        (1..=epochs).rev().find(is_whole).unwrap_or(0)
    }

    /// The model as it was after an epoch.
    pub fn model_of(
        &self,
        epoch: usize,
        model: Training<BertForMaskedLm>,
    ) -> Result<Training<BertForMaskedLm>> {
        let path = self.checkpoint("model", epoch);
        let record = ModuleRecord::load(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(model.load_record(record))
    }

    /// The text, with the index of its windows where the run that is resumed wrote it down.
    pub fn with_index(&self, corpus: Corpus) -> Result<Corpus> {
        let path = self.folder.join(INDEX);
        if !path.exists() {
            return Ok(corpus);
        }
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let index: WindowIndex = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not of this program", path.display()))?;
        Ok(corpus.with_index(index)?)
    }

    /// Writes down how a new run begins, and copies config and tokenizer into the output directory. A run that is
    /// resumed must begin as it did.
    pub fn begin(
        &self,
        settings: &Settings,
        checkpoint: &Path,
        corpus: &Corpus,
        held_out_loss: f64,
    ) -> Result<()> {
        if let Some(beginning) = &self.beginning {
            let theirs = beginning.held_out_loss;
            ensure!(
                (held_out_loss - theirs).abs() <= SAME_LOSS * theirs,
                "the run in {} began at a held-out loss of {theirs}, but with this checkpoint and this text it is \
                 {held_out_loss}; resume with those that it began with",
                self.folder.display()
            );
        } else {
            let path = self.path();
            let beginning = Beginning { settings: settings.clone(), held_out_loss };
            let write = || -> Result<()> {
                fs::create_dir_all(&self.folder)?;
                fs::write(self.folder.join(INDEX), serde_json::to_string(corpus.index()?)?)?;
                Ok(fs::write(&path, serde_json::to_string_pretty(&beginning)?)?)
            };
            write().with_context(|| format!("cannot write {}", path.display()))?;
        }
        for name in COMPANIONS {
            let (from, to) = (checkpoint.join(name), self.output.join(name));
            if from.is_file() && !to.exists() {
                fs::copy(&from, &to)
                    .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
            }
        }
        Ok(())
    }
}

/// Whether there is nothing at `path`, or nothing in it.
fn is_empty(path: &Path) -> Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot write into {}", path.display())),
    }
}

/// Early stopping by the logs of all validations, those before a resume included.
#[derive(Clone)]
pub struct Patience {
    pub validations: usize,
}

impl EarlyStoppingStrategy for Patience {
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool {
        let loss = LossMetric::new().name();
        let best = store.find_epoch(&loss, Aggregate::Mean, Direction::Lowest, &Split::Valid);
        best.is_some_and(|best| epoch - best >= self.validations)
    }
}

/// Mean loss per masked token, in nats.
pub fn held_out_loss(model: &BertForMaskedLm, loader: &ValidationLoader) -> Result<f64> {
    let model = model.clone().valid();
    let (mut total, mut tokens) = (0.0, 0);
    for batch in loader.iter() {
        let batch = batch?;
        let loss = model.try_forward(&batch)?.loss.into_scalar::<f64>();
        total += loss * batch.num_masked() as f64;
        tokens += batch.num_masked();
    }
    ensure!(tokens > 0, "no held-out token is masked; raise --mlm-probability or --held-out");
    Ok(total / tokens as f64)
}
