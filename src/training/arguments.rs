use super::tuning::Tuning;
use crate::distributed::{Ranks, gpus};
use crate::error::Result;
use crate::layers::ensure;
use crate::model::SentenceLoss;
use crate::optim::LrSchedule;
use burn::prelude::*;
use burn_fused::Precision;
use derive_setters::Setters;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::io::{Write, stderr};
use std::path::PathBuf;

/// When a run of a [`Trainer`](super::Trainer) is evaluated and saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum EvalStrategy {
    /// After each pass over the data.
    #[default]
    Epoch,
    /// Every so many optimizer steps. A run of epochs divides each epoch evenly into parts of about as many steps.
    Steps(usize),
}

/// What [`TrainingArguments::with_prompts`] puts before the sentences of each column; the last one before those of all further
/// columns. A sentence that begins with its prompt gets no other. The prompt's tokens are not pooled where the model's
/// [`include_prompt`](crate::model::BertForSentenceEmbeddingConfig::include_prompt) is false.
///
/// ```
/// use burn_bert::training::{TrainingArguments, TrainingPrompts};
///
/// let arguments = TrainingArguments::new("out").with_prompts(["query: ", "passage: "]);
/// // Those of the model, by their names in config_sentence_transformers.json:
/// let names = vec!["query".into(), "document".into()];
/// let arguments = TrainingArguments::new("out").with_prompts(TrainingPrompts::Names(names));
/// # let _ = arguments;
/// ```
#[derive(Clone, Debug, Serialize)]
pub enum TrainingPrompts {
    /// Prompts as texts.
    Texts(Vec<String>),
    /// Names of prompts that the model has.
    Names(Vec<String>),
}

impl<const N: usize> From<[&str; N]> for TrainingPrompts {
    fn from(texts: [&str; N]) -> Self {
        Self::Texts(texts.map(String::from).to_vec())
    }
}

/// The settings of a [`Trainer`](super::Trainer), which has an example, by their names in transformers' `TrainingArguments`.
///
/// Each field has a setter of its name, such as [`with_epochs`](Self::with_epochs).
// What is skipped may differ when a run is resumed, as no step depends on it: the run's length, which of its models is returned,
// and where and how this process runs.
#[derive(Clone, Debug, Serialize, Setters)]
#[setters(prefix = "with_")]
pub struct TrainingArguments {
    /// The output directory: at the end the model with its tokenizer, and in the folder `training` checkpoints and metrics.
    #[serde(skip)]
    #[setters(skip)]
    pub output_dir: PathBuf,
    /// The processes that train together, each of which calls the trainer in the same way.
    #[serde(skip)]
    #[setters(skip)]
    pub ranks: Ranks,
    /// Passes over the training data.
    #[serde(skip)]
    pub epochs: usize,
    /// Optimizer steps, instead of `epochs`; a multiple of the steps of `eval_strategy`.
    #[serde(skip)]
    #[setters(into)]
    pub max_steps: Option<usize>,
    /// When the run is evaluated and saved.
    pub eval_strategy: EvalStrategy,
    /// Items in a batch, on each rank and device (`per_device_train_batch_size`).
    #[serde(skip)]
    pub batch_size: usize,
    /// Items in a batch of an evaluation; by default `batch_size`.
    #[setters(into)]
    pub eval_batch_size: Option<usize>,
    /// Batches in an optimizer step.
    #[serde(skip)]
    pub gradient_accumulation_steps: usize,
    /// The peak learning rate, in (0, 1].
    pub learning_rate: f64,
    /// How the learning rate falls after the warm-up (`lr_scheduler_type`).
    pub lr_schedule: LrSchedule,
    /// The share of the steps in which the learning rate grows, in [0, 1).
    pub warmup_ratio: f64,
    /// The steps in which the learning rate grows, instead of `warmup_ratio`.
    #[setters(into)]
    pub warmup_steps: Option<usize>,
    /// AdamW's weight decay, in [0, 1 / `learning_rate`]; biases and LayerNorm are not decayed.
    pub weight_decay: f64,
    /// The largest norm of all gradients together; `f64::INFINITY` clips nothing.
    pub max_grad_norm: f64,
    /// ε of label smoothing, in [0, 1): the loss of single classes is (1 − ε) times the cross-entropy, plus ε times the mean of
    /// −log p over all classes; of a model from a checkpoint.
    pub label_smoothing_factor: f64,
    /// The weight of each class in the loss of a classifier from a checkpoint, in the order of the data's
    /// [`names`](crate::data::Examples::names) (`compute_loss` with
    /// `torch.nn.CrossEntropyLoss(weight=…)` in transformers).
    #[setters(into)]
    pub class_weights: Option<Vec<f64>>,
    /// Layer-wise decay: each layer's rate is the next higher layer's rate times this, in (0, 1].
    #[setters(into)]
    pub layer_decay: Option<f64>,
    /// The precision of matmuls.
    #[serde(serialize_with = "debugged")]
    pub precision: Precision,
    /// Whether each layer keeps only its input and is computed again in the backward pass, to save memory.
    pub gradient_checkpointing: bool,
    /// Which parameters are trained.
    pub tuning: Tuning,
    /// The base model's path or name on the Hub, which lets a run of adapters save them besides the merged model: in the folder
    /// `adapter` of the output directory, as [`save_adapter`](crate::model::PretrainedModel::save_adapter) does.
    #[serde(skip)]
    #[setters(into, strip_option)]
    pub adapter_base: Option<String>,
    /// The metric of the validation data whose best value decides which model is saved and returned.
    #[serde(skip)]
    #[setters(into)]
    pub metric_for_best_model: String,
    /// Whether larger values of that metric are better; by default what the metric says of itself.
    #[serde(skip)]
    #[setters(into)]
    pub greater_is_better: Option<bool>,
    /// Stops after so many evaluations in a row without an improvement.
    #[serde(skip)]
    #[setters(into)]
    pub early_stopping_patience: Option<usize>,
    /// How much better than the last improvement a value must be to count as one.
    #[serde(skip)]
    pub early_stopping_threshold: f64,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Tokens of a text, special tokens included, at which it is cut; by default the tokenizer's `model_max_length`, of masked
    /// language modelling at most 128.
    #[setters(into)]
    pub max_length: Option<usize>,
    /// Tokens that the windows of one text share in question answering.
    pub doc_stride: usize,
    /// The loss of sentence embeddings from a checkpoint; by default co-sent of pairs with labels, multiple negatives ranking of
    /// others.
    #[serde(serialize_with = "debugged")]
    #[setters(into)]
    pub sentence_loss: Option<SentenceLoss>,
    /// What is put before sentences in training and evaluation, of a reranker before queries. Texts are saved with a model from a
    /// checkpoint: the first as `query`, the second as `document`, one for all as both and the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[setters(skip)]
    pub prompts: Option<TrainingPrompts>,
    /// Sentences that a model of sentence embeddings from a checkpoint embeds at once, of a batch of any size.
    #[setters(into)]
    pub mini_batch_size: Option<usize>,
    /// Whether batches are made of texts of about the same length, which reduces padding; of sentence pairs they never are.
    pub group_by_length: bool,
    /// Whether no two pairs of a training batch share a sentence, if the data leave a choice, for losses to which all others of a
    /// batch are negatives (`BatchSamplers.NO_DUPLICATES` of sentence-transformers).
    pub no_duplicates: bool,
    /// The most items of the validation data that are read, drawn by `seed`.
    #[setters(into)]
    pub max_eval_samples: Option<usize>,
    /// Optimizer steps between two log lines, which have the mean loss of the batches since the one before.
    #[serde(skip)]
    pub logging_steps: usize,
    /// Checkpoints that are kept, the latest ones; that of the best evaluation is kept besides.
    #[serde(skip)]
    pub save_total_limit: usize,
    /// Whether to continue the run in `output_dir` after its last evaluation. Settings and data must be those that it began
    /// with, but for more `epochs` or `max_steps`, `batch_size` and `gradient_accumulation_steps` with the same product,
    /// `metric_for_best_model`, `greater_is_better`, early stopping, `devices`, and what only says where and how this process runs.
    #[serde(skip)]
    pub resume: bool,
    /// Whether to replace the run that is in `output_dir`.
    #[serde(skip)]
    pub overwrite_output_dir: bool,
    /// Whether to print neither progress nor notes.
    #[serde(skip)]
    pub silent: bool,
    /// Whether to show Burn's dashboard in a terminal, in place of a progress bar.
    #[serde(skip)]
    pub dashboard: bool,
    /// The devices of this process, each a rank that trains on a batch of its own; by default the one of [`Ranks::device`].
    #[serde(skip)]
    #[setters(into)]
    pub devices: Vec<Device>,
}

/// Writes a type that serde does not know by its `Debug`.
fn debugged<S: Serializer>(value: &impl Debug, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:?}"))
}

pub(super) type SavedSettings = BTreeMap<String, String>;

/// The settings in which two runs differ, in words.
pub(super) fn differences(begun: &SavedSettings, now: &SavedSettings) -> String {
    let names: BTreeSet<&String> = begun.keys().chain(now.keys()).collect();
    let changed = names.into_iter().filter(|name| begun.get(*name) != now.get(*name));
    let found = changed.map(|name| {
        let [begun, now] = [begun, now].map(|settings| settings.get(name).map_or("missing", String::as_str));
        format!("{name}: {begun}, now {now}")
    });
    found.collect::<Vec<_>>().join("; ")
}

impl TrainingArguments {
    /// The defaults, for a run in this directory.
    pub fn new(output_dir: impl Into<PathBuf>) -> Self {
        Self {
            output_dir: output_dir.into(),
            ranks: Ranks::single(),
            epochs: 3,
            max_steps: None,
            eval_strategy: EvalStrategy::Epoch,
            batch_size: 16,
            eval_batch_size: None,
            gradient_accumulation_steps: 1,
            learning_rate: 5e-5,
            lr_schedule: LrSchedule::Linear,
            warmup_ratio: 0.1,
            warmup_steps: None,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            label_smoothing_factor: 0.0,
            class_weights: None,
            layer_decay: None,
            precision: Precision::F32,
            gradient_checkpointing: false,
            tuning: Tuning::Full,
            adapter_base: None,
            metric_for_best_model: "Loss".into(),
            greater_is_better: None,
            early_stopping_patience: None,
            early_stopping_threshold: 0.0,
            seed: 42,
            max_length: None,
            doc_stride: 128,
            sentence_loss: None,
            prompts: None,
            mini_batch_size: None,
            group_by_length: true,
            no_duplicates: true,
            max_eval_samples: None,
            logging_steps: 10,
            save_total_limit: 2,
            resume: false,
            overwrite_output_dir: false,
            silent: false,
            dashboard: false,
            devices: Vec::new(),
        }
    }

    /// Puts these prompts before the sentences of training and evaluation, or one before the queries of a reranker.
    pub fn with_prompts(self, prompts: impl Into<TrainingPrompts>) -> Self {
        Self { prompts: Some(prompts.into()), ..self }
    }

    /// Sets [`ranks`](Self::ranks).
    pub fn with_ranks(self, ranks: &Ranks) -> Self {
        Self { ranks: ranks.clone(), ..self }
    }

    /// Trains on so many GPUs of the kind of Burn's default device; with 1 on the default device, whatever it is. Returns
    /// [`Error::Config`](crate::Error::Config) if there are fewer.
    pub fn with_num_devices(self, count: usize) -> Result<Self> {
        let found = if count == 1 { Vec::new() } else { gpus() };
        ensure(count == 1 || (1..=found.len()).contains(&count), "devices", || {
            format!(
                "are {count}, but must be at least 1, and no more than the {} GPUs of the default device's kind",
                found.len()
            )
        })?;
        Ok(self.with_devices(found.into_iter().take(count).collect::<Vec<_>>()))
    }

    /// Whether notes are printed.
    pub(super) fn is_heard(&self) -> bool {
        !self.silent && self.ranks.is_first()
    }

    /// Says something on the standard error, if anything is to be said.
    pub(super) fn note(&self, text: impl Display) {
        if self.is_heard() {
            let _ = writeln!(stderr(), "{text}");
        }
    }

    /// What a resumed run must have in common with this one.
    pub(super) fn settings(&self) -> SavedSettings {
        let Value::Object(fields) = serde_json::to_value(self).expect("plain data") else {
            unreachable!("a struct is an object")
        };
        let text = |value| match value {
            Value::Null => "none".into(), // of numbers, an infinite one
            Value::String(text) => text,
            other => other.to_string(),
        };
        let mut settings: SavedSettings =
            fields.into_iter().map(|(field, value)| (field, text(value))).collect();
        // Any two with one product read the same items in a step.
        let items = self.batch_size.saturating_mul(self.gradient_accumulation_steps);
        settings.insert("batch_size · gradient_accumulation_steps".into(), items.to_string());
        settings
    }

    /// The first device of this rank.
    pub(super) fn device(&self) -> Device {
        self.devices.first().cloned().unwrap_or_else(|| self.ranks.device())
    }

    /// A device with what the backward pass needs.
    pub(super) fn autodiff(&self, device: &Device) -> Device {
        let device = device.clone().autodiff();
        if self.gradient_checkpointing { device.gradient_checkpointing() } else { device }
    }

    pub(super) fn check(&self) -> Result<()> {
        let interval = match self.eval_strategy {
            EvalStrategy::Steps(steps) => steps,
            EvalStrategy::Epoch => 1,
        };
        for (field, count) in [
            ("epochs", self.epochs),
            ("max_steps", self.max_steps.unwrap_or(1)),
            ("eval_strategy", interval),
            ("batch_size", self.batch_size),
            ("eval_batch_size", self.eval_batch_size.unwrap_or(1)),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps),
            ("logging_steps", self.logging_steps),
            ("save_total_limit", self.save_total_limit),
            ("early_stopping_patience", self.early_stopping_patience.unwrap_or(1)),
            ("max_eval_samples", self.max_eval_samples.unwrap_or(1)),
        ] {
            // The product of two of them fits into 64 bits.
            let is_allowed = (1..=1 << 28).contains(&count);
            ensure(is_allowed, field, || format!("is {count}, but must be 1 to {}", 1 << 28))?;
        }
        let &Self { learning_rate: rate, warmup_ratio: ratio, weight_decay: decay, .. } = self;
        let &Self { max_grad_norm: norm, early_stopping_threshold: threshold, .. } = self;
        let smoothing = self.label_smoothing_factor;
        for (field, value, is_allowed, allowed) in [
            ("learning_rate", rate, 0.0 < rate && rate <= 1.0, "(0, 1]"),
            ("warmup_ratio", ratio, (0.0..1.0).contains(&ratio), "[0, 1)"),
            // A step multiplies a weight by 1 − learning_rate·weight_decay.
            ("weight_decay", decay, decay >= 0.0 && decay * rate <= 1.0, "[0, 1 / learning_rate]"),
            ("max_grad_norm", norm, norm > 0.0, "(0, inf]"),
            ("label_smoothing_factor", smoothing, (0.0..1.0).contains(&smoothing), "[0, 1)"),
            ("early_stopping_threshold", threshold, (0.0..f64::INFINITY).contains(&threshold), "[0, inf)"),
        ] {
            ensure(is_allowed, field, || format!("is {value}, but must lie in {allowed}"))?;
        }
        if let Tuning::Lora { alpha, .. } = self.tuning {
            let is_allowed = 0.0 < alpha && alpha < 1e30;
            ensure(is_allowed, "tuning", || {
                format!("has the LoRA alpha {alpha}, but it must lie in (0, 1e30)")
            })?;
        }
        let (ranks, devices) = (self.ranks.size(), self.devices.len());
        let too_many = || format!("are {devices}, but a rank has one; start a rank for each");
        ensure(ranks == 1 || devices <= 1, "devices", too_many)?;
        // Without devices of its own, that of its rank.
        let mut devices = self.devices.iter().cloned().chain([self.device()]);
        devices.try_for_each(|device| self.precision.check(&device))?;
        Ok(())
    }

    /// Refuses what only the config of a classifier takes.
    pub(super) fn check_no_classes(&self, reason: &str) -> Result<()> {
        for (field, is_set) in [
            ("class_weights", self.class_weights.is_some()),
            ("label_smoothing_factor", self.label_smoothing_factor > 0.0),
        ] {
            ensure(!is_set, field, || format!("is set, but {reason}"))?;
        }
        Ok(())
    }
}
