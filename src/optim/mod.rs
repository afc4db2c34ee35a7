//! AdamW, gradient clipping by the global norm, and the learning-rate schedule of BERT.
//!
//! | PyTorch, transformers | here |
//! |---|---|
//! | `torch.optim.AdamW` | [`AdamWConfig`]; [`adamw()`] does not decay biases and LayerNorm |
//! | `torch.nn.utils.clip_grad_norm_` | [`clip_by_global_norm`] |
//! | `(loss / n).backward()` of n batches | the same, into Burn's `GradientsAccumulator` |
//! | `get_linear_schedule_with_warmup` and the like | [`LrSchedule`]; [`layer_wise_decay`] and [`ScaledLr`] for groups |
//!
//! They work with Burn's `ModuleOptimizer`, parameter groups and records.

mod adamw;
mod clip;
mod schedule;

pub use adamw::{AdamW, AdamWConfig, AdamWState, adamw};
pub use clip::clip_by_global_norm;
#[cfg(feature = "train")]
pub(crate) use clip::{add_up, average_and_clip, check_max_norm};
pub use schedule::{LrSchedule, ScaledLr, layer_wise_decay};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::prelude::*;
use std::collections::HashSet;

/// The number of values that an optimizer changes: those of all parameters that are not frozen. A parameter that several
/// fields share counts once, and lazy ones are initialised.
///
/// ```
/// use burn::module::Module;
/// use burn::nn::LinearConfig;
/// use burn::prelude::*;
/// use burn_bert::optim::num_trainable_params;
///
/// let linear = LinearConfig::new(10, 6).init(&Device::default().autodiff());
/// assert_eq!(num_trainable_params(&linear), 66);
/// assert_eq!(num_trainable_params(&linear.freeze()), 0);
/// ```
pub fn num_trainable_params<M: Module>(module: &M) -> usize {
    #[derive(Default)]
    struct Count {
        values: usize,
        seen: HashSet<ParamId>,
    }
    impl ModuleVisitor for Count {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // Frozen parameters are left out: the optimizer has no state for them.
            if param.is_require_grad() && self.seen.insert(param.id) {
                self.values += param.shape().num_elements();
            }
        }
    }
    let mut count = Count::default();
    module.visit(&mut count);
    count.values
}
