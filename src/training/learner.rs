use super::heads::count_id;
use super::outputs::on_ranks;
use crate::distributed::Ranks;
use crate::error::{Error, Result};
use crate::model::PretrainedModel;
use crate::optim::{added_up, average_and_clip, check_max_norm};
use burn::module::{Module, ModuleDisplay, Param};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::prelude::*;
use burn::tensor::DType;
use burn::train::metric::{Adaptor, LossInput};
use burn::train::train::WorkerFailure;
use burn::train::{InferenceStep, Interrupter, TrainOutput, TrainStep, TrainingError};
use burn_fused::{Precision, autocast};
use std::fmt;

/// A model that a [`Trainer`](super::Trainer) trains: every model of this crate, and every module that implements
/// [`Stored`](crate::model::Stored) and Burn's `TrainStep` and `InferenceStep` for the same batches and outputs.
pub trait TrainableModel:
    PretrainedModel
    + ModuleDisplay
    + TrainStep<Output: Adaptor<LossInput>>
    + InferenceStep<Input = <Self as TrainStep>::Input, Output = <Self as TrainStep>::Output>
    + 'static
{
}

impl<M> TrainableModel for M where
    M: PretrainedModel
        + ModuleDisplay
        + TrainStep<Output: Adaptor<LossInput>>
        + InferenceStep<Input = <Self as TrainStep>::Input, Output = <Self as TrainStep>::Output>
        + 'static
{
}

/// A model for Burn's `Learner`, which takes the mean of the gradients of accumulated batches and clips it by the norm of all
/// together ([`clip_by_global_norm`](crate::optim::clip_by_global_norm)), as is usual in PyTorch.
///
/// Burn's trainer takes their sum and clips each parameter separately. The batches of a step are counted, so the mean is right
/// for the last step of an epoch, which may have fewer, and for several devices.
///
/// ```no_run
/// use burn::train::{Learner, SupervisedTraining};
/// use burn_bert::training::Training;
/// # use burn::optim::{ModuleOptimizer, lr_scheduler::module_lr_scheduler::ModuleLrScheduler};
/// # use burn_bert::model::BertForMaskedLm;
/// # type Loader = std::sync::Arc<dyn burn::data::dataloader::DataLoader<burn_bert::model::MaskedLmBatch>>;
/// # fn fine_tune(train: Loader, valid: Loader, parts: (BertForMaskedLm, ModuleOptimizer, ModuleLrScheduler)) {
/// # let (model, optimizer, schedule) = parts;
///
/// let training = SupervisedTraining::new("artifacts", train, valid).grads_accumulation(4).num_epochs(3);
/// let model = training.launch(Learner::new(Training::new(model), optimizer, schedule)).model.model;
/// # }
/// ```
#[derive(Module, Debug)]
pub struct Training<M: Module> {
    /// The model that is trained.
    pub model: M,
    max_grad_norm: f64,
    #[module(skip)]
    precision: Precision,
    /// No weight: its gradient is the sum of the batches' counts, which their added gradients are divided by.
    batches: Param<Tensor<1>>,
    #[module(skip)]
    ranks: Option<Exchange>,
}

#[derive(Clone)]
struct Exchange {
    ranks: Ranks,
    /// Stopped on this rank.
    asked: Interrupter,
    /// Stopped on all ranks after the same step.
    agreed: Interrupter,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ranks.fmt(f)
    }
}

impl Exchange {
    /// The mean over all ranks of `gradients`, the sum over what this one counted; `None` if the ranks have parted.
    fn mean<M: Module>(&self, model: &M, gradients: GradientsParams, count: f64) -> Option<GradientsParams> {
        if self.asked.should_stop() {
            self.ranks.stop();
        }
        // What counts for nothing has gradients of 0.
        let share = if count > 0.0 { count.recip() } else { 1.0 };
        let mean = self.ranks.mean_of_scaled(model, gradients, share, count);
        if self.ranks.is_stopped() {
            self.agreed.stop(self.asked.get_message().as_deref().or(Some("another rank was stopped")));
        }
        mean.inspect_err(|error| self.fail(error)).ok()
    }

    fn fail(&self, error: &Error) {
        let failure = WorkerFailure { device_id: self.ranks.rank(), message: error.to_string() };
        self.agreed.fail(TrainingError::Workers(vec![failure]));
    }
}

impl<M: Module> Training<M> {
    /// Gradients clipped to a norm of 1, as BERT was trained.
    pub fn new(model: M) -> Self {
        let device = model.devices().into_iter().next().unwrap_or_default();
        Self {
            model,
            max_grad_norm: 1.0,
            precision: Precision::F32,
            batches: Param::initialized(count_id(), Tensor::zeros([1], &device)).no_grad(),
            ranks: None,
        }
    }

    /// Trains on all ranks of a data-parallel run: gives the model the parameters of rank 0, and each optimizer step the
    /// mean of the gradients of all ranks, where batches weigh as much as their losses count; a custom model counts batches.
    ///
    /// Each rank's loader is a [shard](crate::data::EpochLoader::shard), and the loader of the validation is
    /// [shared](crate::data::EpochLoader::share); outputs of a custom model are not, which each rank computes for all batches.
    /// `interrupter` stops this rank, as Ctrl-C does; give the trainer [`interrupter`](Self::interrupter), which stops all ranks
    /// after the same step.
    ///
    /// # Errors
    ///
    /// [`Error::Rank`](crate::Error::Rank) if the ranks' models differ in shapes or dtypes, or a rank has left; in training it ends
    /// the trainer on every rank, and is in the `error` of its result.
    pub fn with_ranks(self, ranks: &Ranks, interrupter: &Interrupter) -> Result<Self> {
        let model = ranks.broadcast(self.model)?;
        // One rank stops at once; among several it would leave the others waiting.
        let agreed = if ranks.size() == 1 { interrupter.clone() } else { Interrupter::new() };
        let ranks = Some(Exchange { ranks: ranks.clone(), asked: interrupter.clone(), agreed });
        Ok(Self { model, ranks, ..self })
    }

    /// Whether this rank, or one of those that it met, was asked to stop; the error if the ranks have parted.
    pub(super) fn is_stopped(&self) -> Result<bool> {
        let Some(Exchange { ranks, asked, .. }) = &self.ranks else { return Ok(false) };
        ranks.check()?;
        if ranks.size() == 1 {
            return Ok(asked.should_stop());
        }
        if asked.should_stop() {
            ranks.stop(); // known to all once they meet again
        }
        Ok(ranks.is_stopped())
    }

    /// The interrupter for the trainer, that of [`with_ranks`](Self::with_ranks).
    pub fn interrupter(&self) -> Interrupter {
        self.ranks.as_ref().map_or_else(Interrupter::new, |exchange| exchange.agreed.clone())
    }

    /// Sets the largest norm of all gradients together; `f64::INFINITY` clips nothing. Returns [`Error::Data`] if it is not
    /// above 0.
    pub fn with_max_grad_norm(self, max_grad_norm: f64) -> Result<Self> {
        check_max_norm(max_grad_norm)?;
        Ok(Self { max_grad_norm, ..self })
    }

    /// Computes the model's matmuls in another precision, see [`autocast`](crate::functional::autocast). Errors are those of
    /// [`Precision::check`](crate::functional::Precision::check) for each device of the model.
    pub fn with_precision(self, precision: Precision) -> Result<Self> {
        self.model.devices().iter().try_for_each(|device| precision.check(device))?;
        Ok(Self { precision, ..self })
    }

    /// What one batch adds to the gradient of `batches`.
    fn one(&self) -> Tensor<1> {
        Tensor::ones([1], (&self.device(), DType::F32))
    }

    fn device(&self) -> Device {
        self.batches.val().device().inner()
    }

    /// Runs a step of the model, on a device if it validates.
    fn run<T>(&self, device: Option<Device>, step: impl FnOnce() -> T) -> T {
        let ranks = self.ranks.as_ref().map(|exchange| (exchange.ranks.clone(), device));
        on_ranks(ranks, || autocast(self.precision, step))
    }
}

impl<M: Module + ModuleDisplay + TrainStep> TrainStep for Training<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, batch: M::Input) -> TrainOutput<M::Output> {
        let mut output = self.run(None, || TrainStep::step(&self.model, batch));
        // Batches are counted without ranks, and of a model of another crate.
        if output.grads.get::<1>(count_id()).is_none() {
            output.grads.register(count_id(), self.one());
        }
        output
    }

    fn optimize(
        self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut gradients: GradientsParams,
    ) -> Self {
        let count = gradients.remove::<1>(count_id()).unwrap_or_else(|| self.one());
        // Read back only where ranks exchange it on the host.
        let (mut gradients, divisor) = match &self.ranks {
            None => (gradients, count), // of batches
            // 1 in place of 0, as what counts nothing has gradients of 0; class weights may count less than 1.
            Some(exchange) if exchange.ranks.size() == 1 => {
                let is_zero = count.clone().equal_elem(0.0);
                (gradients, count.mask_fill(is_zero, 1.0))
            }
            Some(exchange) => match exchange.mean(&self.model, gradients, count.into_scalar::<f64>()) {
                Some(mean) => (mean, self.one()),
                None => return self,
            },
        };
        average_and_clip(&self.model, &mut gradients, Some(divisor), self.max_grad_norm);
        optimizer.step(rate, self, gradients)
    }

    fn optimize_multi(
        self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        gradients: MultiGradientsParams,
    ) -> Self {
        let is_alone = self.ranks.as_ref().is_none_or(|exchange| exchange.ranks.size() == 1);
        assert!(is_alone, "a rank has one device; start a rank for each device");
        let gradients = added_up(&self, gradients);
        self.optimize(optimizer, rate, gradients)
    }
}

impl<M: Module + InferenceStep> InferenceStep for Training<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, batch: M::Input) -> M::Output {
        let output = self.run(Some(self.device()), || InferenceStep::step(&self.model, batch));
        if let Some(exchange) = &self.ranks
            && let Err(error) = exchange.ranks.check()
        {
            exchange.fail(&error);
        }
        output
    }
}
