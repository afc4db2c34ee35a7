//! The parameters of a module: whether they fit each other, and their dtype.

use super::layer_norm::LayerNorm;
use super::token_embedding::TokenEmbedding;
use crate::error::{Error, Result};
use burn::module::{Module, ModuleMapper, Param};
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use burn_fused::computed_in;
use std::fmt::Display;

/// What all parameters of a module must agree with: the device and dtype of one parameter or input.
pub(crate) struct ParameterCheck {
    reference: &'static str,
    device: Device,
    dtype: DType,
}

impl ParameterCheck {
    /// Against the word embeddings, which are not initialised.
    pub(crate) fn beside(words: &TokenEmbedding) -> Self {
        let weight = &words.weight;
        Self { reference: "word_embeddings.weight", device: weight.lazy_device(), dtype: dtype(weight) }
    }

    /// Against an input, and its name in messages.
    pub(crate) fn against_input<const D: usize>(reference: &'static str, input: &Tensor<D>) -> Self {
        Self { reference, device: input.device(), dtype: input.dtype() }
    }

    /// Whether vectors of the caller can be computed with.
    pub(crate) fn input<const D: usize>(&self, input: &'static str, values: &Tensor<D>) -> Result<()> {
        if values.device() != self.device {
            return Err(Error::device_mismatch(input, values.device(), self.device.clone()));
        }
        if values.dtype() != self.dtype {
            return Err(Error::DTypeMismatch { input, found: values.dtype(), expected: self.dtype });
        }
        Ok(())
    }

    /// Whether a parameter has this shape, and device and dtype of the others.
    pub(crate) fn param<const D: usize>(
        &self,
        name: impl Display,
        param: &Param<Tensor<D>>,
        shape: [usize; D],
    ) -> Result<()> {
        self.param_of(name, param, shape, self.dtype)
    }

    /// As [`param`](Self::param), of a linear layer with as many inputs and outputs.
    pub(crate) fn linear(&self, name: impl Display, linear: &Linear, shape: [usize; 2]) -> Result<()> {
        self.param(format_args!("{name}.weight"), &linear.weight, shape)?;
        let bias = linear.bias.as_ref();
        bias.map_or(Ok(()), |bias| self.param(format_args!("{name}.bias"), bias, [shape[1]]))
    }

    /// As [`param`](Self::param), of γ and β over vectors of length `width`: in the dtype of the others, or in that of
    /// the statistics.
    pub(crate) fn norm(&self, name: impl Display, norm: &LayerNorm, width: usize) -> Result<()> {
        let wide = computed_in(self.dtype);
        for (part, param) in [("gamma", Some(&norm.gamma)), ("beta", norm.beta.as_ref())] {
            let Some(param) = param else { continue };
            // γ and β of a 16-bit model may stay in f32, as LayerNorm computes in it.
            let expected = if dtype(param) == wide { wide } else { self.dtype };
            self.param_of(format_args!("{name}.{part}"), param, [width], expected)?;
        }
        Ok(())
    }

    fn param_of<const D: usize>(
        &self,
        name: impl Display,
        param: &Param<Tensor<D>>,
        shape: [usize; D],
        expected: DType,
    ) -> Result<()> {
        let invalid = |problem| Err(Error::Parameter { name: name.to_string(), problem });
        let found = param.lazy_shape().to_vec();
        if found != shape {
            return invalid(format!("has shape {found:?}, but expected {shape:?}"));
        }
        // Lazy, so that a check does not initialise tables that a load would replace.
        let (found, reference) = (param.lazy_device(), self.reference);
        if found != self.device {
            let [found, expected] = [&found, &self.device].map(|device| device.clone().inner());
            return invalid(format!(
                "is on {found:?}, but {reference} is on {expected:?}; move the whole model with to_device"
            ));
        }
        let found = dtype(param);
        if found != expected && !is_quantized(param) {
            return invalid(format!(
                "is {found:?}, but {reference} is {:?}; cast the whole model with cast_module",
                self.dtype
            ));
        }
        Ok(())
    }
}

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
    if !param.is_initialized() || is_quantized(param) {
        return param.lazy_device().settings().float_dtype.into();
    }
    param.base().dtype()
}
