//! Add a bias, drop, add the residual, normalise: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::engine::inputs::{OperatorInputs, inputs};
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::{Dropout, DropoutOps};
use crate::numerics::layer_norm::{layer_norm, layer_norm_backward, total, vector};
use crate::numerics::precision::{narrow, wide};
use crate::ops::embed_layer_norm::Norm;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::prelude::*;

inputs! {
    /// The inputs of [`add_layer_norm`]. The statistics are mean and rstd of each row, [N, 1] in the dtype of the arithmetic.
    AddLayerNorm of AddLayerNormOp, operands: 5, statistics: 2 {
        nested { dropout: Dropout, }
        floats { x, bias, residual, gamma, beta, }
        plain { epsilon: f64, }
    }
}

/// `LayerNorm(residual + Dropout(x + bias))` in one pass, with its own backward: the end of a transformer block.
///
/// ```text
/// s    = residual + mask · (x + bias)
/// mean = Σ s / H
/// rstd = 1 / √(Σ (s − mean)² / H + ε)
/// y    = (s − mean) · rstd · γ + β
/// ```
///
/// and with ŝ = (s − mean) · rstd and g = ∂L/∂y · γ, sums over rows, but over columns where they are divided by H:
///
/// ```text
/// ∂L/∂β        = Σ ∂L/∂y
/// ∂L/∂γ        = Σ ∂L/∂y · ŝ
/// ∂L/∂residual = rstd · (g − Σ g / H − ŝ · Σ (g · ŝ) / H)
/// ∂L/∂x        = mask · ∂L/∂residual
/// ∂L/∂bias     = Σ ∂L/∂x
/// ```
///
/// Dropout is that of [`embed_layer_norm`](crate::embed_layer_norm).
///
/// Source: `BertSelfOutput` and `BertOutput` of transformers 5.23, without their `dense`.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{Norm, add_layer_norm};
///
/// let device = Device::default();
/// let x = Tensor::from_floats([[1.0, 2.0]], &device);
/// let bias = Tensor::from_floats([0.0, 1.0], &device);
/// let residual = Tensor::from_floats([[1.0, 1.0]], &device);
/// let norm = Norm { gamma: Tensor::ones([2], &device), beta: None, epsilon: 1e-12 };
/// let y = add_layer_norm(x, Some(bias), residual, norm, 0.0); // LayerNorm of [2, 4]
/// assert_eq!(y.into_data(), TensorData::from([[-1.0f32, 1.0]]));
/// ```
///
/// # Shapes
///
/// - `x`: [N, H], the output of a linear layer without its bias
/// - `bias`: `[H]`, that of the linear layer; `None` is zero
/// - `residual`: [N, H], the input of the linear layer's block
/// - output: [N, H]
///
/// # Numerics
///
/// Everything is computed in f32 for f16 and bf16, otherwise in the dtype of x; y is rounded to it once.
///
/// # Panics
///
/// If shapes do not fit, or `dropout` is not in [0, 1).
pub fn add_layer_norm(
    x: Tensor<2>,
    bias: Option<Tensor<1>>,
    residual: Tensor<2>,
    norm: Norm,
    dropout: f64,
) -> Tensor<2> {
    let epsilon = norm.epsilon;
    let [x, residual] = [x, residual].map(Tensor::dequantize);
    let [gamma, beta] = norm.vectors();
    let bias = bias.map_or_else(|| Tensor::zeros_like(&gamma), Tensor::dequantize);
    let [_, hidden] = x.dims();
    assert_eq!(residual.dims(), x.dims(), "residual must have the shape of x");
    for (name, vector) in [("bias", &bias), ("gamma", &gamma), ("beta", &beta)] {
        assert_eq!(vector.dims(), [hidden], "{name} must be as long as a row of x");
    }
    let mut input = AddLayerNorm {
        dropout: Dropout(None),
        x: x.into_dispatch(),
        bias: bias.into_dispatch(),
        residual: residual.into_dispatch(),
        gamma: gamma.into_dispatch(),
        beta: beta.into_dispatch(),
        epsilon,
    };
    input.dropout = Dropout::choose(dropout, AddLayerNormOp::operands::<Dispatch>(&input));
    Tensor::from_dispatch(run::<AddLayerNormOp, _>(input))
}

impl Operator for AddLayerNormOp {
    fn specs<B: Backend>(inputs: &AddLayerNorm<B>) -> Vec<Spec> {
        let of_row = Spec::statistic([inputs.x.shape()[0], 1], inputs.x.dtype());
        vec![Spec::of(&inputs.x), of_row.clone(), of_row]
    }

    fn reference<B: DropoutOps>(inputs: AddLayerNorm<B>) -> Output<Self, B> {
        let AddLayerNorm { gamma, beta, epsilon, .. } = &inputs;
        let (y, statistics) = layer_norm::<B>(sum::<B>(&inputs), [gamma, beta], *epsilon);
        (narrow::<B>(y, inputs.x.dtype()), statistics)
    }

    fn reference_backward<B: DropoutOps>(
        inputs: AddLayerNorm<B>,
        upstream: Upstream<Self, B>,
    ) -> Gradients<B> {
        let Upstream { statistics, grad, needs: [x, bias, residual, gamma, beta] } = upstream;
        let (sum, vectors, grad) = (sum::<B>(&inputs), [&inputs.gamma, &inputs.beta], wide::<B>(grad));
        let needs = [x || bias || residual, gamma, beta];
        let [grad, gamma, beta] = layer_norm_backward::<B>(sum, statistics, vectors, grad, needs);
        let Some(grad) = grad else { return vec![None, None, None, gamma, beta] };
        let residual = residual.then(|| narrow::<B>(grad.clone(), inputs.residual.dtype()));
        let grad = if x || bias { inputs.dropout.apply(grad) } else { grad };
        let bias = bias.then(|| total::<B>(grad.clone(), &inputs.bias));
        let x = x.then(|| narrow::<B>(grad, inputs.x.dtype()));
        vec![x, bias, residual, gamma, beta]
    }
}

/// residual + Dropout(x + bias), wide.
fn sum<B: DropoutOps>(inputs: &AddLayerNorm<B>) -> FloatTensor<B> {
    let x = wide::<B>(inputs.x.clone());
    let bias = vector::<B>(&inputs.bias, &x);
    let x = B::float_add(x, bias);
    B::float_add(inputs.dropout.apply(x), wide::<B>(inputs.residual.clone()))
}
