use super::arguments::TrainingArguments;
use super::checkpoints::checksum_of;
use super::history::History;
use super::keeper::Keeper;
use super::learner::{TrainableModel, Training};
use super::metric_set::{Metrics, check_loss, loss_of};
use super::progress::renderer;
use super::run::Run;
use super::training_data::{
    TrainingData, batches, check_first, check_not_stopped, evaluation_loader, stopped,
};
use crate::checkpoint::Fields;
use crate::data::EpochLoader;
use crate::error::{Error, Result};
use crate::files::folder_of;
use crate::files::hub::{Wanted, directory};
use crate::layers::ensure;
use crate::model::check_savable;
use crate::optim::{AdamWConfig, adamw, num_trainable_params};
use crate::pipeline::Pipeline;
use crate::text::BertTokenizer;
use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::train::metric::{Adaptor, Metric, Numeric};
use burn::train::{
    ExecutionStrategy, Interrupter, Learner, LearningResult, MultiDeviceOptim, SupervisedTraining, TrainStep,
    TrainingError, TrainingStrategy,
};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Write, stderr};
use std::path::Path;
use std::sync::Arc;

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
/// let trained = trainer.with_validation_share(0.1)?.train()?;
/// println!("{}", trained.history);
/// println!("{:.4}", evaluate(&trained.pipeline, test, &arguments)?["Loss"]);
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub struct Trainer<M, D> {
    pipeline: Pipeline<M>,
    train: D,
    validation: Option<Validation<D>>,
    arguments: TrainingArguments,
    further: Metrics<M>,
    interrupter: Interrupter,
}

enum Validation<D> {
    Share(f64),
    Data(D),
}

/// What [`Trainer::train`] returns: a model with its tokenizer, and how it came to be. [`Trainer`] has an example.
pub struct Trained<M> {
    /// The model of the best evaluation with its tokenizer, or the last one without validation data, of a run that was stopped, or if
    /// the metric was finite in no evaluation. The output directory holds the same.
    pub pipeline: Pipeline<M>,
    /// The losses and metrics of the run, from before a resume too.
    pub history: History,
    /// Why the run was stopped before its end, if it was: it can be resumed.
    pub interrupted: Option<String>,
    metrics: Metrics<M>,
    arguments: TrainingArguments,
}

impl<M: TrainableModel, D: TrainingData<M>> Trainer<M, D> {
    /// A model for the data from a Hugging Face checkpoint with a tokenizer, as [`Pipeline::from_pretrained`] reads it. A head that the checkpoint lacks, or that has other
    /// labels, is newly initialised, and said so on the standard error.
    ///
    /// Errors: those of [`from_pretrained_with_new_head`](crate::model::PretrainedModel::from_pretrained_with_new_head), of
    /// [`BertTokenizer::from_pretrained`] and of [`new`](Self::new).
    pub fn from_pretrained(path: impl AsRef<Path>, train: D, arguments: TrainingArguments) -> Result<Self> {
        let device = arguments.device();
        arguments.check()?;
        // Once: config, weights and tokenizer are those of one commit.
        let path = &directory(path.as_ref(), Wanted::Weights)?;
        device.seed(arguments.seed);
        let config = train.config(M::config_of(&Fields::beside(path)?)?, &arguments);
        let (model, report) = M::from_pretrained_with_new_head(&config, path, &device.autodiff())?;
        if !report.is_complete() {
            note(&arguments, format_args!("newly initialised, to be trained: {}", report.missing.join(", ")));
        }
        Self::new(Pipeline::new(model, BertTokenizer::from_pretrained(folder_of(path))?)?, train, arguments)
    }

    /// A model that was made or loaded by hand, with losses, class weights or frozen parameters of its own. Returns
    /// [`Error::Config`], naming the field, if no run can have these arguments; [`Error::Fused`] if a device lacks the precision.
    pub fn new(pipeline: Pipeline<M>, train: D, arguments: TrainingArguments) -> Result<Self> {
        arguments.check()?;
        let (further, interrupter) = (Metrics::new(), Interrupter::new());
        Ok(Self { pipeline, train, validation: None, arguments, further, interrupter })
    }

    /// Holds out a share of the data in (0, 1) for validation, drawn by the seed. Returns [`Error::Config`] for another share.
    pub fn with_validation_share(self, share: f64) -> Result<Self> {
        let is_share = share > 0.0 && share < 1.0;
        ensure(is_share, "validation_share", || format!("is {share}, but must lie in (0, 1)"))?;
        Ok(Self { validation: Some(Validation::Share(share)), ..self })
    }

    /// Validates on other data, which may have the same labels in another order, or only some of them.
    pub fn with_validation(self, valid: D) -> Self {
        Self { validation: Some(Validation::Data(valid)), ..self }
    }

    /// Adds a metric, any of Burn's or of [`metrics`](crate::metrics) that the model's output supports.
    pub fn with_metric<Me>(self, metric: Me) -> Self
    where
        Me: Metric + Numeric + 'static,
        <M as TrainStep>::Output: Adaptor<Me::Input>,
    {
        Self { further: self.further.with(metric), ..self }
    }

    /// Lets `interrupter` stop the run while the data are tokenised, with [`Error::Data`], or after the current batch, on all ranks: for
    /// Ctrl-C, whose handler is the program's.
    ///
    /// ```no_run
    /// # use burn_bert::{data::{Columns, LabelledTexts}, training::{Trainer, TrainingArguments}};
    /// # let train = LabelledTexts::open("train.csv", &Columns::default())?;
    /// # let trainer = Trainer::from_pretrained("path/to/bert", train, TrainingArguments::new("out"))?;
    /// let interrupter = burn::train::Interrupter::new();
    /// let trainer = trainer.with_interrupter(&interrupter);
    /// ctrlc::set_handler(move || interrupter.stop(Some("Ctrl-C")))?;
    /// let trained = trainer.train()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_interrupter(self, interrupter: &Interrupter) -> Self {
        Self { interrupter: interrupter.clone(), ..self }
    }

    /// Trains, evaluates, and saves the model with its tokenizer.
    ///
    /// # Errors
    ///
    /// Before the first step: [`Error::Config`] or [`Error::Data`] for settings and data that do not fit the model or each other,
    /// [`Error::File`] for an output directory that holds something else. Later, with the checkpoints kept: [`Error::Training`] for
    /// a batch that cannot be made or a checkpoint that cannot be saved, [`Error::Data`] for a loss that is infinite or NaN,
    /// [`Error::Rank`].
    pub fn train(self) -> Result<Trained<M>> {
        let Self { pipeline, train, validation, arguments, further, interrupter } = self;
        let (ranks, device) = (&arguments.ranks, arguments.device());
        let (model, tokenizer) = pipeline.into_parts();
        device.seed(arguments.seed); // for adapters, and a head that is drawn when first used
        let model = arguments.tuning.select(model.train().fork(&device.clone().autodiff()))?;
        // Now, and not when the model is saved after hours.
        check_savable(&model, &arguments.output_dir)?;
        // Those of the data that decide which model is the best.
        let metrics = match &validation {
            Some(Validation::Data(valid)) => valid.metrics(&model),
            _ => train.metrics(&model),
        };
        let metrics = metrics.and(further);
        let greater_is_better = metrics.is_greater_better(&arguments, validation.is_some())?;
        let run = Arc::new(Run::open(&arguments)?);
        let keeper = Keeper::new(&run, greater_is_better, &interrupter);
        tokenizer.check_directory(&arguments.output_dir)?;
        check_not_stopped(&interrupter)?;
        let mut sums = [checksum_of(&train), 0];
        let read = |data| batches(data, &model, &tokenizer, &arguments, &interrupter);
        let (train, valid) = match validation {
            Some(Validation::Share(share)) => {
                sums[1] = checksum_of(&share); // with the seed it says which of the training data
                let (train, valid) = read(train)?.split(share, arguments.seed)?;
                (train, Some(valid))
            }
            Some(Validation::Data(valid)) => {
                sums[1] = checksum_of(&valid);
                (read(train)?, Some(read(valid)?))
            }
            None => (read(train)?, None),
        };
        let plan = arguments.plan(train.len())?;
        let train = train.of_settings(arguments.group_by_length, arguments.no_duplicates);
        let train = EpochLoader::new(train, arguments.batch_size, &device)?.with_shuffling(arguments.seed);
        let valid = valid.map(|valid| evaluation_loader(valid, &arguments)).transpose()?;
        let schedule = arguments.schedule(plan, run.finished_epochs, model.bert().encoder.layers.len())?;
        ranks.same("data", &sums)?;
        let trained = num_trainable_params(&model);
        note(&arguments, format_args!("{trained} of {} parameters are trained", Module::num_params(&model)));
        if cfg!(debug_assertions) {
            note(
                &arguments,
                "this is a development build, which can train fifty times as slowly as one with --release",
            );
        }
        let training = Training::new(model)
            .with_max_grad_norm(arguments.max_grad_norm)?
            .with_precision(arguments.precision)?
            .with_ranks(ranks, &interrupter)?;
        // Without dropout, so that the loss before training is the same whenever the run is resumed.
        let plain = training.valid();
        for loader in [&train].into_iter().chain(&valid) {
            check_first::<M, D>(&plain.model, loader)?;
        }
        let valid = valid.map(|valid| valid.share(ranks));
        let metrics_of = |model: &Training<M>| match &valid {
            Some(valid) => metrics.of_batches(model, valid.clone().iter()),
            None => metrics.of_batches(model, train.clone().iter().take(1)),
        };
        let initial = metrics_of(&plain)?.ok_or_else(|| stopped(&interrupter))?;
        // Held until the model is saved.
        let _lock = run.begin(loss_of(&initial), plan, sums)?;

        let loader = train.clone().starting_after(run.finished_epochs);
        let loader = loader.shard(ranks.rank(), ranks.size())?;
        let loader = Arc::new(match plan.interval {
            Some((batches, _)) => {
                loader.with_batches_per_epoch(batches)?.with_items_read(run.items_read(batches))
            }
            None => loader,
        });
        let validating: Arc<dyn DataLoader<_>> = match &valid {
            Some(valid) => Arc::new(valid.clone()),
            None => loader.slice(0, 0), // Burn's trainer always validates
        };
        let (model, interrupted) = if keeper.is_over() || run.finished_epochs >= plan.evaluations {
            (run.model_of(run.finished_epochs, training.valid())?, None)
        } else {
            let strategy = match &arguments.devices[..] {
                [] | [_] => ExecutionStrategy::single(device.autodiff()),
                // They share each step, and the first holds the weights.
                devices => {
                    let devices = devices.iter().map(|device| device.clone().autodiff()).collect();
                    ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice)
                }
            };
            let [models, optimizers, schedules] = run.checkpoints.clone();
            let launch = SupervisedTraining::new(&run.folder, loader, validating)
                .grads_accumulation(arguments.gradient_accumulation_steps)
                .num_epochs(plan.evaluations)
                .with_training_strategy(TrainingStrategy::Default(strategy))
                .with_application_logger(None)
                .renderer(renderer(&run, &keeper.keys))
                .with_interrupter(training.interrupter())
                .with_custom_checkpointers(models, optimizers, schedules)
                .with_checkpointing_strategy(keeper.clone())
                .with_metric_logger(keeper.clone());
            let mut launch = metrics.register(launch);
            if arguments.gradient_checkpointing {
                launch = launch.gradient_checkpointing();
            }
            if arguments.early_stopping_patience.is_some() {
                launch = launch.early_stopping(keeper.clone());
            }
            if run.finished_epochs > 0 {
                run.check_checkpoint(run.finished_epochs, training.clone())?;
                launch = launch.checkpoint(run.finished_epochs);
            }
            let optimizer = adamw(&AdamWConfig::new().with_weight_decay(arguments.weight_decay))?;
            let LearningResult { model, renderer, interrupted, error } =
                launch.launch(Learner::new(training, optimizer, schedule));
            drop(renderer); // gives the terminal back
            keeper.problem()?;
            if let Some(error) = error {
                // What another rank has done is said by the ranks.
                if matches!(*error, TrainingError::Workers(_)) {
                    ranks.same("end of the run", &())?;
                }
                return Err(Error::Training { what: "the training run", source: Box::new(error) });
            }
            (model, interrupted.map(|stop| stop.reason.unwrap_or_default()))
        };

        ranks.same("end of the run", &interrupted.is_some())?;
        let mut history = run.log.history(plan.steps, &metrics.names());
        // As evaluations leave out what is not finite.
        history.initial = initial.into_iter().filter(|(_, value)| value.is_finite()).collect();
        match interrupted {
            // What follows the last evaluation was broken off. A checkpoint that cannot be read is no reason to lose the model.
            Some(_) => history.evaluations.truncate(run.last_checkpoint().unwrap_or_default()),
            None if valid.is_none() => {}
            None => {
                let (best, problem) = keeper.result();
                history.best = best.map(|number| number - 1);
                problem.into_iter().for_each(|problem| note(&arguments, problem));
            }
        }
        // All return that of rank 0.
        ranks.begin_output(1);
        if let Some(first) = ranks.output(|| rmp_serde::to_vec(&history).expect("plain data"))? {
            history = rmp_serde::from_slice(&first).expect("what rank 0 wrote");
        }
        let model = match history.best.filter(|_| ranks.is_first()) {
            Some(best) => run.model_of(best + 1, model)?,
            None => model,
        };
        // Merges LoRA's adapters, if there are any.
        let model = ranks.broadcast(model)?.model.materialize();
        if valid.is_none() {
            // Nothing has read the weights of the last step yet.
            let training = Training::new(model.clone()).with_precision(arguments.precision)?;
            let last = metrics_of(&training)?.expect("nobody stops it");
            check_loss("after the last step", loss_of(&last))?;
        }
        let pipeline = Pipeline::new(model, tokenizer)?;
        if ranks.is_first() {
            run.remove_replaced_model()?;
            pipeline.save_pretrained(&arguments.output_dir)?;
        }
        Ok(Trained { pipeline, history, interrupted, metrics, arguments })
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
    metrics: &Metrics<M>,
    arguments: &TrainingArguments,
) -> Result<BTreeMap<String, f64>> {
    let model = pipeline.model().clone();
    // Where it is, unless a device is asked for.
    let model = if arguments.devices.is_empty() { model } else { model.fork(&arguments.device()) };
    model.devices().iter().try_for_each(|device| arguments.precision.check(device))?;
    let batches = batches(data, &model, pipeline.tokenizer(), arguments, &Interrupter::new())?;
    let loader = evaluation_loader(batches, arguments)?;
    check_first::<M, D>(&model, &loader)?;
    let model = Training::new(model).with_precision(arguments.precision)?;
    Ok(metrics.of_batches(&model, loader.iter())?.expect("nobody stops it"))
}

fn note(arguments: &TrainingArguments, text: impl Display) {
    if !arguments.silent && arguments.ranks.is_first() {
        let _ = writeln!(stderr(), "{text}");
    }
}
