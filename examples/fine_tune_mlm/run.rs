//! Settings of a run, and the folder in which it can be resumed.

use anyhow::{Context, Result, bail, ensure};
use burn::data::dataloader::DataLoader;
use burn::optim::OptimizerRecord;
use burn::optim::lr_scheduler::LrSchedulerRecord;
use burn::prelude::*;
use burn::store::ModuleRecord;
use burn::tensor::DeviceType;
use burn_bert::masked_lm::{BertForMaskedLm, ValidationLoader};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What a run depends on; a resumed run must have the same.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Optimiser steps.
    #[arg(long, default_value_t = 200)]
    pub steps: usize,

    /// Optimiser steps between validations; each is followed by a checkpoint.
    #[arg(long, default_value_t = 50)]
    pub eval_every: usize,

    /// Windows in a batch.
    #[arg(long, default_value_t = 8)]
    pub batch_size: usize,

    /// Batches in an optimiser step.
    #[arg(long, default_value_t = 1)]
    pub accumulation: usize,

    /// GPUs that share each optimiser step, each with batches of its own: the first of whatever kind is compiled in
    /// and has so many. With more than one, dropout depends on who draws first, and no run repeats another exactly.
    #[arg(long, default_value_t = 1)]
    pub devices: usize,

    /// Tokens in a window, [CLS] and [SEP] included; at most the model's limit, 512 for BERT.
    #[arg(long, default_value_t = 128)]
    pub seq_len: usize,

    /// Windows that are validated on, at most: one in twenty of the text is held out.
    #[arg(long, default_value_t = 64)]
    pub held_out: usize,

    /// The highest learning rate; it grows to it over the first tenth of the steps and falls to 0.
    #[arg(long, default_value_t = 5e-5)]
    pub learning_rate: f64,

    /// AdamW's decay, which biases and LayerNorm are spared.
    #[arg(long, default_value_t = 0.01)]
    pub weight_decay: f32,

    /// The largest norm of all gradients together.
    #[arg(long, default_value_t = 1.0)]
    pub max_grad_norm: f64,

    /// The share of tokens that are hidden.
    #[arg(long, default_value_t = 0.15)]
    pub mlm_probability: f64,

    /// Hide whole words instead of single tokens.
    #[arg(long)]
    pub whole_words: bool,

    /// The seed of everything random.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

impl Settings {
    /// Validations, and what Burn's trainer calls epochs.
    pub fn epochs(&self) -> usize {
        self.steps.div_ceil(self.eval_every)
    }

    /// Steps in which the learning rate grows.
    pub fn warmup(&self) -> usize {
        self.steps / 10
    }

    /// Batches in an optimiser step, of all devices together.
    pub fn batches_per_step(&self) -> usize {
        self.accumulation * self.devices
    }

    /// The devices that train: the default one, or as many GPUs of one kind.
    pub fn devices(&self) -> Result<Vec<Device>> {
        ensure!(self.devices > 0, "--devices is 0, but must be at least 1");
        if self.devices == 1 {
            return Ok(vec![Device::default()]);
        }
        let kinds: Vec<DeviceType> = vec![
            #[cfg(feature = "cuda")]
            DeviceType::Cuda,
            #[cfg(feature = "rocm")]
            DeviceType::Rocm,
            #[cfg(feature = "metal")]
            DeviceType::Metal,
            #[cfg(feature = "vulkan")]
            DeviceType::Vulkan,
            #[cfg(feature = "webgpu")]
            DeviceType::WebGpu,
            #[cfg(feature = "wgpu")]
            DeviceType::Wgpu,
        ];
        let kinds = kinds.into_iter().map(|kind| Device::enumerate(kind).into_iter().collect::<Vec<_>>());
        let Some(mut devices) = kinds.into_iter().find(|devices| devices.len() >= self.devices) else {
            bail!("--devices is {}, but no kind of GPU that is compiled in has so many", self.devices);
        };
        devices.truncate(self.devices);
        Ok(devices)
    }

    fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("--steps", self.steps),
            ("--eval-every", self.eval_every),
            ("--batch-size", self.batch_size),
            ("--accumulation", self.accumulation),
            ("--held-out", self.held_out),
        ] {
            ensure!(value > 0, "{name} is 0, but must be at least 1");
        }
        ensure!(self.max_grad_norm > 0.0, "--max-grad-norm is {}, but must be above 0", self.max_grad_norm);
        ensure!(
            self.steps.is_multiple_of(self.eval_every),
            "--steps {} is not a multiple of --eval-every {}",
            self.steps,
            self.eval_every
        );
        Ok(())
    }
}

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

/// An output directory, and how far the run in it has come.
pub struct Run {
    output: PathBuf,
    folder: PathBuf,
    finished_epochs: usize,
}

impl Run {
    /// A new run, or with `resume` the one that is there. Writes nothing.
    pub fn open(output: &Path, settings: &Settings, resume: bool) -> Result<Self> {
        settings.validate()?;
        let folder = output.join("training");
        let path = folder.join("settings.json");
        let finished_epochs = match (resume, path.exists()) {
            (false, true) => bail!(
                "{} holds a run already; add --resume to go on with it, or take another --output",
                folder.display()
            ),
            (true, false) => bail!("there is no run in {} to go on with", folder.display()),
            (true, true) => {
                let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let theirs: Settings = serde_json::from_slice(&text)
                    .with_context(|| format!("{} is not of this program", path.display()))?;
                ensure!(
                    theirs == *settings,
                    "the run in {} has other settings: {theirs:?}",
                    folder.display()
                );
                last_checkpoint(&folder.join("checkpoint"), settings.epochs())
            }
            (false, false) => 0,
        };
        Ok(Self { output: output.to_path_buf(), folder, finished_epochs })
    }

    /// Where checkpoints and logs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn finished_epochs(&self) -> usize {
        self.finished_epochs
    }

    /// Writes the settings, and copies config and tokenizer into the output directory where there are none yet.
    pub fn begin(&self, settings: &Settings, checkpoint: &Path) -> Result<()> {
        let path = self.folder.join("settings.json");
        let write = || -> Result<()> {
            fs::create_dir_all(&self.folder)?;
            Ok(fs::write(&path, serde_json::to_string_pretty(settings)?)?)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
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

/// The last epoch of which model, optimiser and schedule can all be read; one that was cut short by a kill can not.
fn last_checkpoint(folder: &Path, epochs: usize) -> usize {
    let is_whole = |epoch: &usize| {
        let path = |name: &str| folder.join(format!("{name}-{epoch}"));
        ModuleRecord::load(path("model")).is_ok()
            && OptimizerRecord::load(path("optim")).is_ok()
            && LrSchedulerRecord::load(path("scheduler")).is_ok()
    };
    (1..=epochs).rev().find(is_whole).unwrap_or(0)
}

/// Mean loss per hidden token, in nats.
pub fn held_out_loss(model: &BertForMaskedLm, loader: &ValidationLoader) -> Result<f64> {
    let model = model.clone().valid();
    let (mut total, mut tokens) = (0.0, 0);
    for batch in loader.iter() {
        let batch = batch?;
        let loss = model.try_forward(&batch)?.loss.into_scalar::<f64>();
        total += loss * batch.num_masked() as f64;
        tokens += batch.num_masked();
    }
    ensure!(tokens > 0, "no held-out token is hidden; raise --mlm-probability or --held-out");
    Ok(total / tokens as f64)
}
