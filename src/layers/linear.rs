//! Burn's `Linear` and `Dropout` on the fused operators, with adapters, quantised weights and autocast.

use super::parameters::dtype;
use burn::module::Param;
use burn::nn::{Dropout, Linear};
use burn::prelude::*;
use burn::tensor::DType;
use burn_fused::{Activation, Precision, bias_activation};

/// `x·W + b`.
pub(crate) fn linear<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    burn_fused::linear(x, layer.weight.val(), bias(layer))
}

/// [`linear`] with an output in 16 bits in autocast, and the bias if that is still to be added.
pub(crate) fn linear_deferred(layer: &Linear, x: Tensor<2>) -> (Tensor<2>, Option<Tensor<1>>) {
    burn_fused::linear_deferred(x, layer.weight.val(), bias(layer))
}

/// `x·W`.
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

/// [`linear_activation`] with an output in 16 bits in autocast.
pub(crate) fn linear_activation_narrow(layer: &Linear, x: Tensor<2>, activation: Activation) -> Tensor<2> {
    // Only an f32 weight is narrowed by autocast; others stay in their own dtype.
    if Precision::current() == Precision::F32 || dtype(&layer.weight) != DType::F32 {
        return linear_activation(layer, x, activation);
    }
    let (sum, bias) = linear_deferred(layer, x);
    let bias = bias.unwrap_or_else(|| zeros(&sum));
    bias_activation(sum, bias, activation)
}

fn bias(layer: &Linear) -> Option<Tensor<1>> {
    layer.bias.as_ref().map(|bias| bias.val())
}

/// A bias for `rows` that adds nothing.
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
