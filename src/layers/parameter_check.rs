use super::dtype::{dtype, is_quantized};
use super::layer_norm::LayerNorm;
use super::token_embedding::TokenEmbedding;
use crate::error::{Error, Result};
use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::DType;
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

    pub(crate) fn param<const D: usize>(
        &self,
        name: impl Display,
        param: &Param<Tensor<D>>,
        shape: [usize; D],
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
        if found != self.dtype && !is_quantized(param) {
            return invalid(format!(
                "is {found:?}, but {reference} is {:?}; cast the whole model with cast_module",
                self.dtype
            ));
        }
        Ok(())
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
            let check = Self { dtype: expected, device: self.device.clone(), ..*self };
            check.param(format_args!("{name}.{part}"), param, [width])?;
        }
        Ok(())
    }
}
