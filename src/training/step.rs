//! A model for Burn's `Learner`, with averaged and clipped gradients.

use crate::error::Result;
use crate::operator::functional::{Precision, autocast};
use crate::optim::{LossScale, SumOfSquares, add_up, assert_max_norm, average_and_clip};
use burn::module::{Module, ModuleDisplay, Param};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::prelude::*;
use burn::tensor::DType;
use burn::train::{InferenceStep, TrainOutput, TrainStep};

/// A model for Burn's `Learner`, with the gradients of accumulated batches averaged and clipped.
///
/// Burn's trainer sums the gradients of accumulated batches and clips each parameter separately. This takes the mean
/// over the batches, as is usual in PyTorch, and clips by the norm of all gradients together
/// ([`clip_by_global_norm`](crate::optim::clip_by_global_norm)). The batches of a step are counted, so the mean is right for
/// the last step of an epoch, which may have fewer, and for several devices.
///
/// ```no_run
/// use burn::prelude::*;
/// use burn::train::metric::{AccuracyMetric, LossMetric, PerplexityMetric};
/// use burn::train::{Learner, SupervisedTraining};
/// use burn_bert::model::{BertForMaskedLm, MaskedLmBatch, PretrainedModel};
/// use burn_bert::optim::{AdamWConfig, adamw, linear_warmup_decay};
/// use burn_bert::training::Training;
/// # use burn::data::dataloader::DataLoader;
/// # use std::sync::Arc;
/// # type Loader = Arc<dyn DataLoader<MaskedLmBatch>>;
/// # fn fine_tune(train: Loader, valid: Loader) -> Result<(), burn_bert::Error> {
///
/// let device = Device::default().autodiff();
/// let (model, report) = BertForMaskedLm::from_pretrained("bert-base-uncased", &device)?;
/// eprint!("{report}");
/// let optimizer = adamw(&AdamWConfig::new());
/// let schedule = linear_warmup_decay(5e-5, 100, 1000)?;
/// let result = SupervisedTraining::new("artifacts", train, valid)
///     .metrics((LossMetric::new(), AccuracyMetric::new(), PerplexityMetric::new()))
///     .grads_accumulation(4)
///     .with_default_checkpointers()
///     .num_epochs(3)
///     .launch(Learner::new(Training::new(model), optimizer, schedule));
/// result.model.model.save_pretrained("fine-tuned")?;
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct Training<M: Module> {
    /// The model that is trained.
    pub model: M,
    max_grad_norm: f64,
    #[module(skip)]
    precision: Precision,
    /// Of f16: a [`LossScale`], no weight either.
    loss_scale: Option<Param<Tensor<1>>>,
    /// No weight: each batch gives it a gradient of 1, so that its gradient is the number of batches added up.
    batches: Param<Tensor<1>>,
}

impl<M: Module> Training<M> {
    /// Gradients clipped to a norm of 1, as BERT was trained.
    pub fn new(model: M) -> Self {
        let device = model.devices().into_iter().next().unwrap_or_default();
        Self {
            model,
            max_grad_norm: 1.0,
            precision: Precision::F32,
            loss_scale: None,
            batches: Param::from_tensor(Tensor::zeros([1], &device)),
        }
    }

    /// Sets the largest norm of all gradients together; `f64::INFINITY` clips nothing.
    ///
    /// # Panics
    ///
    /// If it is not above 0.
    pub fn with_max_grad_norm(self, max_grad_norm: f64) -> Self {
        assert_max_norm(max_grad_norm);
        Self { max_grad_norm, ..self }
    }

    /// Computes the model's products in another precision, see [`autocast`](crate::functional::autocast), in training and
    /// in validation.
    ///
    /// In f16 a [`LossScale`](crate::optim::LossScale) is part of the checkpoint; a step whose gradients overflow is skipped:
    /// parameters and moments stay as they are, and the schedule goes on.
    ///
    /// # Panics
    ///
    /// Where [`Precision::check`](crate::functional::Precision::check) returns an error for a device of the model, with the
    /// same message.
    pub fn with_precision(self, precision: Precision) -> Self {
        let checked: Result<()> = self.model.devices().iter().try_for_each(|device| precision.check(device));
        checked.unwrap_or_else(|error| panic!("{error}"));
        let device = self.batches.lazy_device();
        let loss_scale = (precision == Precision::F16)
            .then(|| Param::from_tensor(Tensor::from_data(LossScale::new().state(), (&device, DType::F32))));
        Self { precision, loss_scale, ..self }
    }

    /// The scale of gradients in f16.
    fn loss_scale(&self) -> Option<LossScale> {
        let state = self.loss_scale.as_ref()?.val().into_data();
        Some(LossScale::from_state(state.iter::<f64>()))
    }

    /// Whether a step is to be taken: unless gradients in f16 overflowed.
    fn accepts(&mut self, sets: &mut [&mut GradientsParams]) -> bool {
        let Some(mut scale) = self.loss_scale() else { return true };
        let accepted = scale.take_in(SumOfSquares::of(&self.model, sets));
        self.loss_scale = self.loss_scale.take().map(|param| {
            param.map(|old| {
                let options = (&old.device(), old.dtype());
                let is_trained = old.is_require_grad();
                Tensor::from_data(scale.state(), options).set_require_grad(is_trained)
            })
        });
        accepted
    }

    /// What one batch adds to the gradient of `batches`.
    fn one(&self) -> Tensor<1> {
        Tensor::ones([1], (&self.batches.val().device().inner(), DType::F32))
    }
}

impl<M: Module + ModuleDisplay + TrainStep> TrainStep for Training<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, batch: M::Input) -> TrainOutput<M::Output> {
        let step = || TrainStep::step(&self.model, batch);
        let mut output = match self.loss_scale() {
            Some(scale) => scale.autocast(step),
            None => autocast(self.precision, step),
        };
        output.grads.register(self.batches.id, self.one());
        output
    }

    fn optimize(
        mut self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut gradients: GradientsParams,
    ) -> Self {
        let batches = gradients.remove::<1>(self.batches.id).unwrap_or_else(|| self.one());
        if self.accepts(&mut [&mut gradients]) {
            average_and_clip(&self.model, &mut [&mut gradients], batches, self.max_grad_norm);
            return optimizer.step(rate, self, gradients);
        }
        self
    }

    fn optimize_multi(
        mut self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut gradients: MultiGradientsParams,
    ) -> Self {
        let batches =
            gradients.remove::<1>(self.batches.id).map_or_else(|| self.one(), |(batches, _)| batches);
        let mut gradients = add_up(&self.model, gradients);
        let mut sets: Vec<_> = gradients.grads.iter_mut().map(|(set, _)| set).collect();
        if self.accepts(&mut sets) {
            average_and_clip(&self.model, &mut sets, batches, self.max_grad_norm);
            return optimizer.step_multi(rate, self, gradients);
        }
        self
    }
}

impl<M: Module + InferenceStep> InferenceStep for Training<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, batch: M::Input) -> M::Output {
        autocast(self.precision, || InferenceStep::step(&self.model, batch))
    }
}

/// `TrainStep` and `InferenceStep` of a model, from its method `outcome`, which gives the loss of a batch and what metrics
/// are computed from.
macro_rules! trained {
    ($(#[$doc:meta])* $model:ty: $batch:ty => $output:ty) => {
        /// One batch forward and backward, for Burn's `Learner`.
        $(#[$doc])*
        impl burn::train::TrainStep for $model {
            type Input = $batch;
            type Output = $output;

            fn step(&self, batch: $batch) -> burn::train::TrainOutput<$output> {
                let (loss, output) = self.outcome(&batch);
                burn::train::TrainOutput::new(self, loss.backward(), output)
            }
        }

        /// The loss and the scores of one batch, without dropout on the device that the validation loader is on.
        impl burn::train::InferenceStep for $model {
            type Input = $batch;
            type Output = $output;

            fn step(&self, batch: $batch) -> $output {
                self.outcome(&batch).1
            }
        }
    };
}
pub(super) use trained;
