//! Attention with the linear layers before it: on CubeCL's devices one operator, which multiplies by the three weights at once.

#[cfg(feature = "_cubecl")]
mod cube;

use crate::engine::call::{Path, Precision};
use crate::engine::inputs::{OperatorInputs, Tensors, inputs};
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::{Dropout, DropoutOps};
use crate::numerics::precision::assert_supported;
use crate::ops::attention::{Attention, AttentionOp, Positions, Sequences, attention, has_pairs, input};
use crate::ops::linear::{Linear, LinearOp, linear, linear_narrow};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchTensorKind, TensorMetadata};
use burn::prelude::*;
use burn::tensor::{DType, Slice};

inputs! {
    /// N rows x of H values, and layers from H to H values for Q, K and V. The statistics are x and the weights as they are
    /// multiplied, [3, H, H], Q, K and V, [3, N, H], and those of [`Attention`].
    SelfAttention of SelfAttentionOp, operands: 10, statistics: 6 {
        nested {
            /// With the weights in the place of Q, K and V.
            attention: Attention,
        }
        floats { x, query_bias, key_bias, value_bias, }
        plain {
            /// What x and the weights are rounded to: F32 or BF16.
            dtype: DType,
            /// That of Q, K and V: the same, or F32.
            output: DType,
        }
    }
}

impl<T: Tensors> SelfAttention<T> {
    fn attention_to(&self, [query, key, value]: [T::Float; 3]) -> Attention<T> {
        Attention { query, key, value, ..self.attention.clone() }
    }

    fn layers(&self) -> [Linear<T>; 3] {
        let Attention { query, key, value, .. } = &self.attention;
        let layers = [(query, &self.query_bias), (key, &self.key_bias), (value, &self.value_bias)];
        layers.map(|(weight, bias)| Linear {
            x: self.x.clone(),
            weight: weight.clone(),
            bias: Some(bias.clone()),
            dtype: self.dtype,
            output: self.output,
        })
    }
}

/// Multi-head self-attention of rows x, before the output's projection: [`attention`](crate::attention) of
///
/// ```text
/// Q = x·Wq + bq        K = x·Wk + bk        V = x·Wv + bv
/// ```
///
/// of `layers` `[(Wq, bq), (Wk, bk), (Wv, bv)]`. It is what three calls of [`linear`](crate::linear), or with `narrow` of
/// [`linear_narrow`](crate::linear_narrow), and [`attention`](crate::attention) compute. On CubeCL's devices f32 weights [H, H] with biases lie
/// side by side for one product forward and two backward, under autodiff or in autocast; a copy of them is saved for the backward.
///
/// ```
/// use burn::prelude::*;
/// use burn::tensor::Distribution;
/// use burn_fused::{Positions, Sequences, attention, linear, self_attention};
///
/// let device = Device::default();
/// let random = |rows: usize| Tensor::<2>::random([rows, 8], Distribution::Default, &device);
/// let (x, layers) = (random(5), [8, 8, 8].map(|rows| (random(rows), None)));
/// let sequences = Sequences::new(vec![3, 2], &device);
/// let rows = layers.clone().map(|(weight, bias)| linear(x.clone(), weight, bias));
/// let expected = attention(rows, &sequences, 2, Positions::default(), 0.0);
/// let y = self_attention(x, layers, &sequences, 2, Positions::default(), 0.0, false);
/// assert_eq!(y.into_data(), expected.into_data());
/// ```
///
/// # Shapes
///
/// - `x`: [N, H]
/// - the layers: [H, H], and `[H]` or none
/// - others, and the output: those of [`attention`](crate::attention)
///
/// # Panics
///
/// As [`linear`](crate::linear) and [`attention`](crate::attention).
pub fn self_attention(
    x: Tensor<2>,
    layers: [(Tensor<2>, Option<Tensor<1>>); 3],
    sequences: &Sequences,
    heads: usize,
    positions: Positions,
    dropout: f64,
    narrow: bool,
) -> Tensor<2> {
    if !is_joint(&x, &layers) || !has_pairs([&x; 2], sequences, heads, &positions) {
        let layer = if narrow { linear_narrow::<2> } else { linear::<2> };
        let rows = layers.map(|(weight, bias)| layer(x.clone(), weight, bias));
        let positions = positions.cast(rows[0].dtype());
        return attention(rows, sequences, heads, positions, dropout);
    }
    let dtype = match Precision::current() {
        Precision::F32 => DType::F32,
        Precision::Bf16 => {
            assert_supported(&x.device());
            DType::BF16
        }
    };
    let output = if narrow { dtype } else { DType::F32 };
    let [(query, query_bias), (key, key_bias), (value, value_bias)] =
        layers.map(|(weight, bias)| (weight, bias.expect("a joint product has biases").into_dispatch()));
    let attention = input([query, key, value], sequences, heads, positions.cast(output));
    let x = x.into_dispatch();
    let mut input = SelfAttention { attention, x, query_bias, key_bias, value_bias, dtype, output };
    input.attention.dropout = Dropout::choose(dropout, SelfAttentionOp::operands::<Dispatch>(&input));
    Tensor::from_dispatch(run::<SelfAttentionOp, _>(input))
}

/// Whether the operator takes these, the device has kernels of it, and weights side by side save more launches than they take: not where a
/// forward alone is computed in f32.
fn is_joint(x: &Tensor<2>, layers: &[(Tensor<2>, Option<Tensor<1>>); 3]) -> bool {
    let [_, hidden] = x.dims();
    let fits = |(weight, bias): &(Tensor<2>, Option<Tensor<1>>)| {
        let bias = bias.as_ref().map(|bias| (bias.dims(), bias.dtype()));
        (weight.dims(), weight.dtype()) == ([hidden; 2], DType::F32) && bias == Some(([hidden], DType::F32))
    };
    Path::current() == Path::Fused
        && x.dtype() == DType::F32
        && (x.device().is_autodiff() || Precision::current() == Precision::Bf16)
        && layers.iter().all(fits)
        && is_on_cube(&x.clone().into_dispatch().kind)
}

fn is_on_cube(kind: &DispatchTensorKind) -> bool {
    match kind {
        DispatchTensorKind::Autodiff(inner) => is_on_cube(inner),
        #[cfg(feature = "_cubecl")]
        DispatchTensorKind::Cube(_) => true,
        #[allow(unreachable_patterns)] // reachable with other devices
        _ => false,
    }
}

impl Operator for SelfAttentionOp {
    fn specs<B: Backend>(inputs: &SelfAttention<B>) -> Vec<Spec> {
        let [rows, hidden] = inputs.x.shape().dims();
        let Attention { lengths, heads, longest, .. } = &inputs.attention;
        let of_row = Spec::statistic([lengths.len(), *heads, *longest, 1], inputs.output);
        let spec = |shape: &[usize], dtype| Spec { shape: Shape::from(shape.to_vec()), dtype };
        let output = spec(&[rows, hidden], inputs.output);
        vec![
            output.clone(),
            spec(&[rows, hidden], inputs.dtype),
            spec(&[3, hidden, hidden], inputs.dtype),
            spec(&[3, rows, hidden], inputs.output),
            of_row.clone(),
            of_row,
            output,
        ]
    }

    fn reference<B: DropoutOps>(inputs: SelfAttention<B>) -> Output<Self, B> {
        forward::<B>(inputs, LinearOp::reference, AttentionOp::reference)
    }

    fn reference_backward<B: DropoutOps>(
        inputs: SelfAttention<B>,
        upstream: Upstream<Self, B>,
    ) -> Gradients<B> {
        backward::<B>(inputs, upstream, LinearOp::reference_backward, AttentionOp::reference_backward)
    }
}

/// By the operators of a layer and of attention.
fn forward<B: Backend>(
    inputs: SelfAttention<B>,
    linear: fn(Linear<B>) -> Output<LinearOp, B>,
    attention: fn(Attention<B>) -> Output<AttentionOp, B>,
) -> Output<SelfAttentionOp, B> {
    let [query, key, value] = inputs.layers().map(linear);
    let rows = [query.0, key.0, value.0];
    let ([x, of_query], [_, of_key], [_, of_value]) = (query.1, key.1, value.1);
    let (output, [maxima, inverse_sums, context]) = attention(inputs.attention_to(rows.clone()));
    let joint = |parts: [FloatTensor<B>; 3]| {
        let [rows, columns] = parts[0].shape().dims();
        B::float_reshape(B::float_cat(parts.into(), 0), Shape::new([3, rows, columns]))
    };
    let weights = joint([of_query, of_key, of_value]);
    (output, [x, weights, joint(rows), maxima, inverse_sums, context])
}

/// The three matrices of [3, .., ..].
fn split<B: Backend>(joint: &FloatTensor<B>) -> [FloatTensor<B>; 3] {
    let [_, rows, columns] = joint.shape().dims();
    [0, 1, 2].map(|i| {
        let matrix = B::float_slice(joint.clone(), &[Slice::from(i..i + 1)]);
        B::float_reshape(matrix, Shape::new([rows, columns]))
    })
}

fn backward<B: Backend>(
    inputs: SelfAttention<B>,
    upstream: Upstream<SelfAttentionOp, B>,
    linear: fn(Linear<B>, Upstream<LinearOp, B>) -> Gradients<B>,
    attention: fn(Attention<B>, Upstream<AttentionOp, B>) -> Gradients<B>,
) -> Gradients<B> {
    let Upstream { statistics: [x, weights, rows, maxima, inverse_sums, context], grad, needs } = upstream;
    let [query, key, value, bias, by_query, by_key, needs_x, query_bias, key_bias, value_bias] = needs;
    let needs = [true, true, true, bias, by_query, by_key];
    let upstream = Upstream { statistics: [maxima, inverse_sums, context], grad, needs };
    let mut gradients = attention(inputs.attention_to(split::<B>(&rows)), upstream);
    let positions = gradients.split_off(3);
    let needs = [[needs_x, query, query_bias], [needs_x, key, key_bias], [needs_x, value, value_bias]];
    let layers = inputs.layers().into_iter().zip(split::<B>(&weights)).zip(gradients).zip(needs);
    let (mut of_x, mut of_weights, mut of_biases) = (None, Vec::new(), Vec::new());
    for (((layer, weight), grad), needs) in layers {
        let grad = grad.expect("a gradient that is needed");
        let mut gradients = linear(layer, Upstream { statistics: [x.clone(), weight], grad, needs });
        of_biases.push(gradients.remove(2));
        of_weights.push(gradients.remove(1));
        of_x = of_x.into_iter().chain(gradients.remove(0)).reduce(B::float_add);
    }
    of_weights.into_iter().chain(positions).chain([of_x]).chain(of_biases).collect()
}

#[cfg(feature = "flex")]
impl crate::engine::operator::Kernels<burn::backend::Flex> for SelfAttentionOp {}
