use super::arguments::TrainingArguments;
use super::callback::{Callback, LogEntry, Progress, stopped};
use super::folder::{ADAPTER, RunFolder};
use super::history::{BestBy, Evaluation, History, finite};
use super::metric_set::{Metrics, check_loss, evaluate, loss_of};
use super::outputs::{Outcome, Shared};
use super::plan::Plan;
use crate::data::EpochLoader;
use crate::distributed::{Ranks, Wire};
use crate::embeddings::BertEmbeddingsInput;
use crate::error::{Error, Result};
use crate::model::PretrainedModel;
use crate::optim::{scale_and_clip, step};
use crate::pipeline::Pipeline;
use crate::text::BertTokenizer;
use burn::optim::lr_scheduler::module_lr_scheduler::{ModuleLearningRate, ModuleLrScheduler};
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::train::metric::{Adaptor, LossInput};
use burn::train::{Interrupter, ItemLazy};
use burn_fused::autocast;
use std::collections::BTreeMap;
use std::mem::{replace, take};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A model that a [`Trainer`](super::Trainer) trains: every model of this crate, and every module that implements
/// [`Stored`](crate::model::Stored) and training. [A custom head](crate::model::Stored#a-custom-head) is a whole program.
pub trait TrainableModel: PretrainedModel + 'static {
    /// What one step reads.
    type Batch: Send + 'static;
    /// What metrics are computed from: an output of Burn, such as `ClassificationOutput`, or one of this module.
    type Output: ItemLazy + Adaptor<LossInput> + 'static;
    /// How ranks send each other the outputs of an evaluation; by default each rank computes all of them.
    const SHARED: Option<Shared<Self::Output>> = None;

    /// The loss of a batch, and what else a run needs of it. Returns an error for a batch that the model cannot read.
    fn outcome(&self, batch: &Self::Batch) -> Result<Outcome<Self::Output>>;

    /// The tokens of a batch, of which the first are shown before the first step; by default none.
    fn inputs(_batch: &Self::Batch) -> Vec<&BertEmbeddingsInput> {
        Vec::new()
    }

    /// The model without what [`calibrated`](Self::calibrated) chose for the weights that are trained now.
    #[doc(hidden)]
    fn uncalibrated(self) -> Result<Self> {
        Ok(self)
    }

    /// The trained model with what is chosen on the validation data of its run; by default nothing is.
    #[doc(hidden)]
    fn calibrated(self, _run: &Run<Self>) -> Result<Self> {
        Ok(self)
    }

    /// Trains. The models of this crate have it compiled here, so that a program with one of them compiles soon.
    #[doc(hidden)]
    fn run(run: Run<Self>) -> Result<Trained<Self>> {
        train(run)
    }
}

/// What [`Trainer::train`](super::Trainer::train) returns: a model with its tokenizer, and how it came to be.
pub struct Trained<M: TrainableModel> {
    /// The model of the best evaluation with its tokenizer, or the last one without validation data, of a run that was stopped, or if
    /// the metric was finite in no evaluation. The output directory holds the same.
    pub pipeline: Pipeline<M>,
    /// The losses and metrics of the run, from before a resume too.
    pub history: History,
    /// Why the run was stopped before its end, if it was: it can be resumed.
    pub interrupted: Option<String>,
    pub(super) metrics: Metrics<M::Output>,
    pub(super) arguments: TrainingArguments,
}

/// What a run trains, once its settings and data are checked.
pub struct Run<M: TrainableModel> {
    pub(super) arguments: TrainingArguments,
    pub(super) model: M,
    pub(super) tokenizer: BertTokenizer,
    pub(super) optimizer: ModuleOptimizer,
    /// Whether the optimizer is that of this crate, whose state is checked before it is loaded.
    pub(super) is_adamw: bool,
    pub(super) train: EpochLoader<M::Batch>,
    pub(super) valid: Option<EpochLoader<M::Batch>>,
    /// Checksums of the training data and of the validation data.
    pub(super) data: [u32; 2],
    pub(super) metrics: Metrics<M::Output>,
    pub(super) best_by: BestBy,
    pub(super) plan: Plan,
    pub(super) folder: Arc<RunFolder>,
    pub(super) callbacks: Arc<Mutex<Vec<Box<dyn Callback>>>>,
    pub(super) interrupter: Interrupter,
}

/// Trains on this rank, or on one for each device.
pub(super) fn train<M: TrainableModel>(run: Run<M>) -> Result<Trained<M>> {
    let devices = run.arguments.devices.clone();
    if devices.len() < 2 {
        return train_rank(run);
    }
    let run = Mutex::new(run);
    Ranks::run_threads(devices.len(), Wire::Full, |ranks| {
        let run = run.lock().unwrap_or_else(PoisonError::into_inner).on(ranks, &devices[ranks.rank()]);
        train_rank(run)
    })
}

fn train_rank<M: TrainableModel>(run: Run<M>) -> Result<Trained<M>> {
    let mut training = Training::begin(run)?;
    while let Some(part) = training.next_part() {
        // What is random in the steps of a part does not depend on the parts before it.
        training.run.arguments.device().seed(training.run.train.step_seed(part));
        let mut batches = training.run.train.epoch(part);
        loop {
            // Σ nᵢ·∂Lᵢ over batches whose loss Lᵢ is a mean over nᵢ, and Σ nᵢ; none without a batch.
            let (mut gradients, mut counted) = (GradientsAccumulator::new(), None);
            for batch in batches.by_ref().take(training.run.arguments.gradient_accumulation_steps) {
                let batch = batch.map_err(|source| Error::training("the training run", source))?;
                let model = &training.run.model;
                let outcome = autocast(training.run.arguments.precision, || model.outcome(&batch))?;
                gradients.accumulate(model, outcome.gradients(model)?);
                counted = Some(counted.unwrap_or(0.0) + outcome.count);
                training.count(outcome)?;
            }
            let Some(count) = counted else { break };
            let gradients = training.mean(gradients.grads(), count)?;
            training.rates = training.schedule.step();
            let optimizer = &mut training.run.optimizer;
            training.run.model = step(optimizer, training.rates.clone(), training.run.model, gradients);
            training.log();
            if training.run.is_stopped() {
                return training.finish();
            }
        }
        training.evaluate_and_save()?;
        if training.run.is_stopped() {
            break;
        }
    }
    training.finish()
}

/// A run of one rank while it trains.
struct Training<M: TrainableModel> {
    run: Run<M>,
    schedule: ModuleLrScheduler,
    /// The learning rates of the last step.
    rates: ModuleLearningRate,
    history: History,
    /// The metrics of the training batches since the last evaluation.
    metrics: Metrics<M::Output>,
    progress: Progress,
    /// Σ loss · count of the training batches since the last log entry, and Σ count.
    logged: (f64, f64),
    /// When the last step or evaluation ended, and how much time the steps of this process have taken.
    since: Instant,
    time: Duration,
}

impl<M: TrainableModel> Run<M> {
    /// Whether a rank is asked to stop: the same on all ranks between two exchanges.
    fn is_stopped(&self) -> bool {
        if self.interrupter.should_stop() {
            self.arguments.ranks.stop();
        }
        self.arguments.ranks.is_stopped()
    }

    /// The metrics over the validation data, or without any over the first training batch; `None` if the run is stopped
    /// meanwhile.
    fn evaluate(&self, model: &M, is_checked: bool) -> Result<Option<BTreeMap<String, f64>>> {
        let data = self.valid.as_ref().map_or((&self.train, 1), |valid| (valid, usize::MAX));
        let output = |batch: &_| Ok(model.outcome(batch)?.output);
        self.metrics.evaluate(data, &self.arguments, M::SHARED, is_checked, &|| self.is_stopped(), output)
    }

    /// Gives `read` the outputs of a model for the batches of the validation data, on every rank.
    pub(super) fn validate(&self, model: &M, read: impl FnMut(M::Output) -> Result<()>) -> Result<()> {
        let Some(valid) = &self.valid else { return Ok(()) };
        let output = |batch: &_| Ok(model.outcome(batch)?.output);
        evaluate((valid, usize::MAX), &self.arguments, M::SHARED, &|| false, output, read).map(drop)
    }

    /// Calls the callbacks of the first rank, each of which may stop the run.
    fn call(&self, event: impl Fn(&mut dyn Callback) -> ControlFlow<String>) {
        if !self.arguments.ranks.is_first() {
            return;
        }
        for callback in self.callbacks.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if let ControlFlow::Break(reason) = event(callback.as_mut()) {
                self.interrupter.stop(Some(&reason));
            }
        }
    }

    /// The run of one of several ranks, on its device.
    fn on(&self, ranks: &Ranks, device: &Device) -> Self {
        let arguments = self.arguments.clone().with_ranks(ranks).with_devices([device.clone()]);
        Self {
            model: self.model.clone().fork(&arguments.autodiff(device)),
            arguments,
            tokenizer: self.tokenizer.clone(),
            optimizer: self.optimizer.clone(),
            train: self.train.on(device),
            valid: self.valid.as_ref().map(|valid| valid.on(device)),
            metrics: self.metrics.clone(),
            best_by: self.best_by.clone(),
            folder: self.folder.clone(),
            callbacks: self.callbacks.clone(),
            interrupter: self.interrupter.clone(),
            ..*self
        }
    }
}

impl<M: TrainableModel> Training<M> {
    /// Evaluates the model, takes the folder, and restores the last state if the run is resumed.
    fn begin(mut run: Run<M>) -> Result<Self> {
        let ranks = run.arguments.ranks.clone();
        run.train = run.train.shard(ranks.rank(), ranks.size())?;
        run.model = ranks.broadcast(run.model)?;
        let (finished, state) = run.folder.resumed.clone();
        // Without dropout, so that the loss before training is the same whenever the run is resumed.
        let plain = run.model.valid();
        // What cannot be made or read is known now.
        if let Some(batch) = run.train.epoch(0).next() {
            plain.outcome(&batch.map_err(|source| Error::training("reading a batch", source))?)?;
        }
        // By the batches of the first start, on which the loss depends where classes have weights or texts are negatives.
        let (valid, size) = (run.valid.clone(), run.folder.begun_batch_size());
        run.valid = run.valid.map(|valid| valid.with_batch_size(size)).transpose()?;
        let initial = run.evaluate(&plain, false)?.ok_or_else(|| stopped(&run.interrupter))?;
        let schedule = run.plan.schedule(&run.arguments, finished, run.model.bert().encoder.layers.len())?;
        if ranks.is_first() {
            let batch_size = run.valid.as_ref().unwrap_or(&run.train).batch_size();
            run.folder.begin(loss_of(&initial), batch_size, run.plan, run.data)?;
        }
        run.valid = valid;
        if finished > 0 {
            run.model = run.folder.checkpoints.model(finished, run.model)?;
            let optimizer = (run.optimizer, run.is_adamw);
            run.optimizer = run.folder.checkpoints.optimizer(finished, optimizer, &run.model)?;
            run.train = run.train.starting_at(finished, state.items_read);
        }
        Ok(Self {
            schedule,
            rates: 0.0.into(),
            history: History { initial: finite(initial), ..state.history }, // as evaluations leave it out
            metrics: run.metrics.clone(),
            progress: run.plan.progress(finished * run.plan.steps),
            logged: (0.0, 0.0),
            since: Instant::now(),
            time: Duration::ZERO,
            run,
        })
    }

    /// The number of the next part, counted from 0; `None` if the run is over, or without an improvement for as long as its patience.
    fn next_part(&self) -> Option<usize> {
        let finished = self.history.evaluations.len();
        let is_patient = self.history.is_patient(&self.run.best_by, &self.run.arguments);
        (finished < self.run.plan.parts && is_patient).then_some(finished)
    }

    /// Counts a training batch in metrics and logs.
    fn count(&mut self, outcome: Outcome<M::Output>) -> Result<()> {
        self.metrics.update(outcome.output, Some(&self.rates))?;
        let Some((loss, count)) = self.metrics.last_loss() else { return Ok(()) };
        check_loss("of a training batch", loss)?;
        self.history.losses.push(loss);
        self.logged = (self.logged.0 + loss * count as f64, self.logged.1 + count as f64);
        Ok(())
    }

    /// The mean of the gradients over the batches of all ranks, clipped, of their sum on this one.
    fn mean(&self, sum: GradientsParams, count: f64) -> Result<GradientsParams> {
        // What counts for nothing has gradients of 0; class weights may count less than 1.
        let share = if count > 0.0 { count.recip() } else { 1.0 };
        let Run { arguments: TrainingArguments { ranks, max_grad_norm, .. }, model, .. } = &self.run;
        let mut gradients = ranks.mean_of_scaled(model, sum, share, count)?;
        let share = if ranks.size() == 1 { share } else { 1.0 };
        // An infinite norm clips nothing, so none is computed.
        scale_and_clip(model, &mut gradients, share, Some(*max_grad_norm).filter(|norm| norm.is_finite()));
        Ok(gradients)
    }

    /// Counts a step, and logs it if it is due.
    fn log(&mut self) {
        self.progress = self.run.plan.progress(self.progress.step + 1);
        self.time += replace(&mut self.since, Instant::now()).elapsed();
        let progress = self.progress;
        self.run.call(|callback| callback.on_step(&progress));
        if progress.step.is_multiple_of(self.run.arguments.logging_steps) {
            let (sum, count) = take(&mut self.logged);
            let begun = self.run.folder.resumed.0 * self.run.plan.steps;
            let steps_per_second = (progress.step - begun) as f64 / self.time.as_secs_f64();
            let entry = LogEntry {
                progress,
                loss: (count > 0.0).then(|| sum / count),
                learning_rate: self.rates.base(),
                steps_per_second,
                seconds_left: (progress.steps - progress.step.min(progress.steps)) as f64 / steps_per_second,
            };
            self.run.call(|callback| callback.on_log(&entry));
        }
    }

    /// Ends a part: evaluates the model, and saves it with all that a resumed run needs.
    fn evaluate_and_save(&mut self) -> Result<()> {
        let train = finite(self.metrics.take()?);
        let valid = match self.run.valid {
            Some(_) => self.run.evaluate(&self.run.model.valid(), true)?,
            None => Some(BTreeMap::new()),
        };
        let Some(valid) = valid.map(finite) else { return Ok(()) };
        let valid = self.run.arguments.ranks.broadcast_value(valid)?;
        let evaluation = Evaluation { step: self.progress.step, train, valid };
        self.history.evaluations.push(evaluation.clone());
        let (progress, number) = (self.progress, self.history.evaluations.len());
        self.run.call(|callback| callback.on_evaluate(&progress, &evaluation));
        // Of several ranks, the first saves for all.
        if self.run.arguments.ranks.is_first() {
            let state = (self.history.clone(), self.run.train.items_before(number));
            let Run { model, optimizer, folder, arguments, .. } = &self.run;
            let path = folder.save(number, model.clone().into_record(), optimizer.to_record(), state)?;
            let best = self.history.best(&self.run.best_by, |_| true).map(|best| best + 1);
            let first = number.saturating_sub(arguments.save_total_limit) + 1;
            folder.checkpoints.delete(|kept| kept >= first || Some(kept) == best)?;
            self.run.call(|callback| callback.on_save(&progress, &path));
        }
        self.since = Instant::now();
        Ok(())
    }

    /// The best model with its history, saved.
    fn finish(self) -> Result<Trained<M>> {
        let (interrupted, reason) = self.end();
        let Self { run, mut history, progress, .. } = self;
        let (ranks, is_over) = (run.arguments.ranks.clone(), interrupted.is_none());
        ranks.same("end of the run", &is_over)?;
        if ranks.is_first() {
            // Dropped after it: the terminal is the caller's again.
            let callbacks = take(&mut *run.callbacks.lock().unwrap_or_else(PoisonError::into_inner));
            callbacks.into_iter().for_each(|mut callback| callback.on_end(&progress, &reason));
        }
        history.retain(&run.metrics.names());
        if is_over && run.valid.is_some() {
            let problem = history.choose_best(&run.best_by, &run.folder.checkpoints.numbers()?);
            problem.into_iter().for_each(|problem| run.arguments.note(problem));
        }
        let history = ranks.broadcast_value(history)?;
        let mut model = run.model.valid();
        if let Some(best) = history.best.filter(|_| ranks.is_first()) {
            model = run.folder.checkpoints.model(best + 1, model)?;
        }
        let model = ranks.broadcast(model)?;
        let with_adapters = run.arguments.adapter_base.clone().map(|base| (model.clone(), base));
        // Merges LoRA's adapters, if there are any.
        let model = model.materialize();
        let model = if is_over && run.valid.is_some() { model.calibrated(&run)? } else { model };
        // Nothing has read the weights of the last step yet; a run that was stopped evaluates nothing.
        let last = if run.valid.is_none() { run.evaluate(&model, false)? } else { None };
        last.map_or(Ok(()), |last| check_loss("after the last step", loss_of(&last)))?;
        let Run { arguments, tokenizer, metrics, folder, .. } = run;
        let pipeline = Pipeline::new(model, tokenizer)?;
        if ranks.is_first() {
            folder.remove_replaced_model()?;
            pipeline.save_pretrained(&arguments.output_dir)?;
            let adapter = arguments.output_dir.join(ADAPTER);
            if let Some((model, base)) = with_adapters {
                model.save_adapter(adapter, &base)?;
            } else if adapter.exists() {
                arguments.note(format_args!("{} is of an earlier model", adapter.display()));
            }
        }
        Ok(Trained { pipeline, history, interrupted, metrics, arguments })
    }

    /// What stopped the run, if it was stopped, and why it ends, in words.
    fn end(&self) -> (Option<String>, String) {
        let Run { plan, interrupter, arguments, .. } = &self.run;
        let Progress { step, steps, epoch, .. } = self.progress;
        if self.next_part().is_some() {
            let reason = interrupter.get_message().unwrap_or_else(|| "another rank was stopped".into());
            let text = format!("stopped after {step} of {steps} steps: {reason}");
            return (Some(reason), text);
        }
        let text = match arguments.early_stopping_patience {
            Some(patience) if self.history.evaluations.len() < plan.parts => format!(
                "stopped early after {step} of {steps} steps: no better {} in {patience} evaluations",
                arguments.metric_for_best_model
            ),
            _ => format!("finished after {step} steps, {epoch:.2} epochs"),
        };
        (None, text)
    }
}
