use super::arguments::{Plan, TrainingArguments};
use super::callback::{Callback, LogEntry, Progress, stopped};
use super::folder::{RunFolder, State};
use super::history::{BestBy, Evaluation, History, finite};
use super::metric_set::{Evaluator, Metrics, check_loss, loss_of};
use super::outputs::Shared;
use crate::data::EpochLoader;
use crate::distributed::{Ranks, Wire};
use crate::embeddings::BertEmbeddingsInput;
use crate::error::{Error, Result};
use crate::model::PretrainedModel;
use crate::optim::average_and_clip;
use crate::pipeline::Pipeline;
use crate::text::BertTokenizer;
use burn::module::Module;
use burn::optim::lr_scheduler::module_lr_scheduler::{ModuleLearningRate, ModuleLrScheduler};
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::train::metric::{Adaptor, LossInput};
use burn::train::{Interrupter, ItemLazy};
use burn_fused::autocast;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
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
    fn inputs(batch: &Self::Batch) -> Vec<&BertEmbeddingsInput> {
        let _ = batch;
        Vec::new()
    }

    /// Trains. The models of this crate have it compiled here, so that a program with one of them compiles soon.
    #[doc(hidden)]
    fn run(run: Run<Self>) -> Result<Trained<Self>> {
        train(run)
    }
}

/// What a [`TrainableModel`] makes of a batch; [a custom head](crate::model::Stored#a-custom-head) makes one.
#[derive(Clone, Debug)]
pub struct Outcome<T> {
    /// The mean loss, `[1]`, with its graph if the model is on an autodiff device.
    pub loss: Tensor<1>,
    /// What it is a mean over: masked tokens, labelled tokens, texts; 0 if nothing. Batches weigh as much in a step.
    pub count: f64,
    /// What metrics are computed from.
    pub output: T,
}

pub(super) const UNTRAINED: &str =
    "the model trains no parameter: make or load it on `device.autodiff()`, and freeze not all of it";

/// What [`Trainer::train`](super::Trainer::train) returns: a model with its tokenizer, and how it came to be.
/// [`Trainer`](super::Trainer) has an example.
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
    pub(super) greater_is_better: bool,
    pub(super) plan: Plan,
    pub(super) folder: Arc<RunFolder>,
    pub(super) callbacks: Vec<Box<dyn Callback>>,
    pub(super) interrupter: Interrupter,
}

/// Trains on this rank, or on one for each device.
pub(super) fn train<M: TrainableModel>(run: Run<M>) -> Result<Trained<M>> {
    let devices = run.arguments.devices.clone();
    if devices.len() < 2 {
        return train_rank(run);
    }
    // Each rank takes its own out, and the first one the callbacks.
    let of_rank = |rank: usize| Run { callbacks: Vec::new(), ..run.on(&devices[rank]) };
    let mut runs: Vec<_> = (0..devices.len()).map(of_rank).collect();
    runs[0].callbacks = run.callbacks;
    let runs: Vec<_> = runs.into_iter().map(|run| Mutex::new(Some(run))).collect();
    Ranks::run_threads(devices.len(), Wire::Full, |ranks| {
        let run = runs[ranks.rank()].lock().ok().and_then(|mut run| run.take()).expect("taken once");
        let arguments = run.arguments.clone().with_ranks(ranks);
        train_rank(Run { arguments: arguments.with_devices([devices[ranks.rank()].clone()]), ..run })
    })
}

fn train_rank<M: TrainableModel>(run: Run<M>) -> Result<Trained<M>> {
    let mut training = Training::begin(run)?;
    while let Some(part) = training.next_part() {
        // What is random in the steps of a part does not depend on the parts before it.
        training.run.arguments.device().seed(training.run.train.step_seed(part));
        let mut batches = training.run.train.epoch(part);
        loop {
            let mut gradients = GradientSum::default();
            for batch in batches.by_ref().take(training.run.arguments.gradient_accumulation_steps) {
                let batch = batch.map_err(|source| failed("the training run", source))?;
                let outcome =
                    autocast(training.run.arguments.precision, || training.run.model.outcome(&batch))?;
                gradients.add(&training.run.model, &outcome)?;
                training.count(outcome)?;
            }
            let Some(gradients) = training.mean(gradients)? else { break };
            training.rates = training.schedule.step();
            training.run.model =
                training.run.optimizer.step(training.rates.clone(), training.run.model, gradients);
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

/// Σ nᵢ·∂Lᵢ over batches whose loss Lᵢ is a mean over nᵢ, and Σ nᵢ.
struct GradientSum<M> {
    sum: GradientsAccumulator<M>,
    batches: usize,
    count: f64,
}

impl<M> Default for GradientSum<M> {
    fn default() -> Self {
        Self { sum: GradientsAccumulator::new(), batches: 0, count: 0.0 }
    }
}

impl<M: Module> GradientSum<M> {
    fn add<T>(&mut self, model: &M, Outcome { loss, count, .. }: &Outcome<T>) -> Result<()> {
        if !loss.is_tracked() {
            return Err(Error::data("the model", UNTRAINED));
        }
        let gradients = loss.clone().mul_scalar(*count).backward();
        self.sum.accumulate(model, GradientsParams::from_grads(gradients, model));
        (self.batches, self.count) = (self.batches + 1, self.count + count);
        Ok(())
    }
}

/// A run of one rank while it trains.
struct Training<M: TrainableModel> {
    run: Run<M>,
    schedule: ModuleLrScheduler,
    /// Those of the last step.
    rates: ModuleLearningRate,
    history: History,
    /// Of the training batches since the last evaluation.
    metrics: Metrics<M::Output>,
    progress: Progress,
    /// Σ loss · count of the training batches since the last log entry, and Σ count.
    logged: (f64, f64),
    /// When the last step or evaluation ended, and how many steps this process has taken in how much time.
    since: Instant,
    steps: usize,
    time: Duration,
}

impl<M: TrainableModel> Run<M> {
    /// The metric that decides which model is the best, and whether more of it is better.
    fn best_by(&self) -> BestBy<'_> {
        BestBy { metric: &self.arguments.metric_for_best_model, greater_is_better: self.greater_is_better }
    }

    /// Whether a rank is asked to stop: the same on all ranks between two exchanges.
    fn is_stopped(&self) -> bool {
        let ranks = &self.arguments.ranks;
        if self.interrupter.should_stop() {
            ranks.stop();
        }
        ranks.is_stopped()
    }

    /// The metrics over the validation data, or without any over the first training batch; `None` if the run is stopped
    /// meanwhile.
    fn evaluate(&self, model: &M, is_checked: bool) -> Result<Option<BTreeMap<String, f64>>> {
        let TrainingArguments { ranks, precision, .. } = &self.arguments;
        let is_stopped = || self.is_stopped();
        let evaluator = Evaluator { ranks, precision: *precision, is_stopped: &is_stopped, is_checked };
        let (loader, most) = self.valid.as_ref().map_or((&self.train, 1), |valid| (valid, usize::MAX));
        let (device, output) = (self.arguments.device(), |batch: &_| Ok(model.outcome(batch)?.output));
        evaluator.evaluate(&self.metrics, loader, most, (M::SHARED, &device), output)
    }

    /// Calls the callbacks, each of which may stop the run.
    fn call(&mut self, event: impl Fn(&mut dyn Callback) -> ControlFlow<String>) {
        for callback in &mut self.callbacks {
            if let ControlFlow::Break(reason) = event(callback.as_mut()) {
                self.interrupter.stop(Some(&reason));
            }
        }
    }

    /// The index of the best evaluation that there is a checkpoint of, and what to say of one that is missing. The model of the
    /// last evaluation stands in for it.
    fn saved(&self, history: &History) -> Result<(Option<usize>, Option<String>)> {
        let (metric, kept) = (&self.arguments.metric_for_best_model, self.folder.checkpoints()?);
        let best = history.best(&self.best_by(), |index| kept.contains(&(index + 1)));
        let best_of_all = history.best(&self.best_by(), |_| true);
        let saved = best.map_or("the last model".into(), |best| format!("that of evaluation {}", best + 1));
        let problem = match best_of_all {
            Some(_) if best == best_of_all => None,
            Some(lost) => Some(format!(
                "the checkpoint of evaluation {}, the best by {metric}, is no longer there; the model that is saved is {saved}",
                lost + 1
            )),
            None => Some(format!(
                "{metric} was finite in no evaluation; the model that is saved is {saved}. To save the best by another metric, \
                 resume the run with another metric_for_best_model"
            )),
        };
        Ok((best, problem))
    }

    /// The same on another device.
    fn on(&self, device: &Device) -> Self {
        Self {
            arguments: self.arguments.clone(),
            model: self.model.clone().fork(&autodiff(&self.arguments, device)),
            tokenizer: self.tokenizer.clone(),
            optimizer: self.optimizer.clone(),
            is_adamw: self.is_adamw,
            train: self.train.on(device),
            valid: self.valid.as_ref().map(|valid| valid.on(device)),
            data: self.data,
            metrics: self.metrics.clone(),
            greater_is_better: self.greater_is_better,
            plan: self.plan,
            folder: self.folder.clone(),
            callbacks: Vec::new(),
            interrupter: self.interrupter.clone(),
        }
    }
}

/// A device with what the backward pass needs.
pub(super) fn autodiff(arguments: &TrainingArguments, device: &Device) -> Device {
    let device = device.clone().autodiff();
    if arguments.gradient_checkpointing { device.gradient_checkpointing() } else { device }
}

impl<M: TrainableModel> Training<M> {
    /// Evaluates the model, takes the folder, and restores the last state if the run is resumed.
    fn begin(mut run: Run<M>) -> Result<Self> {
        let ranks = run.arguments.ranks.clone();
        run.train = run.train.shard(ranks.rank(), ranks.size())?;
        run.model = ranks.broadcast(run.model)?;
        let (finished, State { history, items_read, .. }) = run.folder.resumed.clone();
        // Without dropout, so that the loss before training is the same whenever the run is resumed.
        let plain = run.model.valid();
        // What cannot be made or read is known now.
        let first =
            run.train.epoch(0).next().transpose().map_err(|source| failed("reading a batch", source))?;
        first.map(|batch| plain.outcome(&batch)).transpose()?;
        let initial = run.evaluate(&plain, false)?.ok_or_else(|| stopped(&run.interrupter))?;
        let layers = run.model.bert().encoder.layers.len();
        let schedule = run.arguments.schedule(run.plan, finished, layers)?;
        if ranks.is_first() {
            run.folder.begin(loss_of(&initial), run.plan, run.data)?;
        }
        if finished > 0 {
            run.model = run.folder.model(finished, run.model)?;
            let optimizer = (run.optimizer, run.is_adamw);
            run.optimizer = run.folder.optimizer(finished, optimizer, &run.model)?;
            run.train = run.train.starting_at(finished, items_read);
        }
        Ok(Self {
            schedule,
            rates: 0.0.into(),
            // As evaluations leave out what is not finite.
            history: History { initial: finite(initial), ..history },
            metrics: run.metrics.clone(),
            progress: run.plan.progress(finished * run.plan.steps),
            logged: (0.0, 0.0),
            since: Instant::now(),
            steps: 0,
            time: Duration::ZERO,
            run,
        })
    }

    /// The number of the next part, counted from 0; `None` if the run is over.
    fn next_part(&self) -> Option<usize> {
        let finished = self.history.evaluations.len();
        (finished < self.run.plan.parts && !self.is_patience_over()).then_some(finished)
    }

    /// Whether the run has been without an improvement for as long as its patience.
    fn is_patience_over(&self) -> bool {
        let TrainingArguments { early_stopping_patience, early_stopping_threshold: threshold, .. } =
            &self.run.arguments;
        let last = self.history.last_improvement(&self.run.best_by(), *threshold, |_| true);
        early_stopping_patience
            .zip(last)
            .is_some_and(|(patience, last)| self.history.evaluations.len() - 1 - last >= patience)
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

    /// The mean of the gradients over the batches of all ranks, clipped; `None` if there was no batch.
    fn mean(
        &self,
        GradientSum { mut sum, batches, count }: GradientSum<M>,
    ) -> Result<Option<GradientsParams>> {
        if batches == 0 {
            return Ok(None);
        }
        // What counts for nothing has gradients of 0; class weights may count less than 1.
        let share = if count > 0.0 { count.recip() } else { 1.0 };
        let Run { arguments: TrainingArguments { ranks, max_grad_norm, .. }, model, .. } = &self.run;
        let mut gradients = ranks.mean_of_scaled(model, sum.grads(), share, count)?;
        let share = if ranks.size() == 1 { share } else { 1.0 };
        average_and_clip(model, &mut gradients, Some(share), *max_grad_norm);
        Ok(Some(gradients))
    }

    /// Counts a step, and logs it if it is due.
    fn log(&mut self) {
        self.progress = self.run.plan.progress(self.progress.step + 1);
        (self.steps, self.time) = (self.steps + 1, self.time + self.since.elapsed());
        self.since = Instant::now();
        let progress = self.progress;
        self.run.call(|callback| callback.on_step(&progress));
        if progress.step.is_multiple_of(self.run.arguments.logging_steps) {
            let (sum, count) = std::mem::take(&mut self.logged);
            let steps_per_second = self.steps as f64 / self.time.as_secs_f64();
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
            Some(_) => match self.run.evaluate(&self.run.model.valid(), true)? {
                Some(valid) => finite(valid),
                None => return Ok(()),
            },
            None => BTreeMap::new(),
        };
        let valid = given_by_first(&self.run.arguments.ranks, valid)?;
        let evaluation = Evaluation { step: self.progress.step, train, valid };
        self.history.evaluations.push(evaluation.clone());
        let (progress, number) = (self.progress, self.history.evaluations.len());
        self.run.call(|callback| callback.on_evaluate(&progress, &evaluation));
        // Of several ranks, the first saves for all.
        if self.run.arguments.ranks.is_first() {
            let state = State::new(self.history.clone(), self.run.train.items_before(number));
            let Run { model, optimizer, folder, arguments, .. } = &self.run;
            let path = folder.save(number, model.clone().into_record(), optimizer.to_record(), state)?;
            let best = self.history.best(&self.run.best_by(), |_| true).map(|best| best + 1);
            let first = number.saturating_sub(arguments.save_total_limit) + 1;
            folder.delete(|kept| kept >= first || Some(kept) == best)?;
            self.run.call(|callback| callback.on_save(&progress, &path));
        }
        self.since = Instant::now();
        Ok(())
    }

    /// The best model with its history, saved.
    fn finish(self) -> Result<Trained<M>> {
        let (interrupted, reason) = self.end();
        let Self { mut run, mut history, progress, .. } = self;
        let (ranks, is_over) = (run.arguments.ranks.clone(), interrupted.is_none());
        ranks.same("end of the run", &is_over)?;
        run.callbacks.iter_mut().for_each(|callback| callback.on_end(&progress, &reason));
        run.callbacks.clear(); // the terminal is the caller's again
        history.retain(&run.metrics.names());
        if is_over && run.valid.is_some() {
            let (best, problem) = run.saved(&history)?;
            history.best = best;
            problem.into_iter().for_each(|problem| run.arguments.note(problem));
        }
        let history = given_by_first(&ranks, history)?;
        let mut model = run.model.valid();
        if let Some(best) = history.best.filter(|_| ranks.is_first()) {
            model = run.folder.model(best + 1, model)?;
        }
        // Merges LoRA's adapters, if there are any.
        let model = ranks.broadcast(model)?.materialize();
        if run.valid.is_none() {
            // Nothing has read the weights of the last step yet.
            let last = run.evaluate(&model, false)?;
            check_loss("after the last step", last.map_or(f64::NAN, |last| loss_of(&last)))?;
        }
        let Run { arguments, tokenizer, metrics, folder, .. } = run;
        let pipeline = Pipeline::new(model, tokenizer)?;
        if ranks.is_first() {
            folder.remove_replaced_model()?;
            pipeline.save_pretrained(&arguments.output_dir)?;
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
            Some(patience) if self.history.evaluations.len() < plan.parts => {
                let metric = &arguments.metric_for_best_model;
                format!(
                    "stopped early after {step} of {steps} steps: no better {metric} in {patience} evaluations"
                )
            }
            _ => format!("finished after {step} steps, {epoch:.2} epochs"),
        };
        (None, text)
    }
}

/// The value of rank 0.
fn given_by_first<T: Serialize + DeserializeOwned>(ranks: &Ranks, own: T) -> Result<T> {
    if ranks.size() == 1 {
        return Ok(own);
    }
    let values = ranks.gather(rmp_serde::to_vec(&own).expect("plain data"))?;
    Ok(rmp_serde::from_slice(&values[0]).expect("what rank 0 wrote"))
}

fn failed(what: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Training { what, source: Box::new(source) }
}
