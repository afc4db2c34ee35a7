//! Burn's linear layers on this crate's operators: adapters and quantised weights included, in the precision of autocast.

use crate::embeddings::dtype;
use crate::operator::Activation;
use crate::operator::functional::{self, bias_activation};
use crate::operator::precision::Rounding;
use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::DType;

/// `x·W + b`.
pub(crate) fn linear<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    functional::linear(x, layer.weight.val(), bias(layer))
}

/// [`linear`] with an output in 16 bits in autocast.
pub(super) fn linear_narrow(layer: &Linear, x: Tensor<2>) -> Tensor<2> {
    functional::linear_narrow(x, layer.weight.val(), bias(layer))
}

/// `x·W`.
pub(super) fn product(layer: &Linear, x: Tensor<2>) -> Tensor<2> {
    functional::linear(x, layer.weight.val(), None)
}

/// `f(x·W + b)`, exact in value and gradient.
pub(crate) fn linear_activation(layer: &Linear, x: Tensor<2>, activation: Activation) -> Tensor<2> {
    let product = product(layer, x);
    let bias = bias(layer).unwrap_or_else(|| zeros(&product));
    bias_activation(product, bias, activation)
}

/// [`linear_activation`] with an output in 16 bits in autocast.
pub(super) fn linear_activation_narrow(layer: &Linear, x: Tensor<2>, activation: Activation) -> Tensor<2> {
    if Rounding::current().is_none() || dtype(&layer.weight) != DType::F32 {
        return linear_activation(layer, x, activation);
    }
    // The bias is f32, what the activation reads is not.
    let sum = linear_narrow(layer, x);
    let zeros = zeros(&sum);
    bias_activation(sum, zeros, activation)
}

fn bias(layer: &Linear) -> Option<Tensor<1>> {
    layer.bias.as_ref().map(|bias| bias.val())
}

/// A bias for `rows` that adds nothing.
fn zeros(rows: &Tensor<2>) -> Tensor<1> {
    Tensor::zeros([rows.dims()[1]], (&rows.device(), rows.dtype()))
}
