//! Mean cross-entropy over the rows of a matrix of logits: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;

use crate::engine::device::assert_computes;
use crate::engine::inputs::inputs;
use crate::engine::operator::{Gradients, Operator, Output, Spec, Upstream};
use crate::engine::run::run;
use crate::numerics::dropout::DropoutOps;
use crate::numerics::precision::{narrow, wide};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::prelude::*;
use burn::tensor::IndexingUpdateOp;

inputs! {
    /// The inputs of [`cross_entropy`], N and V above 0. The statistics of each row are the largest logit m and the log of the sum l,
    /// [N, 1] in the dtype of the arithmetic.
    CrossEntropy of CrossEntropyOp, operands: 1, statistics: 2 {
        floats { logits, }
        ints { labels, }
    }
}

/// Mean cross-entropy of logits against labels, with its own backward.
///
/// With logits x, m_n = max_v x_nv and l_n = log Σ_v exp(x_nv − m_n):
///
/// ```text
/// loss     = Σ_n (l_n − (x_n,label(n) − m_n)) / N
/// ∂L/∂x_nv = (exp(x_nv − m_n − l_n) − [v = label(n)]) · ∂L/∂loss / N
/// ```
///
/// as `torch.nn.functional.cross_entropy`. No label is ignored: select the rows with labels first.
///
/// The logits and two numbers per row are saved for backward. On Flex and the CubeCL devices, the backward writes the
/// gradient to the memory of the logits if nothing else holds them: drop the tensor before `backward`, and no second
/// [N, V] is allocated.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::cross_entropy;
///
/// let device = Device::default();
/// let logits = Tensor::from_floats([[0.0, 0.0], [2.0, 2.0]], &device);
/// let loss = cross_entropy(logits, Tensor::from_ints([1, 0], &device));
/// assert!((loss.into_scalar::<f32>() - 2f32.ln()).abs() < 1e-6);
/// ```
///
/// # Shapes
///
/// - `logits`: [N, V]
/// - `labels`: `[N]`, each in 0..V
/// - output: `[1]`
///
/// # Panics
///
/// If `labels` is not of length N, or N or V is 0. Flex's kernel also panics if a label is not below V; everything else
/// takes the nearest valid label.
///
/// # Numerics
///
/// f16 and bf16 logits are computed in f32, all others in their own dtype; loss and gradient are rounded once. On Flex,
/// exponentials are right to 2 units in the last place, and the sum over rows is taken in f64.
///
/// Source: `torch.nn.functional.cross_entropy` of PyTorch 2.15.
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    let ([rows, classes], [count]) = (logits.dims(), labels.dims());
    assert!(
        rows == count && rows > 0 && classes > 0,
        "cross_entropy: logits are [{rows}, {classes}] and labels [{count}], but must be [N, V] and [N], N and V above 0"
    );
    assert_computes(&logits);
    let (logits, labels) = (logits.dequantize().into_dispatch(), labels.into_dispatch());
    Tensor::from_dispatch(run::<CrossEntropyOp, _>(CrossEntropy { logits, labels }))
}

impl Operator for CrossEntropyOp {
    fn specs<B: Backend>(inputs: &CrossEntropy<B>) -> Vec<Spec> {
        let Spec { shape, dtype } = Spec::of(&inputs.logits);
        let of_row = Spec::statistic([shape[0], 1], dtype);
        vec![Spec { shape: Shape::new([1]), dtype }, of_row.clone(), of_row]
    }

    fn reference<B: DropoutOps>(inputs: CrossEntropy<B>) -> Output<Self, B> {
        let CrossEntropy { logits, labels } = inputs;
        let dtype = logits.dtype();
        let [rows, _] = logits.shape().dims();
        let labels = column::<B>(labels, &logits);
        let logits = wide::<B>(logits);
        let largest = B::float_max_dim(logits.clone(), 1); // [N, 1]
        let centered = B::float_sub(logits, largest.clone());
        let log_sums = B::float_log(B::float_sum_dim(B::float_exp(centered.clone()), 1));
        let losses = B::float_sub(log_sums.clone(), B::float_gather(1, centered, labels));
        let loss = B::float_mul_scalar(B::float_sum(losses), (1.0 / rows as f64).into());
        (narrow::<B>(B::float_reshape(loss, Shape::new([1])), dtype), [largest, log_sums])
    }

    fn reference_backward<B: DropoutOps>(
        inputs: CrossEntropy<B>,
        upstream: Upstream<Self, B>,
    ) -> Gradients<B> {
        let Upstream { statistics: [largest, log_sums], grad, .. } = upstream;
        let CrossEntropy { logits, labels } = inputs;
        let dtype = logits.dtype();
        let [rows, _] = logits.shape().dims();
        let labels = column::<B>(labels, &logits);
        let centered = B::float_sub(wide::<B>(logits), largest);
        let softmax = B::float_exp(B::float_sub(centered, log_sums));
        let minus_one =
            B::float_neg(B::float_ones(Shape::new([rows, 1]), &softmax.device(), softmax.dtype().into()));
        // One label a row: no two additions meet, and their order does not matter.
        let difference = B::float_scatter(1, softmax, labels, minus_one, IndexingUpdateOp::Add);
        let scale = B::float_mul_scalar(wide::<B>(grad), (1.0 / rows as f64).into());
        let gradient = B::float_mul(difference, B::float_reshape(scale, Shape::new([1, 1])));
        vec![Some(narrow::<B>(gradient, dtype))]
    }
}

/// The labels as [N, 1], each moved to the nearest one that exists, whatever the backend checks.
fn column<B: Backend>(labels: IntTensor<B>, logits: &FloatTensor<B>) -> IntTensor<B> {
    let [rows, classes] = logits.shape().dims();
    // GPUs do not check the index of a gather.
    let labels = B::int_clamp(labels, 0i64.into(), (classes as i64 - 1).into());
    B::int_reshape(labels, Shape::new([rows, 1]))
}
