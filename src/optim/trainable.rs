//! How much of a model is trained.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::prelude::*;
use std::collections::HashSet;

/// The number of values that an optimiser changes: those of all parameters that are not frozen.
///
/// A parameter that several fields share counts once. [`Module::num_params`] counts the frozen ones too. Lazy parameters are
/// initialised.
///
/// ```
/// use burn::module::{Lora, Module, ParamGroup};
/// use burn::nn::LinearConfig;
/// use burn::prelude::*;
/// use burn_bert::optim::num_trainable_params;
///
/// let linear = LinearConfig::new(10, 6).init(&Device::default().autodiff());
/// assert_eq!(num_trainable_params(&linear), 66);
/// let weight = ParamGroup::from_predicate("weight");
/// let adapted = linear.apply_lora(Lora::new(2, 4.0).set_param_group(weight));
/// assert_eq!(num_trainable_params(&adapted), 2 * (10 + 6)); // the bias is frozen
/// ```
pub fn num_trainable_params<M: Module>(module: &M) -> usize {
    #[derive(Default)]
    struct Count {
        values: usize,
        seen: HashSet<ParamId>,
    }
    impl ModuleVisitor for Count {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.is_require_grad() && self.seen.insert(param.id) {
                self.values += param.shape().num_elements();
            }
        }
    }
    let mut count = Count::default();
    module.visit(&mut count);
    count.values
}
