//! AdamW, gradient clipping by the global norm, and the learning-rate schedule of BERT.
//!
//! They work with Burn's `ModuleOptimizer`, parameter groups and records:
//!
//! ```
//! use burn::module::ParamGroup;
//! use burn::nn::LinearConfig;
//! use burn::optim::GradientsParams;
//! use burn::prelude::*;
//! use burn_bert::optim::{
//!     AdamWConfig, LrSchedule, ScaledLr, adamw, clip_by_global_norm, num_trainable_params, step,
//! };
//!
//! let device = Device::default().autodiff();
//! let model = LinearConfig::new(3, 4).init(&device);
//! assert_eq!(num_trainable_params(&model), 16);
//! let mut optimizer = adamw(&AdamWConfig::new().with_weight_decay(0.1))?;
//! let schedule = LrSchedule::Linear.with_warmup(2e-5, 100, 1000)?;
//! // A new classifier learns ten times as fast as the model below it.
//! let fast = ScaledLr::new(&schedule, 10.0)?;
//! let mut schedule = schedule.with_group(ParamGroup::from_predicate("classifier."), fast);
//!
//! let loss = model.forward(Tensor::<2>::ones([1, 3], &device)).mul_scalar(5.0).sum();
//! let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
//! let norm = clip_by_global_norm(&model, &mut gradients, 1.0)?.unwrap();
//! assert_eq!(norm.into_scalar::<f32>(), 20.0); // sixteen gradients of 5, each 0.25 now
//! let model = step(&mut optimizer, schedule.step(), model, gradients);
//! # Ok::<(), burn_bert::Error>(())
//! ```

mod adamw;
mod clip;
mod schedule;

pub use adamw::{AdamW, AdamWConfig, AdamWState, adamw};
#[cfg(feature = "train")]
pub(crate) use adamw::{MEAN, SQUARE, TIME};
pub use clip::clip_by_global_norm;
#[cfg(feature = "train")]
pub(crate) use clip::scale_and_clip;
pub use schedule::{LrSchedule, ScaledLr, layer_wise_decay};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn_fused::fuse_adam;
use std::collections::HashMap;

/// `optimizer.step(rates, model, gradients)`, whose steps of [`AdamW`] take few launches on CubeCL devices: one for 48 parameters,
/// instead of one for each. Values and optimizer state are the same, bit for bit. [The module](self) has an example.
///
/// Groups may have other optimizers, which step as ever. A module whose own `Module::map` computes with new values of its
/// parameters needs `optimizer.step`: [`fuse_adam`] says why.
pub fn step<M: Module>(
    optimizer: &mut ModuleOptimizer,
    rates: impl Into<ModuleLearningRate>,
    model: M,
    gradients: GradientsParams,
) -> M {
    fuse_adam(|| optimizer.step(rates, model, gradients))
}

/// The number of values that an optimizer changes: those of all parameters that are not frozen. A parameter that several
/// fields share counts once, and lazy ones are initialised. [The module](self) has an example.
pub fn num_trainable_params<M: Module>(module: &M) -> usize {
    #[derive(Default)]
    struct Sizes(HashMap<ParamId, usize>);
    impl ModuleVisitor for Sizes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // Frozen parameters are left out: the optimizer has no state for them.
            if param.is_require_grad() {
                self.0.insert(param.id, param.shape().num_elements());
            }
        }
    }
    let mut sizes = Sizes::default();
    module.visit(&mut sizes);
    sizes.0.into_values().sum()
}
