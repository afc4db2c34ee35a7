//! Rotary positions: pairs of columns turned by angles. One operator; its backward turns back.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::engine::device::assert_computes;
use crate::engine::inputs::inputs;
use crate::engine::operator::{Gradients, Operator, Output, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::precision::{computed_in, narrow, wide};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::prelude::*;

inputs! {
    /// The inputs of [`rotary`].
    Rotary of RotaryOp, operands: 1, statistics: 0 {
        floats { x, }
        constants { cos, sin, }
        plain { heads: usize, }
    }
}

/// Turns each pair of columns i and i + d/2 of a head by the angle φ of its row and i (Su et al. 2021, arXiv:2104.09864):
///
/// ```text
/// yᵢ       = xᵢ · cos φᵢ − xᵢ₊d/2 · sin φᵢ
/// yᵢ₊d/2   = xᵢ₊d/2 · cos φᵢ + xᵢ · sin φᵢ
/// ```
///
/// If the angles of queries and keys are multiples of their positions, their inner products depend on the distance alone. The backward turns
/// the gradient by −φ. Source: `apply_rotary_pos_emb` of transformers 5.23.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::rotary;
///
/// let device = Device::default();
/// let angles = [[1.0, 0.0], [0.0, 1.0]].map(|row| Tensor::from_floats([row], &device)); // of 0 and π/2
/// let y = rotary(Tensor::from_floats([[1.0, 2.0, 3.0, 4.0]], &device), angles, 1);
/// assert_eq!(y.into_data(), TensorData::from([[1.0f32, -4.0, 3.0, 2.0]]));
/// ```
///
/// # Shapes
///
/// - `x`: [N, A · d] for A `heads`, d even
/// - `[cos, sin]`: [N, d/2], outside autodiff
/// - output: [N, A · d]
///
/// # Numerics
///
/// Computed in f32 for f16 and bf16, and rounded once. Cosines and sines are in f32 then, otherwise in the dtype of x.
///
/// # Panics
///
/// If shapes or dtypes do not fit, or the device computes wrongly in the dtype ([`check_dtype`](crate::check_dtype)).
pub fn rotary(x: Tensor<2>, [cos, sin]: [Tensor<2>; 2], heads: usize) -> Tensor<2> {
    let [rows, hidden] = x.dims();
    assert!(
        heads > 0 && hidden.is_multiple_of(2 * heads),
        "heads: {heads} of even length are not {hidden} columns"
    );
    let dtype = computed_in(x.dtype());
    for angles in [&cos, &sin] {
        assert_eq!(angles.dims(), [rows, hidden / heads / 2], "cos and sin must have shape [N, d/2]");
        assert_eq!(angles.dtype(), dtype, "cos and sin must have the dtype of the arithmetic");
    }
    // Nothing to compute, and no dims that kernels take.
    if rows == 0 || hidden == 0 {
        return x;
    }
    assert_computes(&x);
    let [x, cos, sin] = [x, cos, sin].map(|tensor| tensor.dequantize().into_dispatch());
    Tensor::from_dispatch(run::<RotaryOp, _>(Rotary { x, cos, sin, heads }))
}

impl Operator for RotaryOp {
    fn reference<B: DropoutOps>(inputs: Rotary<B>) -> Output<Self, B> {
        (turned::<B>(inputs), [])
    }

    fn reference_backward<B: DropoutOps>(inputs: Rotary<B>, upstream: Upstream<Self, B>) -> Gradients<B> {
        let back = Rotary { x: upstream.grad, sin: B::float_neg(inputs.sin), ..inputs };
        vec![Some(turned::<B>(back))]
    }
}

/// x turned by the angles.
fn turned<B: Backend>(Rotary { x, cos, sin, heads }: Rotary<B>) -> FloatTensor<B> {
    let (shape, dtype) = (x.shape(), x.dtype());
    let [rows, hidden] = shape.dims();
    let half = hidden / heads / 2;
    let x = B::float_reshape(wide::<B>(x), Shape::new([rows, heads, 2, half]));
    let [low, high] = [0, 1].map(|which| {
        let ranges = [0..rows, 0..heads, which..which + 1, 0..half];
        B::float_slice(x.clone(), &ranges.map(|range| range.into()))
    });
    let [cos, sin] = [cos, sin].map(|angles| B::float_reshape(angles, Shape::new([rows, 1, 1, half])));
    let times = |a: &FloatTensor<B>, b: &FloatTensor<B>| B::float_mul(a.clone(), b.clone());
    let first = B::float_sub(times(&low, &cos), times(&high, &sin));
    let second = B::float_add(times(&high, &cos), times(&low, &sin));
    narrow::<B>(B::float_reshape(B::float_cat(vec![first, second], 2), shape), dtype)
}
