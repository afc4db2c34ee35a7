use crate::data::steps;
use crate::distributed::{Ranks, gpus};
use crate::error::{Error, Result};
use crate::layers::ensure;
use crate::model::{SentenceLoss, Stored};
use crate::optim::{LrSchedule, layer_wise_decay, num_trainable_params};
use burn::module::{Lora, LoraAdapter, Param, ParamGroup, Reparameterizer};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::prelude::*;
use burn::tensor::Distribution;
use burn_fused::Precision;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// When a run of a [`Trainer`](super::Trainer) is evaluated and saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvalStrategy {
    /// After each pass over the data.
    #[default]
    Epoch,
    /// Every so many optimizer steps. A run of epochs divides each epoch evenly into parts of about as many steps.
    Steps(usize),
}

/// Which parameters a [`Trainer`](super::Trainer) trains.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Tuning {
    /// Those that are not frozen already.
    #[default]
    Full,
    /// Low-rank adapters of the encoder's weights, and the whole head. At the end the adapters are merged into the weights.
    ///
    /// A weight W of I inputs becomes W + `alpha`/`rank` · A·B, with A uniform in ±1/√I and B zero at the start. Source: `LoraConfig`
    /// of PEFT 0.21, whose defaults are a rank and an alpha of 8 and, of BERT, the modules `query` and `value`.
    Lora {
        /// The rank of the adapters, the columns of A.
        rank: usize,
        /// The product of the adapters is multiplied by `alpha` / `rank`; above 0.
        alpha: f64,
        /// The modules of each layer that are adapted, by their paths or the ends of them: `attention.query`, `attention.key`,
        /// `attention.value`, `attention_output`, `intermediate`, `gate` (in the families that have it) and `output`. Without any,
        /// all (PEFT's `"all-linear"`).
        target_modules: Vec<String>,
    },
    /// All but the embedding layer.
    FrozenEmbeddings,
    /// Only parameters whose path matches a regular expression, such as `^classifier\.`.
    Matching(String),
}

impl Tuning {
    /// The model with only these parameters trained.
    pub(super) fn select<M: Stored>(&self, model: M) -> Result<M> {
        let group = |pattern: &str| {
            let group = ParamGroup::from_regex(pattern);
            group.map_err(|error| Error::config("tuning", format!("has {pattern:?}: {error:?}")))
        };
        let model = match self {
            Self::Full => model,
            Self::FrozenEmbeddings => model.set_require_grad_group(group(r"(^|\.)embeddings\.")?, false),
            Self::Matching(pattern) => {
                model.set_require_grad_group(ParamGroup::all().exclude(group(pattern)?), false)
            }
            Self::Lora { rank, alpha, target_modules } => {
                let hidden_size = model.bert().embeddings.hidden_size();
                let allowed = format!("1 to the hidden_size of the model, {hidden_size}");
                let problem = || format!("has the LoRA rank {rank}, but it must be {allowed}");
                ensure((1..=hidden_size).contains(rank), "tuning", problem)?;
                let adapted = adapted_modules(&model, target_modules)?;
                let adapted = group(&format!(r"encoder\.layers\.{adapted}\.weight$"))?;
                let lora = Adapters(Lora::new(*rank, *alpha).set_param_group(adapted));
                let body =
                    r"(^|\.)(encoder|embeddings|embeddings_projection|relative_attention_bias|distances)\.";
                let trained = ParamGroup::all().exclude(group(body)?);
                model.apply_reparameterization(lora).set_require_grad_group(trained, true)
            }
        };
        let is_trained = num_trainable_params(&model) > 0;
        ensure(is_trained, "tuning", || "leaves no parameter to train".into())?;
        Ok(model)
    }
}

/// A pattern of the paths of these modules below `encoder.layers`, or of all.
fn adapted_modules<M: Stored>(model: &M, target_modules: &[String]) -> Result<String> {
    let layer = model.bert().encoder.layers.first();
    let names: Vec<&str> = layer.iter().flat_map(|layer| layer.linears()).map(|(name, _)| name).collect();
    let is = |name: &str, target: &str| name == target || name.ends_with(&format!(".{target}"));
    for target in target_modules {
        ensure(names.iter().any(|name| is(name, target)), "tuning", || {
            format!("has the target module {target:?}, but the modules of a layer are {names:?}")
        })?;
    }
    if target_modules.is_empty() {
        return Ok(r".*".into());
    }
    let chosen = names.iter().filter(|name| target_modules.iter().any(|target| is(name, target)));
    Ok(format!(r"\d+\.({})", chosen.map(|name| name.replace('.', r"\.")).collect::<Vec<_>>().join("|")))
}

/// LoRA with the A of PEFT, whose deviation, 1/√(3·inputs), does not depend on the rank. Burn's is 1/rank, with which the weights
/// move several times as far at the same learning rate.
struct Adapters(Lora);

impl Reparameterizer for Adapters {
    type Reparam = LoraAdapter;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<LoraAdapter>) {
        let (base, adapter) = self.0.reparameterize(path, param);
        let adapter = adapter.map(|adapter| {
            let a = adapter.a.val();
            let bound = (a.dims()[0] as f64).sqrt().recip();
            let a = Tensor::random(a.dims(), Distribution::Uniform(-bound, bound), (&a.device(), a.dtype()));
            LoraAdapter { a: Param::from_tensor(a), ..adapter }
        });
        (base, adapter)
    }
}

pub(super) type Settings = BTreeMap<String, String>;

/// What may differ when a run is resumed, as no step depends on it: the run's length, which of its models is returned, and where
/// and how this process runs.
const CHANGEABLE: [&str; 10] = [
    "epochs",
    "max_steps",
    "metric_for_best_model",
    "greater_is_better",
    "early_stopping_patience",
    "early_stopping_threshold",
    "resume",
    "overwrite_output_dir",
    "silent",
    "devices",
];

/// The fields of [`TrainingArguments`] with their defaults, and their setters with what they take.
macro_rules! arguments {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $setter:ident($given:ty);)*) => {
        /// The settings of a [`Trainer`](super::Trainer), which has an example, by their names in transformers' `TrainingArguments`.
        #[derive(Clone, Debug)]
        pub struct TrainingArguments {
            /// The output directory: at the end the model with its tokenizer, and in the folder `training` checkpoints and metrics.
            pub output_dir: PathBuf,
            /// The processes that train together, each of which calls the trainer in the same way.
            pub ranks: Ranks,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl TrainingArguments {
            /// The defaults, for a run in this directory.
            pub fn new(output_dir: impl Into<PathBuf>) -> Self {
                Self { output_dir: output_dir.into(), ranks: Ranks::single(), $($field: $default,)* }
            }

            /// Sets [`ranks`](Self::ranks).
            pub fn with_ranks(self, ranks: &Ranks) -> Self {
                Self { ranks: ranks.clone(), ..self }
            }

            /// Trains on so many GPUs of the kind of Burn's default device; with 1 on the default device, whatever it is. Returns
            /// [`Error::Config`] if there are fewer.
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

            /// What a resumed run must have in common with this one. As `Debug` writes it, which unlike JSON has infinity and every
            /// bit of a number.
            pub(super) fn settings(&self) -> Settings {
                let all = [$((stringify!($field), format!("{:?}", self.$field))),*];
                let kept = all.into_iter().filter(|(field, _)| !CHANGEABLE.contains(field));
                kept.map(|(field, value)| (field.to_string(), value)).collect()
            }

            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                pub fn $setter(self, $field: $given) -> Self {
                    Self { $field: $field.into(), ..self }
                }
            )*
        }
    };
}

arguments! {
    /// Passes over the training data.
    epochs: usize = 3, with_epochs(usize);
    /// Optimizer steps, instead of `epochs`; a multiple of the steps of `eval_strategy`.
    max_steps: Option<usize> = None, with_max_steps(impl Into<Option<usize>>);
    /// When the run is evaluated and saved.
    eval_strategy: EvalStrategy = EvalStrategy::Epoch, with_eval_strategy(EvalStrategy);
    /// Items in a batch, on each rank and device (`per_device_train_batch_size`).
    batch_size: usize = 16, with_batch_size(usize);
    /// Items in a batch of an evaluation; by default `batch_size`.
    eval_batch_size: Option<usize> = None, with_eval_batch_size(impl Into<Option<usize>>);
    /// Batches in an optimizer step.
    gradient_accumulation_steps: usize = 1, with_gradient_accumulation_steps(usize);
    /// The peak learning rate, in (0, 1].
    learning_rate: f64 = 5e-5, with_learning_rate(f64);
    /// How the learning rate falls after the warm-up (`lr_scheduler_type`).
    lr_schedule: LrSchedule = LrSchedule::Linear, with_lr_schedule(LrSchedule);
    /// The share of the steps in which the learning rate grows, in [0, 1).
    warmup_ratio: f64 = 0.1, with_warmup_ratio(f64);
    /// The steps in which the learning rate grows, instead of `warmup_ratio`.
    warmup_steps: Option<usize> = None, with_warmup_steps(impl Into<Option<usize>>);
    /// AdamW's weight decay, in [0, 1 / `learning_rate`]; biases and LayerNorm are not decayed.
    weight_decay: f64 = 0.01, with_weight_decay(f64);
    /// The largest norm of all gradients together; `f64::INFINITY` clips nothing.
    max_grad_norm: f64 = 1.0, with_max_grad_norm(f64);
    /// Layer-wise decay: each layer's rate is the next higher layer's rate times this, in (0, 1].
    layer_decay: Option<f64> = None, with_layer_decay(impl Into<Option<f64>>);
    /// The precision of matmuls.
    precision: Precision = Precision::F32, with_precision(Precision);
    /// Whether each layer keeps only its input and is computed again in the backward pass, to save memory.
    gradient_checkpointing: bool = false, with_gradient_checkpointing(bool);
    /// Which parameters are trained.
    tuning: Tuning = Tuning::Full, with_tuning(Tuning);
    /// The metric of the validation data whose best value decides which model is saved and returned.
    metric_for_best_model: String = "Loss".into(), with_metric_for_best_model(impl Into<String>);
    /// Whether larger values of that metric are better; by default what the metric says of itself.
    greater_is_better: Option<bool> = None, with_greater_is_better(impl Into<Option<bool>>);
    /// Stops after so many evaluations in a row without an improvement.
    early_stopping_patience: Option<usize> = None, with_early_stopping_patience(impl Into<Option<usize>>);
    /// How much better than the last improvement a value must be to count as one.
    early_stopping_threshold: f64 = 0.0, with_early_stopping_threshold(f64);
    /// The seed of all random numbers.
    seed: u64 = 42, with_seed(u64);
    /// Tokens of a text, special tokens included, at which it is cut; by default the tokenizer's `model_max_length`, of masked
    /// language modelling at most 128.
    max_length: Option<usize> = None, with_max_length(impl Into<Option<usize>>);
    /// Tokens that the windows of one text share in question answering.
    doc_stride: usize = 128, with_doc_stride(usize);
    /// The loss of sentence embeddings from a checkpoint; by default co-sent of pairs with labels, multiple negatives ranking of
    /// others.
    sentence_loss: Option<SentenceLoss> = None, with_sentence_loss(impl Into<Option<SentenceLoss>>);
    /// Sentences that a model of sentence embeddings from a checkpoint embeds at once, of a batch of any size.
    mini_batch_size: Option<usize> = None, with_mini_batch_size(impl Into<Option<usize>>);
    /// Whether batches are made of texts of about the same length, which reduces padding; of sentence pairs they never are.
    group_by_length: bool = true, with_group_by_length(bool);
    /// Whether no two pairs of a training batch share a sentence, if the data leave a choice, for losses to which all others of a
    /// batch are negatives (`BatchSamplers.NO_DUPLICATES` of sentence-transformers).
    no_duplicates: bool = true, with_no_duplicates(bool);
    /// The most items of the validation data that are read, drawn by `seed`.
    max_eval_samples: Option<usize> = None, with_max_eval_samples(impl Into<Option<usize>>);
    /// Whether to continue the run in `output_dir` after its last evaluation. Settings and data must be those that it began
    /// with, but for more `epochs` or `max_steps`, `metric_for_best_model`, `greater_is_better`, early stopping, `devices`, and what
    /// only says where and how this process runs.
    resume: bool = false, with_resume(bool);
    /// Whether to replace the run that is in `output_dir`.
    overwrite_output_dir: bool = false, with_overwrite_output_dir(bool);
    /// Whether to print neither progress nor notes.
    silent: bool = false, with_silent(bool);
    /// The devices of this process, which share each step; by default the one of [`Ranks::device`].
    devices: Vec<Device> = Vec::new(), with_devices(impl Into<Vec<Device>>);
}

/// How a run is divided into evaluations, the epochs of Burn's trainer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) evaluations: usize,
    /// Optimizer steps between two evaluations.
    pub(super) steps: usize,
    /// What is read between two evaluations, if not an epoch: batches of a rank, and how many such parts an epoch has, if it counts.
    pub(super) interval: Option<(usize, usize)>,
}

impl TrainingArguments {
    pub(super) fn device(&self) -> Device {
        self.devices.first().cloned().unwrap_or_else(|| self.ranks.device())
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
            ("early_stopping_patience", self.early_stopping_patience.unwrap_or(1)),
            ("max_eval_samples", self.max_eval_samples.unwrap_or(1)),
        ] {
            // The product of two of them fits into 64 bits.
            let is_allowed = (1..=1 << 28).contains(&count);
            ensure(is_allowed, field, || format!("is {count}, but must be 1 to {}", 1 << 28))?;
        }
        let &Self { learning_rate: rate, warmup_ratio: ratio, weight_decay: decay, .. } = self;
        let &Self { max_grad_norm: norm, early_stopping_threshold: threshold, .. } = self;
        for (field, value, is_allowed, allowed) in [
            ("learning_rate", rate, 0.0 < rate && rate <= 1.0, "(0, 1]"),
            ("warmup_ratio", ratio, (0.0..1.0).contains(&ratio), "[0, 1)"),
            // A step multiplies a weight by 1 − learning_rate·weight_decay.
            ("weight_decay", decay, decay >= 0.0 && decay * rate <= 1.0, "[0, 1 / learning_rate]"),
            ("max_grad_norm", norm, norm > 0.0, "(0, inf]"),
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

    pub(super) fn plan(&self, items: usize) -> Result<Plan> {
        let (ranks, devices) = (self.ranks.size(), self.devices.len().max(1));
        // Burn gives each device as many items, and the last one the rest too: it has the most batches.
        let of_last = items - items / devices * (devices - 1);
        let batches = steps(of_last, self.batch_size * ranks, ranks);
        let of_epoch = batches.div_ceil(self.gradient_accumulation_steps);
        let per_step = self.gradient_accumulation_steps * devices;
        let plan = |evaluations, steps, interval| Ok(Plan { evaluations, steps, interval });
        let invalid = |problem: String| Err(Error::config("max_steps", problem));
        match (self.eval_strategy, self.max_steps) {
            (EvalStrategy::Epoch, None) => plan(self.epochs, of_epoch, None),
            (EvalStrategy::Steps(interval), None) => {
                // By the epoch and not by the run, so that a run of more epochs has the same parts.
                let parts = ((of_epoch as f64 / interval as f64).round() as usize).max(1);
                let steps = of_epoch.div_ceil(parts);
                plan(parts * self.epochs, steps, Some((steps * per_step, parts)))
            }
            (EvalStrategy::Epoch, Some(steps)) => invalid(format!(
                "is {steps}, but the run is evaluated by epochs; set eval_strategy to EvalStrategy::Steps"
            )),
            (EvalStrategy::Steps(interval), Some(steps)) if !steps.is_multiple_of(interval) => invalid(
                format!("is {steps}, but must be a multiple of the {interval} steps of eval_strategy"),
            ),
            (EvalStrategy::Steps(steps), Some(all)) => plan(all / steps, steps, Some((steps * per_step, 0))),
        }
    }

    /// The learning rates of a run, after so many evaluations.
    pub(super) fn schedule(&self, plan: Plan, finished: usize, layers: usize) -> Result<ModuleLrScheduler> {
        let total = plan.evaluations * plan.steps;
        // Rounded down: with a ratio below 1 a step is left after the warm-up.
        let warmup = self.warmup_steps.unwrap_or((total as f64 * self.warmup_ratio) as usize);
        // Not from the step that a checkpoint has: with another number of ranks, an epoch has another number of steps.
        let done = finished.saturating_mul(plan.steps);
        let schedule = self.lr_schedule.at_step(Some(done), self.learning_rate, warmup, total)?;
        match self.layer_decay {
            Some(decay) => layer_wise_decay(schedule, layers, decay),
            None => Ok(schedule),
        }
    }
}
