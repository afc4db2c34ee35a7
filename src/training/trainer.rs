use super::arguments::{TrainingArguments, TrainingPrompts};
use super::callback::Callback;
use super::console::shown;
use super::disk::checksum;
use super::folder::RunFolder;
use super::metric_set::Metrics;
use super::plan::Plan;
use super::run::{Run, TrainableModel, Trained};
use super::training_data::{
    TrainingData, batches, check_labels, evaluation_loader, first_inputs, training_loader,
};
use crate::checkpoint::Fields;
use crate::data::{Batches, DataSummary, EpochLoader};
use crate::distributed::Ranks;
use crate::error::{Error, Result};
use crate::files::folder_of;
use crate::files::hub::{HubFiles, directory};
use crate::layers::ensure;
use crate::model::{adapter_of, check_savable};
use crate::optim::{AdamWConfig, adamw, num_trainable_params};
use crate::pipeline::Pipeline;
use crate::text::BertTokenizer;
use burn::optim::ModuleOptimizer;
use burn::train::Interrupter;
use burn::train::metric::{Adaptor, Metric, Numeric};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::exit;
use std::sync::{Arc, Mutex};

/// Fine-tunes a model, which the dataset decides ([`TrainingData`] lists them): transformers' `Trainer`. Every error that the
/// settings, the data or the output directory can cause is returned before the first step.
///
/// ```no_run
/// use burn_bert::data::{Columns, LabelledTexts};
/// use burn_bert::training::{EvalStrategy, Trainer, TrainingArguments, Tuning, evaluate};
///
/// let columns = Columns::default();
/// let (train, test) = (LabelledTexts::open("train.csv", &columns)?, LabelledTexts::open("test.csv", &columns)?);
/// let arguments = TrainingArguments::new("out")
///     .with_epochs(3)
///     .with_eval_strategy(EvalStrategy::Steps(500))
///     .with_tuning(Tuning::Lora { rank: 8, alpha: 16.0, target_modules: Vec::new() })
///     .with_metric_for_best_model("F1")
///     .with_early_stopping_patience(3);
/// let trainer = Trainer::from_pretrained("bert-base-uncased", train, arguments.clone())?;
/// let trained = trainer.with_validation_share(0.1).train()?;
/// println!("{}", trained.history);
/// println!("{:.4}", evaluate(&trained.pipeline, test, &arguments)?["Loss"]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub struct Trainer<M: TrainableModel, D> {
    pipeline: Pipeline<M>,
    train: D,
    validation: Option<Validation<D>>,
    arguments: TrainingArguments,
    further: Metrics<M::Output>,
    optimizer: Option<ModuleOptimizer>,
    callbacks: Vec<Box<dyn Callback>>,
    interrupter: Interrupter,
    stops_on_ctrl_c: bool,
}

enum Validation<D> {
    Share(f64),
    Data(D),
}

impl<M: TrainableModel, D: TrainingData<M>> Trainer<M, D> {
    /// A model for the data from a Hugging Face checkpoint with a tokenizer, as [`Pipeline::from_pretrained`] reads it. A head that
    /// the checkpoint lacks, or that has other labels, is newly initialised, and said so on the standard error.
    ///
    /// Errors: those of [`from_pretrained_with_new_head`](crate::model::PretrainedModel::from_pretrained_with_new_head), of
    /// [`BertTokenizer::from_pretrained`] and of [`new`](Self::new).
    pub fn from_pretrained(path: impl AsRef<Path>, train: D, arguments: TrainingArguments) -> Result<Self> {
        let device = arguments.device();
        arguments.check()?;
        // Once: config, weights and tokenizer are those of one commit.
        let path = &directory(path.as_ref(), HubFiles::Weights)?;
        device.seed(arguments.seed);
        if !D::HAS_CLASSES {
            arguments.check_no_classes("the data have no classes")?;
        }
        let config = train.config(M::config_of(&Fields::beside(path)?)?, &arguments);
        let (model, report) = M::from_pretrained_with_new_head(&config, path, &device.autodiff())?;
        ensure(report.adapter.is_none() || arguments.adapter_base.is_none(), "adapter_base", || {
            "is set, but the model is its base with an adapter merged into it; load the base alone".into()
        })?;
        // A run that goes on has its own head in its checkpoint.
        if !report.is_complete() && !arguments.resume {
            arguments.note(format_args!("newly initialised, to be trained: {}", report.missing.join(", ")));
        }
        let pipeline = Pipeline::new(model, BertTokenizer::from_pretrained(folder_of(path))?)?;
        Self::from_pipeline(pipeline, train, arguments)
    }

    /// A model that was made or loaded by hand, with losses, class weights or frozen parameters of its own. Returns
    /// [`Error::Config`], naming the field, if no run can have these arguments; [`Error::Fused`] if a device lacks the precision.
    pub fn new(pipeline: Pipeline<M>, train: D, arguments: TrainingArguments) -> Result<Self> {
        let reason = "the model is given; set it in the config that it is made of";
        arguments.check_no_classes(reason)?;
        // They would not be saved.
        let is_own = matches!(arguments.prompts, None | Some(TrainingPrompts::Names(_)));
        ensure(is_own, "prompts", || format!("are texts, but {reason}, and choose them by their names"))?;
        Self::from_pipeline(pipeline, train, arguments)
    }

    fn from_pipeline(pipeline: Pipeline<M>, train: D, arguments: TrainingArguments) -> Result<Self> {
        arguments.check()?;
        Ok(Self {
            pipeline,
            train,
            validation: None,
            arguments,
            further: Metrics::new(),
            optimizer: None,
            callbacks: Vec::new(),
            interrupter: Interrupter::new(),
            stops_on_ctrl_c: false,
        })
    }

    /// Holds out a share of the data in (0, 1) for validation, drawn by the seed.
    pub fn with_validation_share(self, share: f64) -> Self {
        Self { validation: Some(Validation::Share(share)), ..self }
    }

    /// Validates on other data, which may have the same labels in another order, or only some of them.
    pub fn with_validation(self, valid: D) -> Self {
        Self { validation: Some(Validation::Data(valid)), ..self }
    }

    /// Adds a metric, any of Burn's or of [`metrics`](crate::metrics) that the model's output supports.
    pub fn with_metric<Me>(self, metric: Me) -> Self
    where
        Me: Metric + Numeric + 'static,
        M::Output: Adaptor<Me::Input>,
    {
        Self { further: self.further.with(metric), ..self }
    }

    /// Lets `interrupter` stop the run while the data are tokenised, with [`Error::Data`], or after the current step, on all ranks.
    pub fn with_interrupter(self, interrupter: &Interrupter) -> Self {
        Self { interrupter: interrupter.clone(), ..self }
    }

    /// Steps with another optimizer than [`adamw`] with the weight decay of the arguments: any of Burn's. The learning rates, the
    /// clipping and the accumulation stay those of the arguments. A run is resumed with the optimizer that it began with.
    pub fn with_optimizer(self, optimizer: impl Into<ModuleOptimizer>) -> Self {
        Self { optimizer: Some(optimizer.into()), ..self }
    }

    /// Adds what is called while the model is trained.
    pub fn with_callback(mut self, callback: impl Callback + 'static) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Stops the run after the current step on Ctrl-C, and the program on a second one, by a handler of this process that
    /// [`train`](Self::train) sets: an [`Error::Training`] if the process has another one.
    pub fn with_ctrl_c(self) -> Self {
        Self { stops_on_ctrl_c: true, ..self }
    }

    /// Trains, evaluates, and saves the model with its tokenizer.
    ///
    /// # Errors
    ///
    /// Before the first step: [`Error::Config`] or [`Error::Data`] for settings and data that do not fit the model or each other,
    /// [`Error::File`] for an output directory that holds something else. Later, with the checkpoints kept: [`Error::Training`] for
    /// a batch that cannot be made, [`Error::Io`] for a checkpoint that cannot be saved, [`Error::Data`] for a loss that is infinite
    /// or NaN, [`Error::Rank`].
    pub fn train(self) -> Result<Trained<M>> {
        if self.stops_on_ctrl_c {
            stop_on_ctrl_c(self.interrupter.clone())?;
        }
        M::run(self.prepare()?)
    }

    /// Checks the settings and the output directory, and makes the data's batches.
    fn prepare(self) -> Result<Run<M>> {
        let Self { pipeline, train, validation, arguments, further, optimizer, mut callbacks, .. } = self;
        let interrupter = self.interrupter;
        let (model, tokenizer) = pipeline.into_parts();
        let model = tuned(model, &arguments)?;
        // Those of the data that decide which model is the best.
        let metrics = match &validation {
            Some(Validation::Data(valid)) => valid.metrics(&model),
            _ => train.metrics(&model),
        };
        let metrics = metrics.and(further);
        let best_by = metrics.best_by(&arguments, validation.is_some())?;
        let folder = RunFolder::open(&arguments)?;
        tokenizer.check_directory(&arguments.output_dir)?;
        let read = read_data(train, validation, &model, &tokenizer, &arguments, &interrupter)?;
        arguments.ranks.same("data", &read.checksums)?;
        let valid = read.valid.map(|valid| evaluation_loader(valid, &arguments)).transpose()?;
        check_labels(valid.as_ref().is_some_and(EpochLoader::has_one_label), &arguments)?;
        describe::<M>(read.summaries, &read.train, &tokenizer, &arguments);
        let plan = Plan::new(&arguments, read.train.len())?;
        let batches = plan.batches(arguments.gradient_accumulation_steps);
        let train = training_loader(read.train, &arguments, batches)?;
        let is_adamw = optimizer.is_none();
        let optimizer = match optimizer {
            Some(optimizer) => optimizer,
            None => adamw(&AdamWConfig::new().with_weight_decay(arguments.weight_decay))?,
        };
        let trained = num_trainable_params(&model);
        arguments.note(format_args!("{trained} of {} parameters are trained", model.num_params()));
        if cfg!(debug_assertions) {
            let text =
                "this is a development build, which can train fifty times as slowly as one with --release";
            arguments.note(text);
        }
        if !arguments.silent && arguments.ranks.is_first() {
            let progress = plan.progress(folder.resumed.0 * plan.steps);
            callbacks.insert(0, shown(metrics.definitions(), &arguments, &progress));
        }
        let (folder, callbacks) = (Arc::new(folder), Arc::new(Mutex::new(callbacks)));
        Ok(Run {
            arguments,
            model,
            tokenizer,
            optimizer,
            is_adamw,
            train,
            valid,
            data: read.checksums,
            metrics,
            best_by,
            plan,
            folder,
            callbacks,
            interrupter,
        })
    }
}

impl<M: TrainableModel> Trained<M> {
    /// The loss and all metrics of the run on other data. Errors are those of [`evaluate`].
    pub fn evaluate<D: TrainingData<M>>(&self, data: D) -> Result<BTreeMap<String, f64>> {
        evaluated(&self.pipeline, data, &self.metrics, &self.arguments)
    }
}

/// The loss and the metrics of a model on some data, by name, with the batch size, precision, lengths and number of items of the
/// arguments. [`Trainer`] has an example. Errors are those of [`Trainer::train`](Trainer::train) before the first step;
/// [`Error::Training`] for a batch that cannot be made.
pub fn evaluate<M: TrainableModel, D: TrainingData<M>>(
    pipeline: &Pipeline<M>,
    data: D,
    arguments: &TrainingArguments,
) -> Result<BTreeMap<String, f64>> {
    arguments.check()?;
    let metrics = data.metrics(pipeline.model());
    evaluated(pipeline, data, &metrics, arguments)
}

fn evaluated<M: TrainableModel, D: TrainingData<M>>(
    pipeline: &Pipeline<M>,
    data: D,
    metrics: &Metrics<M::Output>,
    arguments: &TrainingArguments,
) -> Result<BTreeMap<String, f64>> {
    let model = pipeline.model().clone();
    // Where it is, unless a device is asked for.
    let model = if arguments.devices.is_empty() { model } else { model.fork(&arguments.device()) };
    model.devices().iter().try_for_each(|device| arguments.precision.check(device))?;
    let (batches, notes) = batches(data, &model, pipeline.tokenizer(), arguments, &Interrupter::new())?;
    notes.iter().for_each(|note| arguments.note(note));
    let loader = evaluation_loader(batches, arguments)?;
    let alone = arguments.clone().with_ranks(&Ranks::single());
    let output = |batch: &_| Ok(model.outcome(batch)?.output);
    let values = metrics.evaluate((&loader, usize::MAX), &alone, None, false, &|| false, output)?;
    Ok(values.expect("nobody stops it"))
}

fn stop_on_ctrl_c(interrupter: Interrupter) -> Result<()> {
    let handler = move || {
        if interrupter.should_stop() {
            exit(130); // what a shell says of a program that Ctrl-C ended
        }
        interrupter.stop(Some("Ctrl-C"));
    };
    ctrlc::set_handler(handler).map_err(|source| Error::training("the handler of Ctrl-C", source))
}

/// The model on its device with the parameters that are trained, once it is known that it can be saved.
fn tuned<M: TrainableModel>(model: M, arguments: &TrainingArguments) -> Result<M> {
    let device = arguments.device();
    device.seed(arguments.seed); // for adapters, and a head that is drawn when first used
    let model = model.uncalibrated()?.train().fork(&arguments.autodiff(&device));
    let model = arguments.tuning.select(model)?;
    // Now, and not when the model is saved after hours.
    check_savable(&model, &arguments.output_dir)?;
    if let Some(base) = &arguments.adapter_base {
        let is_output = match (Path::new(base).canonicalize(), arguments.output_dir.canonicalize()) {
            (Ok(base), Ok(output)) => base == output,
            _ => false,
        };
        ensure(!base.is_empty() && !is_output, "adapter_base", || {
            format!("is {base:?}, but must be the base model, which the output directory will not hold")
        })?;
        adapter_of(&model).map_err(|error| {
            let problem =
                format!("needs LoRA adapters (Tuning::Lora) and a head alone to be trained: {error}");
            Error::config("adapter_base", problem)
        })?;
    }
    Ok(model)
}

/// The batches of the training data and of the validation data, checksums of both, and what is known and said of each.
struct ReadData<B> {
    train: Batches<B>,
    valid: Option<Batches<B>>,
    checksums: [u32; 2],
    summaries: [(Option<DataSummary>, Vec<String>); 2],
}

fn read_data<M: TrainableModel, D: TrainingData<M>>(
    train: D,
    validation: Option<Validation<D>>,
    model: &M,
    tokenizer: &BertTokenizer,
    arguments: &TrainingArguments,
    interrupter: &Interrupter,
) -> Result<ReadData<M::Batch>> {
    let read = |data: D| {
        let (checksum, summary) = (checksum(&data), data.summary());
        let (batches, notes) = batches(data, model, tokenizer, arguments, interrupter)?;
        Ok((batches, checksum, (summary, notes)))
    };
    let (batches, first, summary) = read(train)?;
    let (train, valid, second, other) = match validation {
        None => (batches, None, 0, Default::default()),
        Some(Validation::Share(share)) => {
            let (train, valid) = batches.split(share, arguments.seed)?;
            // With the seed the share says which of the training data it is.
            (train, Some(valid), checksum(&share), Default::default())
        }
        Some(Validation::Data(valid)) => {
            let (valid, second, other) = read(valid).map_err(name_validation_data)?;
            (batches, Some(valid), second, other)
        }
    };
    Ok(ReadData { train, valid, checksums: [first, second], summaries: [summary, other] })
}

/// Says what was read, and shows the first inputs of the training data.
fn describe<M: TrainableModel>(
    summaries: [(Option<DataSummary>, Vec<String>); 2],
    train: &Batches<M::Batch>,
    tokenizer: &BertTokenizer,
    arguments: &TrainingArguments,
) {
    if !arguments.is_heard() {
        return;
    }
    for (name, (summary, notes)) in ["training data", "validation data"].into_iter().zip(summaries) {
        match summary {
            Some(mut summary) => {
                summary.notes.extend(notes);
                arguments.note(format_args!("{name}: {summary}"));
                if name == "training data" {
                    let inputs = first_inputs::<M>(train, tokenizer, &arguments.device());
                    inputs.iter().for_each(|tokens| arguments.note(format_args!("  tokens: {tokens}")));
                }
            }
            None => notes.iter().for_each(|note| arguments.note(note)),
        }
    }
}

/// An error that says which data it is about.
fn name_validation_data(error: Error) -> Error {
    match error {
        Error::Data { what, problem } => Error::data(format!("the validation data: {what}"), problem),
        other => other,
    }
}
