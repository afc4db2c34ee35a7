//! Burn's `Linear` and `Dropout` on the fused operators, with adapters, quantised weights and autocast.

use super::dtype::dtype;
use burn::module::Param;
use burn::nn::{Dropout, Linear};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::{Activation, Precision, bias_activation, gated_activation};

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
    bias_activation(product(layer, x), bias(layer), activation)
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
    match gate {
        Some(gate) => gated_activation(sum, bias, gate, activation),
        None => bias_activation(sum, bias, activation),
    }
}

fn bias(layer: &Linear) -> Option<Tensor<1>> {
    layer.bias.as_ref().map(|bias| bias.val())
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
