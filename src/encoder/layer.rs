//! One transformer layer.

use super::attention::BertSelfAttention;
use super::config::BertEncoderConfig;
use super::linear::{linear_activation_narrow, product};
use super::packing::Packing;
use crate::embeddings::{Family, LayerNorm, active_prob, check_dropout, dtype, is_quantized};
use crate::error::{Error, Result};
use crate::operator::Activation;
use crate::operator::dtype::computed_in;
use crate::operator::functional::add_layer_norm;
use crate::operator::recompute::recomputed;
use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn::tensor::DType;
use std::fmt::Display;

/// One post-norm transformer layer:
///
/// ```text
/// x' = LayerNorm(x + Dropout(Attention(x)·O + o))
/// y  = LayerNorm(x' + Dropout(f(x'·U + u)·D + d))
/// ```
///
/// with f the activation. A layer of [`BertEncoder`](super::BertEncoder). Source: `BertLayer` of transformers 5.23; the
/// layers of the other [families](crate::Family) compute the same.
#[derive(Module, Debug)]
pub struct BertLayer {
    /// Attention.
    pub attention: BertSelfAttention,
    /// O, [H, H].
    pub attention_output: Linear,
    /// Normalises the sum of attention and its input.
    pub attention_layer_norm: LayerNorm,
    /// U, [H, I].
    pub intermediate: Linear,
    /// D, [I, H].
    pub output: Linear,
    /// Normalises the sum of the feed-forward network and its input.
    pub output_layer_norm: LayerNorm,
    /// Dropout of both outputs; of the first alone in ALBERT, of the second alone in DistilBERT.
    pub dropout: Dropout,
    /// f.
    #[module(skip)]
    pub hidden_act: Activation,
    #[module(skip)]
    family: Family,
}

impl BertLayer {
    pub(super) fn new(config: &BertEncoderConfig, device: &Device) -> Result<Self> {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let norm = || LayerNorm::new(hidden, config.layer_norm_eps, device);
        Ok(Self {
            attention: BertSelfAttention::new(config, device)?,
            attention_output: config.linear(hidden, hidden, device),
            attention_layer_norm: norm(),
            intermediate: config.linear(hidden, intermediate, device),
            output: config.linear(intermediate, hidden, device),
            output_layer_norm: norm(),
            dropout: DropoutConfig::new(config.hidden_dropout_prob).init(),
            hidden_act: config.hidden_act,
            family: config.family,
        })
    }

    /// The layer's output.
    ///
    /// On a device with gradient checkpointing (`Device::gradient_checkpointing`) autodiff keeps the layer's input alone, if
    /// there is no `bias`, and the backward computes the layer again, with the same dropout.
    ///
    /// # Shapes
    ///
    /// - `rows`: [N, H], packed
    /// - `bias`: that of [`BertSelfAttention::forward`]
    /// - output: [N, H]
    ///
    /// # Panics
    ///
    /// Panics if the rows are not those of `packing`.
    pub fn forward(&self, rows: Tensor<2>, packing: &Packing, bias: Option<&Tensor<4>>) -> Tensor<2> {
        match bias {
            None => {
                recomputed(self, rows, packing, |layer, rows, packing| Ok(layer.compute(rows, packing, None)))
                    .expect("a layer returns no error")
            }
            Some(_) => self.compute(rows, packing, bias), // which has a gradient too
        }
    }

    fn compute(&self, rows: Tensor<2>, packing: &Packing, bias: Option<&Tensor<4>>) -> Tensor<2> {
        let context = self.attention.forward(rows.clone(), packing, bias);
        let [of_attention, of_output] = self.family.spec().output_dropout;
        let rows =
            self.add_norm(&self.attention_output, context, rows, &self.attention_layer_norm, of_attention);
        let inner = linear_activation_narrow(&self.intermediate, rows.clone(), self.hidden_act);
        self.add_norm(&self.output, inner, rows, &self.output_layer_norm, of_output)
    }

    /// Whether the fields, which are public, fit each other and vectors of length `hidden` in `input`. `name` is the
    /// layer's in messages.
    pub(super) fn check(&self, name: &str, hidden: usize, input: DType) -> Result<()> {
        let heads = self.attention.num_attention_heads;
        if heads == 0 || !hidden.is_multiple_of(heads) {
            let problem =
                format!("is {heads} in {name}, but must be at least 1 and divide hidden_size {hidden}");
            return Err(Error::Config { field: "num_attention_heads", problem });
        }
        check_dropout("hidden_dropout_prob", self.dropout.prob)?;
        check_dropout("attention_probs_dropout_prob", self.attention.dropout.prob)?;
        let [_, inner] = self.intermediate.weight.lazy_shape().dims();
        let attention = &self.attention;
        for (part, linear, shape) in [
            ("attention.query", &attention.query, [hidden, hidden]),
            ("attention.key", &attention.key, [hidden, hidden]),
            ("attention.value", &attention.value, [hidden, hidden]),
            ("attention_output", &self.attention_output, [hidden, hidden]),
            ("intermediate", &self.intermediate, [hidden, inner]),
            ("output", &self.output, [inner, hidden]),
        ] {
            check_linear(format_args!("{name}.{part}"), linear, shape, input)?;
        }
        for (part, norm) in [
            ("attention_layer_norm", &self.attention_layer_norm),
            ("output_layer_norm", &self.output_layer_norm),
        ] {
            for (vector, param) in [("gamma", Some(&norm.gamma)), ("beta", norm.beta.as_ref())] {
                let Some(param) = param else { continue };
                check_param(
                    || format!("{name}.{part}.{vector}"),
                    param,
                    &[hidden],
                    &[input, computed_in(input)],
                )?;
            }
        }
        let Some(positions) = &attention.relative_positions else { return Ok(()) };
        let table = &positions.distance_embedding.weight;
        let shape = [table.lazy_shape()[0], hidden / heads];
        let part = "attention.relative_positions.distance_embedding.weight";
        check_param(|| format!("{name}.{part}"), table, &shape, &[input])
    }

    /// `LayerNorm(residual + Dropout(x·W + b))`.
    fn add_norm(
        &self,
        linear: &Linear,
        x: Tensor<2>,
        residual: Tensor<2>,
        norm: &LayerNorm,
        drops_out: bool,
    ) -> Tensor<2> {
        let bias = linear.bias.as_ref().map(|bias| bias.val());
        let dropout = if drops_out { active_prob(&self.dropout, &linear.weight) } else { 0.0 };
        add_layer_norm(product(linear, x), bias, residual, norm.norm(), dropout)
    }
}

/// Whether weight and bias of a linear layer have the shapes of `shape` and the dtype `input`.
pub(super) fn check_linear(
    name: impl Display + Copy,
    linear: &Linear,
    shape: [usize; 2],
    input: DType,
) -> Result<()> {
    check_param(|| format!("{name}.weight"), &linear.weight, &shape, &[input])?;
    linear
        .bias
        .iter()
        .try_for_each(|bias| check_param(|| format!("{name}.bias"), bias, &shape[1..], &[input]))
}

/// Whether a parameter has `shape` and one of `dtypes`, of which a message names the first. Does not initialise it.
pub(super) fn check_param<const D: usize>(
    name: impl Fn() -> String,
    param: &Param<Tensor<D>>,
    shape: &[usize],
    dtypes: &[DType],
) -> Result<()> {
    let found = param.lazy_shape().to_vec();
    if found != shape {
        return Err(Error::data(name(), format!("has shape {found:?}, but expected {shape:?}")));
    }
    let found = dtype(param);
    if !is_quantized(param) && !dtypes.contains(&found) {
        let expected = dtypes[0];
        let problem =
            format!("is {found:?}, but hidden is {expected:?}; cast the whole model with cast_module");
        return Err(Error::data(name(), problem));
    }
    Ok(())
}
