//! The operator made of Burn's primitive operations.

use super::input::{AddLayerNorm, AddLayerNormNeeds};
use crate::operator::dropout::ops::DropoutOps;
use crate::operator::dtype::{narrow, wide};
use crate::operator::rows;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;

/// y [N, H], mean and rstd [N, 1].
pub(super) fn with_statistics<B: DropoutOps>(
    input: AddLayerNorm<B>,
) -> (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) {
    let (y, mean, rstd) = rows::layer_norm::<B>(sum::<B>(&input), &input.gamma, &input.beta, input.epsilon);
    (narrow::<B>(y, input.x.dtype()), mean, rstd)
}

/// The gradients that `needs` asks for, each in the dtype of its operand.
pub(super) fn backward<B: DropoutOps>(
    input: AddLayerNorm<B>,
    mean: FloatTensor<B>,
    rstd: FloatTensor<B>,
    grad: FloatTensor<B>,
    needs: AddLayerNormNeeds,
) -> Vec<Option<FloatTensor<B>>> {
    let [x, bias, residual, gamma, beta] = needs;
    let grad = wide::<B>(grad);
    let normalized = B::float_mul(B::float_sub(sum::<B>(&input), mean), rstd.clone());
    let beta = beta.then(|| rows::total::<B>(grad.clone(), &input.beta));
    let gamma = gamma.then(|| rows::total::<B>(B::float_mul(grad.clone(), normalized.clone()), &input.gamma));
    if !(x || bias || residual) {
        return vec![None, None, None, gamma, beta];
    }
    let grad = rows::layer_norm_backward::<B>(normalized, rstd, &input.gamma, grad);
    let residual = residual.then(|| narrow::<B>(grad.clone(), input.residual.dtype()));
    let grad = if x || bias { input.dropout.apply(grad) } else { grad };
    let bias = bias.then(|| rows::total::<B>(grad.clone(), &input.bias));
    let x = x.then(|| narrow::<B>(grad, input.x.dtype()));
    vec![x, bias, residual, gamma, beta]
}

/// residual + Dropout(x + bias), wide.
fn sum<B: DropoutOps>(input: &AddLayerNorm<B>) -> FloatTensor<B> {
    let x = wide::<B>(input.x.clone());
    let bias = rows::vector::<B>(&input.bias, &x);
    let x = B::float_add(x, bias);
    B::float_add(input.dropout.apply(x), wide::<B>(input.residual.clone()))
}
