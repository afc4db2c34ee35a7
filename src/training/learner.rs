//! A model for Burn's `Learner`, with averaged and clipped gradients.

use crate::optim::{add_up, assert_max_norm, average_and_clip};
use burn::module::{Module, ModuleDisplay, Param};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams};
use burn::prelude::*;
use burn::tensor::DType;
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use burn_fused::{Precision, autocast};

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
            batches: Param::from_tensor(Tensor::zeros([1], &device)).no_grad(),
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
    /// # Panics
    ///
    /// Where [`Precision::check`](crate::functional::Precision::check) returns an error for a device of the model, with the
    /// same message.
    pub fn with_precision(self, precision: Precision) -> Self {
        let checked: burn_fused::Result<()> =
            self.model.devices().iter().try_for_each(|device| precision.check(device));
        checked.unwrap_or_else(|error| panic!("{error}"));
        Self { precision, ..self }
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
        let mut output = autocast(self.precision, || TrainStep::step(&self.model, batch));
        output.grads.register(self.batches.id, self.one());
        output
    }

    fn optimize(
        self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut gradients: GradientsParams,
    ) -> Self {
        let batches = gradients.remove::<1>(self.batches.id).unwrap_or_else(|| self.one());
        average_and_clip(&self.model, &mut [&mut gradients], batches, self.max_grad_norm);
        optimizer.step(rate, self, gradients)
    }

    fn optimize_multi(
        self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        mut gradients: MultiGradientsParams,
    ) -> Self {
        let batches =
            gradients.remove::<1>(self.batches.id).map_or_else(|| self.one(), |(batches, _)| batches);
        let mut gradients = add_up(&self.model, gradients);
        let mut sets: Vec<_> = gradients.grads.iter_mut().map(|(set, _)| set).collect();
        average_and_clip(&self.model, &mut sets, batches, self.max_grad_norm);
        optimizer.step_multi(rate, self, gradients)
    }
}

impl<M: Module + InferenceStep> InferenceStep for Training<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, batch: M::Input) -> M::Output {
        autocast(self.precision, || InferenceStep::step(&self.model, batch))
    }
}
