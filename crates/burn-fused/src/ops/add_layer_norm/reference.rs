//! The operator made of Burn's primitive operations.

use super::{AddLayerNorm, AddLayerNormOp};
use crate::engine::inputs::{Held, Spec, Specs};
use crate::engine::operator::{Operator, Output};
use crate::numerics::dropout::DropoutOps;
use crate::numerics::sums;
use crate::numerics::sums::{narrow, wide};
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;

impl Operator for AddLayerNormOp {
    /// Of x, bias, residual, gamma and beta.
    type Needs = [bool; 5];
    /// Mean and rstd of each row, [N, 1] in the dtype of the arithmetic.
    type Statistics<X: Held> = [X; 2];

    fn specs(inputs: &AddLayerNorm<Specs>) -> (Spec, [Spec; 2]) {
        let Spec { shape, dtype } = &inputs.x;
        let of_row = Spec::statistic([shape[0], 1], *dtype);
        (inputs.x.clone(), [of_row.clone(), of_row])
    }

    fn reference<B: DropoutOps>(inputs: AddLayerNorm<B>) -> Output<Self, B> {
        let AddLayerNorm { gamma, beta, epsilon, .. } = &inputs;
        let (y, mean, rstd) = sums::layer_norm::<B>(sum::<B>(&inputs), gamma, beta, *epsilon);
        (narrow::<B>(y, inputs.x.dtype()), [mean, rstd])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: AddLayerNorm<B>,
        [mean, rstd]: [FloatTensor<B>; 2],
        grad: FloatTensor<B>,
        [x, bias, residual, gamma, beta]: [bool; 5],
    ) -> Vec<Option<FloatTensor<B>>> {
        let grad = wide::<B>(grad);
        let normalized = B::float_mul(B::float_sub(sum::<B>(&inputs), mean), rstd.clone());
        let beta = beta.then(|| sums::total::<B>(grad.clone(), &inputs.beta));
        let gamma =
            gamma.then(|| sums::total::<B>(B::float_mul(grad.clone(), normalized.clone()), &inputs.gamma));
        if !(x || bias || residual) {
            return vec![None, None, None, gamma, beta];
        }
        let grad = sums::layer_norm_backward::<B>(normalized, rstd, &inputs.gamma, grad);
        let residual = residual.then(|| narrow::<B>(grad.clone(), inputs.residual.dtype()));
        let grad = if x || bias { inputs.dropout.apply(grad) } else { grad };
        let bias = bias.then(|| sums::total::<B>(grad.clone(), &inputs.bias));
        let x = x.then(|| narrow::<B>(grad, inputs.x.dtype()));
        vec![x, bias, residual, gamma, beta]
    }
}

/// residual + Dropout(x + bias), wide.
fn sum<B: DropoutOps>(inputs: &AddLayerNorm<B>) -> FloatTensor<B> {
    let x = wide::<B>(inputs.x.clone());
    let bias = sums::vector::<B>(&inputs.bias, &x);
    let x = B::float_add(x, bias);
    B::float_add(inputs.dropout.apply(x), wide::<B>(inputs.residual.clone()))
}
