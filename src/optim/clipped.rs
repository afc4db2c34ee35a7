//! AdamW that clips gradients by their global norm on their way into the step.

use super::adamw::{AdamWConfig, SharedFactor, without_decay};
use super::clip::{Factor, SumOfSquares, assert_max_norm};
use burn::module::{Module, ParamGroup};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer, OptimizerRecord};
use burn::prelude::*;

/// [`adamw`](super::adamw()) and [`clip_by_global_norm`](crate::optim::clip_by_global_norm) in one pass.
///
/// A step equals clipping followed by AdamW: the gradients are multiplied by the clip factor as they are read, and never
/// written. The factor is not read back from a device.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::prelude::*;
/// use burn_bert::optim::{AdamWConfig, ClippedAdamW};
///
/// let device = Device::default().autodiff();
/// let model = LinearConfig::new(3, 4).init(&device);
/// let mut optimizer = ClippedAdamW::new(&AdamWConfig::new(), 1.0);
///
/// let loss = model.forward(Tensor::<2>::ones([1, 3], &device)).mul_scalar(5.0).sum();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// let (model, norm) = optimizer.step(1e-3, model, gradients);
/// assert_eq!(norm.unwrap().into_scalar::<f32>(), 20.0); // before clipping: sixteen gradients of 5
/// # let _ = model;
/// ```
///
/// Burn's `Learner` takes a `ModuleOptimizer`: there use [`adamw`](super::adamw()) and clip in `TrainStep::optimize`.
pub struct ClippedAdamW {
    optimizer: ModuleOptimizer,
    factor: SharedFactor,
    max_norm: f64,
}

impl ClippedAdamW {
    /// AdamW of all parameters, without decay on biases and LayerNorm, whose gradients are clipped to `max_norm`.
    ///
    /// # Panics
    ///
    /// Where [`AdamWConfig::try_build`] returns an error, with the same message, and if `max_norm` is not above 0.
    pub fn new(config: &AdamWConfig, max_norm: f64) -> Self {
        assert_max_norm(max_norm);
        let factor = SharedFactor::default();
        let optimizer = ModuleOptimizer::from(config.build().with_factor(&factor));
        let undecayed = config.clone().with_weight_decay(0.0);
        Self { optimizer, factor, max_norm }.with_group(without_decay(), &undecayed)
    }

    /// Gives a group of parameters other settings. Where several groups match, the last one added applies.
    ///
    /// As in Burn, this forgets the state of those parameters.
    ///
    /// # Panics
    ///
    /// Where [`AdamWConfig::try_build`] returns an error, with the same message.
    pub fn with_group(self, group: ParamGroup, config: &AdamWConfig) -> Self {
        let optimizer = config.build().with_factor(&self.factor);
        Self { optimizer: self.optimizer.with_group(group, optimizer, None), ..self }
    }

    /// Clips the gradients and steps every parameter that has one.
    ///
    /// Returns the model and the norm of all gradients before clipping, `[1]`; `None` if no parameter has a gradient.
    /// The learning rate is a number, or the output of one of Burn's schedulers, which may have its own groups.
    pub fn step<M: Module>(
        &mut self,
        learning_rate: impl Into<ModuleLearningRate>,
        model: M,
        mut gradients: GradientsParams,
    ) -> (M, Option<Tensor<1>>) {
        let squares = SumOfSquares::of(&model, &mut [&mut gradients]);
        let (norm, factor) = squares.clip(Factor::default(), self.max_norm);
        self.factor.set(factor);
        (self.optimizer.step(learning_rate, model, gradients), norm)
    }

    /// The state of all parameters, to be saved. It is the same as that of Burn's `AdamW`.
    pub fn to_record(&self) -> OptimizerRecord {
        self.optimizer.to_record()
    }

    /// This optimiser with a state from [`to_record`](Self::to_record), or from Burn's `AdamW`.
    pub fn load_record(self, record: OptimizerRecord) -> Self {
        Self { optimizer: self.optimizer.load_record(record), ..self }
    }
}
