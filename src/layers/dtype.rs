//! The dtype of parameters.

use crate::error::{Error, Result};
use burn::module::{Module, ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};

/// Whether a parameter holds quantised values. Does not initialise it.
pub(crate) fn is_quantized<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.is_initialized() && matches!(param.base().dtype(), DType::QFloat(_))
}

/// Casts every float parameter of `module` to `dtype`, as `module.to(dtype)` does in PyTorch.
///
/// Parameters keep their ids, their device and whether they are trained. Lazy ones are initialised, quantised ones stay,
/// and one that several fields share becomes one leaf for each.
///
/// Returns [`Error::Data`] if a parameter's device does not compute in `dtype` ([`Device::supports_dtype`]), as WebGPU does
/// not in bf16.
///
/// ```
/// use burn::prelude::*;
/// use burn::tensor::{DType, FloatDType};
///
/// let linear = burn::nn::LinearConfig::new(10, 4).init(&Device::default());
/// let linear = burn_bert::cast_module(linear, FloatDType::F64)?;
/// assert_eq!(linear.weight.val().dtype(), DType::F64);
/// # Ok::<(), burn_bert::Error>(())
/// ```
pub fn cast_module<M: Module>(module: M, dtype: FloatDType) -> Result<M> {
    let mut cast = Cast { dtype, refused_by: None };
    let module = module.map(&mut cast);
    match cast.refused_by {
        Some(device) => {
            Err(Error::data(format!("{device:?}"), format!("does not compute in {dtype:?}: keep f32 there")))
        }
        None => Ok(module),
    }
}

struct Cast {
    dtype: FloatDType,
    refused_by: Option<Device>,
}

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let dtype = self.dtype;
        param.map(|tensor| {
            if !tensor.dtype().is_float() {
                return tensor; // quantised
            }
            let (device, require_grad) = (tensor.device(), tensor.is_require_grad());
            // A mapper cannot fail: the caller reports it.
            if !device.supports_dtype(dtype) {
                self.refused_by = Some(device);
                return tensor;
            }
            // A parameter is a leaf of autodiff; the cast would make it a result.
            tensor.cast(dtype).detach().set_require_grad(require_grad)
        })
    }
}

/// The dtype that a parameter is read in.
pub(crate) fn dtype<const D: usize>(param: &Param<Tensor<D>>) -> DType {
    // What is not initialised will be drawn, and what is quantised dequantises, to the device's own dtype.
    if !param.is_initialized() || is_quantized(param) {
        return param.lazy_device().settings().float_dtype.into();
    }
    param.base().dtype()
}
