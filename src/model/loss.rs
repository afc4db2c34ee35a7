//! The losses of logits and labels.

use super::labels::Labels;
use burn::prelude::*;
use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn_fused::{computed_in, cross_entropy};

/// 16-bit numbers as f32.
pub(super) fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let dtype = computed_in(tensor.dtype());
    // Burn's cast refuses the dtype of quantised tensors, which is not a float's.
    if tensor.dtype() == dtype { tensor } else { tensor.cast(dtype) }
}

/// Mean cross-entropy of the positions that have a label: −Σ wᵢ·log softmax(xᵢ)[yᵢ] / Σ wᵢ, with wᵢ the weight of class yᵢ, or 1;
/// 0 without labels or if all weights are 0, where PyTorch gives NaN. Smoothed by ε it is (1 − ε) times that, plus
/// ε/C · −Σᵢ Σ_c w_c·log softmax(xᵢ)[c] / Σ wᵢ. As in all losses here, f16 and bf16 are computed in f32.
/// Source: `torch.nn.functional.cross_entropy` of PyTorch 2.15.
pub(super) fn labelled_cross_entropy<const D: usize>(
    logits: Tensor<D>,
    labels: &Labels,
    class_weights: Option<&[f64]>,
    label_smoothing: f64,
) -> Tensor<1> {
    let Some((logits, classes)) = labels.labelled(logits.clone()) else { return zero_loss(logits) };
    if class_weights.is_none() && label_smoothing == 0.0 {
        return cross_entropy(logits, classes);
    }
    // Of Burn's operations, as both are rare: the fused kernel has neither.
    let (dtype, [_, num_classes]) = (logits.dtype(), logits.dims());
    let costs = log_softmax(widened(logits), 1).neg(); // [N, C]
    let of_class = match class_weights {
        Some(weights) => vector(weights, &costs),
        None => Tensor::ones([num_classes], (&costs.device(), costs.dtype())),
    };
    let weights = of_class.clone().select(0, classes.clone()); // [N]
    let total = weights.clone().sum();
    // A batch of classes without weight costs 0/1 and not 0/0.
    let total = total.clone().mask_fill(total.equal_elem(0.0), 1.0);
    let chosen = costs.clone().gather(1, classes.unsqueeze_dim(1)).squeeze_dim::<1>(1);
    let mut loss = (chosen * weights).sum() / total.clone();
    if label_smoothing > 0.0 {
        let all = (costs * of_class.unsqueeze()).sum() / total;
        loss = loss * (1.0 - label_smoothing) + all * (label_smoothing / num_classes as f64);
    }
    loss.cast(dtype)
}

/// Mean binary cross-entropy of every entry, −(y·log σ(x) + (1 − y)·log σ(−x)), times its class's weight: [B, C] twice → `[1]`.
/// Source: `torch.nn.functional.binary_cross_entropy_with_logits` of PyTorch 2.15.
pub(super) fn binary_cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<2>,
    class_weights: Option<&[f64]>,
) -> Tensor<1> {
    let dtype = logits.dtype();
    // Targets may be in f64, so that a model in f64 reads them unrounded.
    let [logits, targets] = [logits, targets.cast(dtype)].map(widened);
    // log σ of both signs, as log(1 − σ) of a large logit is −∞.
    let absent = targets.clone().neg().add_scalar(1.0);
    let costs = (targets * log_sigmoid(logits.clone()) + absent * log_sigmoid(logits.neg())).neg();
    let mean = match class_weights {
        Some(weights) => (costs.clone() * vector(weights, &costs).unsqueeze()).mean(),
        None => costs.mean(),
    };
    mean.cast(dtype)
}

/// Mean squared error of every entry: [B, C] twice → `[1]`.
pub(super) fn mean_squared_error(logits: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
    let dtype = logits.dtype();
    (widened(logits) - widened(targets.cast(dtype))).square().mean().cast(dtype)
}

/// Zero in every dtype, for any values, that depends on `scores`: its gradients are zeros and not missing.
pub(super) fn zero_loss<const D: usize>(scores: Tensor<D>) -> Tensor<1> {
    // Not a product with 0: an infinity would become NaN.
    let everywhere = Tensor::<D, Bool>::full(scores.dims(), true, &scores.device());
    scores.mask_fill(everywhere, 0.0).sum()
}

fn vector<const D: usize>(values: &[f64], like: &Tensor<D>) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (&like.device(), like.dtype()))
}
