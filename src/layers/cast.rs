//! Casting a whole module to another float dtype.

use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::FloatDType;

/// Casts every float parameter of `module` to `dtype`, as `module.to(dtype)` does in PyTorch.
///
/// Parameters keep their ids, their device and whether they are trained. Lazy parameters are initialised,
/// quantised ones stay as they are, and one that several fields share becomes one leaf for each.
///
/// # Panics
///
/// If a parameter's device does not compute in `dtype` ([`Device::supports_dtype`]), as WebGPU does not in bf16.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::prelude::*;
/// use burn::tensor::{DType, FloatDType};
/// use burn_bert::cast_module;
///
/// let linear = LinearConfig::new(10, 4).init(&Device::default());
/// let linear = cast_module(linear, FloatDType::F64);
/// assert_eq!(linear.weight.val().dtype(), DType::F64);
/// ```
pub fn cast_module<M: Module>(module: M, dtype: FloatDType) -> M {
    module.map(&mut Cast { dtype })
}

struct Cast {
    dtype: FloatDType,
}

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let dtype = self.dtype;
        param.map(|tensor| {
            let require_grad = tensor.is_require_grad();
            if tensor.dtype().is_float() {
                let device = tensor.device();
                assert!(
                    device.supports_dtype(dtype),
                    "{device:?} does not compute in {dtype:?}: keep f32 there"
                );
                tensor.cast(dtype).detach().set_require_grad(require_grad)
            } else {
                tensor // quantised
            }
        })
    }
}
