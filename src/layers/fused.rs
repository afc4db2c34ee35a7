//! `LayerNorm`, and Burn's `Linear` and `Dropout`, on the fused operators, with adapters, quantised weights and autocast.

use super::dtype::dtype;
use burn::module::{Module, Param};
use burn::nn::{Dropout, Initializer, Linear};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::{Activation, Norm, Precision, Rows, bias_activation, embed_layer_norm, gated_activation};

/// `(x − mean) / √(variance + ε) · γ + β` over the last axis.
///
/// Of [`BertEmbeddings`](crate::BertEmbeddings) and every layer. Parameter paths are those of Burn's `LayerNorm`. ε is that
/// of the model's config and cannot be changed, so that a saved model computes with the ε in its config.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// γ, `[H]`.
    pub gamma: Param<Tensor<1>>,
    /// β, `[H]`; `None` is zero.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
}

impl LayerNorm {
    /// For vectors of length `hidden`, with γ = 1 and β = 0, or none.
    pub(crate) fn new(hidden: usize, epsilon: f64, has_bias: bool, device: &Device) -> Self {
        Self {
            gamma: Initializer::Ones.init([hidden], device),
            beta: has_bias.then(|| Initializer::Zeros.init([hidden], device)),
            epsilon,
        }
    }

    /// ε.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    pub(crate) fn norm(&self) -> Norm {
        let beta = self.beta.as_ref().map(|beta| beta.val());
        Norm { gamma: self.gamma.val(), beta, epsilon: self.epsilon }
    }

    /// LayerNorm of `x`, [.., H], computed in f32 for 16 bits. Panics if the last axis is not of length H.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dims = x.dims();
        let (rows, hidden) = (dims[..D - 1].iter().product(), dims[D - 1]);
        let norm = self.norm();
        assert_eq!(norm.gamma.dims(), [hidden], "the last axis of x must be as long as gamma");
        // Burn's layer_norm rounds otherwise under autodiff, and by the number of rows.
        let rows_of_x = Rows::Values(x.reshape([1, rows, hidden]));
        embed_layer_norm([1, rows], [rows_of_x, Rows::Absent, Rows::Absent], norm, 0.0).reshape(dims)
    }
}

pub(crate) fn linear<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    burn_fused::linear(x, layer.weight.val(), bias(layer))
}

/// [`linear`] with an output in 16 bits in autocast.
pub(crate) fn linear_narrow(layer: &Linear, x: Tensor<2>) -> Tensor<2> {
    burn_fused::linear_narrow(x, layer.weight.val(), bias(layer))
}

pub(crate) fn product(layer: &Linear, x: Tensor<2>) -> Tensor<2> {
    burn_fused::linear(x, layer.weight.val(), None)
}

/// `f(x·W + b)`, exact in value and gradient.
pub(crate) fn linear_activation(layer: &Linear, x: Tensor<2>, activation: Activation) -> Tensor<2> {
    let product = product(layer, x);
    // The operator has no form without a bias; zeros are small beside the product.
    let bias = bias(layer).unwrap_or_else(|| zeros(&product));
    bias_activation(product, bias, activation)
}

/// The inner part of a feed-forward network, `f(x·W + b)`, or `f(x·W + b) ∘ (x·G)` with a gate; with an output in 16 bits in autocast.
pub(crate) fn feed_forward(
    layer: &Linear,
    gate: Option<&Linear>,
    x: Tensor<2>,
    activation: Activation,
) -> Tensor<2> {
    let gate = gate.map(|gate| linear_narrow(gate, x.clone()));
    // Only an f32 weight is narrowed by autocast; others stay in their own dtype.
    let is_narrowed = Precision::current() != Precision::F32 && dtype(&layer.weight) == DType::F32;
    let (sum, bias) = match is_narrowed {
        // The bias is f32, what the activation reads is not.
        true => (linear_narrow(layer, x), None),
        false => (product(layer, x), bias(layer)),
    };
    let bias = bias.unwrap_or_else(|| zeros(&sum));
    match gate {
        Some(gate) => gated_activation(sum, bias, gate, activation),
        None => bias_activation(sum, bias, activation),
    }
}

fn bias(layer: &Linear) -> Option<Tensor<1>> {
    layer.bias.as_ref().map(|bias| bias.val())
}

fn zeros(rows: &Tensor<2>) -> Tensor<1> {
    Tensor::zeros([rows.dims()[1]], (&rows.device(), rows.dtype()))
}

/// The probability of dropout beside `parameter`: 0 unless the parameter is on an autodiff device and training.
pub(crate) fn active_prob<const D: usize>(dropout: &Dropout, parameter: &Param<Tensor<D>>) -> f64 {
    // By the parameter's device: a batch made on an autodiff device must not turn dropout on in a plain model.
    let is_active = dropout.training.is_enabled() && parameter.lazy_device().is_autodiff();
    if is_active { dropout.prob } else { 0.0 }
}

/// Burn's dropout of `x`, active beside `parameter` as [`active_prob`] says.
pub(crate) fn drop_out<const D: usize>(
    dropout: &Dropout,
    parameter: &Param<Tensor<2>>,
    x: Tensor<D>,
) -> Tensor<D> {
    // Burn's dropout decides by the tensor's device, which a batch can bring with it.
    if active_prob(dropout, parameter) > 0.0 { dropout.forward(x) } else { x }
}
