//! LayerNorm over the last axis, and vectors beside rows, made of Burn's primitive operations, for the references.

use crate::numerics::precision::narrow;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

/// LayerNorm of wide `x` [.., H]: y in its dtype, mean and rstd [.., 1].
pub(crate) fn layer_norm<B: Backend>(
    x: FloatTensor<B>,
    [gamma, beta]: [&FloatTensor<B>; 2],
    epsilon: f64,
) -> (FloatTensor<B>, [FloatTensor<B>; 2]) {
    let rank = x.shape().num_dims();
    let mean = B::float_mean_dim(x.clone(), rank - 1);
    let centered = B::float_sub(x, mean.clone());
    // Of large values the sum has lost digits: the mean is off by what deviations from it add up to.
    let off = B::float_mean_dim(centered.clone(), rank - 1);
    let (mean, centered) = (B::float_add(mean, off.clone()), B::float_sub(centered, off));
    // Of centered values: Σ x² / H − mean² would cancel.
    let variance = B::float_mean_dim(B::float_mul(centered.clone(), centered.clone()), rank - 1);
    let rstd = B::float_recip(B::float_sqrt(B::float_add_scalar(variance, epsilon.into())));
    let normalized = B::float_mul(centered, rstd.clone());
    let (gamma, beta) = (vector::<B>(gamma, &normalized), vector::<B>(beta, &normalized));
    (B::float_add(B::float_mul(normalized, gamma), beta), [mean, rstd])
}

/// The gradients of LayerNorm's x, γ and β that are needed, given x and the gradient of y, all wide.
pub(crate) fn layer_norm_backward<B: Backend>(
    x: FloatTensor<B>,
    [mean, rstd]: [FloatTensor<B>; 2],
    [gamma, beta]: [&FloatTensor<B>; 2],
    grad: FloatTensor<B>,
    [needs_x, needs_gamma, needs_beta]: [bool; 3],
) -> [Option<FloatTensor<B>>; 3] {
    let normalized = B::float_mul(B::float_sub(x, mean), rstd.clone());
    let of_gamma = needs_gamma.then(|| total::<B>(B::float_mul(grad.clone(), normalized.clone()), gamma));
    let of_beta = needs_beta.then(|| total::<B>(grad.clone(), beta));
    let of_x = needs_x.then(|| {
        let rank = grad.shape().num_dims();
        let gamma = vector::<B>(gamma, &grad);
        let grad = B::float_mul(grad, gamma);
        let average = B::float_mean_dim(grad.clone(), rank - 1);
        let along = B::float_mean_dim(B::float_mul(grad.clone(), normalized.clone()), rank - 1);
        let grad = B::float_sub(B::float_sub(grad, average), B::float_mul(normalized, along));
        B::float_mul(grad, rstd)
    });
    [of_x, of_gamma, of_beta]
}

/// The sum of all rows of `tensor` [.., H] as the gradient of the vector `of` `[H]`.
pub(crate) fn total<B: Backend>(tensor: FloatTensor<B>, of: &FloatTensor<B>) -> FloatTensor<B> {
    let axes: Vec<usize> = (0..tensor.shape().num_dims() - 1).collect();
    let total = B::float_sum_dims(tensor, &axes);
    narrow::<B>(B::float_reshape(total, of.shape()), of.dtype())
}

/// A vector `[H]` as [1, .., 1, H], of as many axes as `like` and in its dtype.
pub(crate) fn vector<B: Backend>(vector: &FloatTensor<B>, like: &FloatTensor<B>) -> FloatTensor<B> {
    let rank = like.shape().num_dims();
    let mut shape = vec![1; rank];
    shape[rank - 1] = vector.shape()[0];
    // Backends broadcast axes of length 1, but add none.
    B::float_reshape(narrow::<B>(vector.clone(), like.dtype()), Shape::from(shape))
}
