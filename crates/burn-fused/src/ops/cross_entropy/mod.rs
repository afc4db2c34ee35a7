//! Mean cross-entropy over the rows of a matrix of scores: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod reference;

use crate::engine::device::assert_computes;
use crate::engine::inputs::inputs;
use crate::engine::run::Path;
use crate::engine::run::run;
use burn::prelude::*;

inputs! {
    /// N rows of V scores, N and V above 0.
    CrossEntropy of CrossEntropyOp {
        floats {
            /// The scores x, [N, V].
            logits,
        }
        ints {
            /// The class of each row, `[N]`.
            labels,
        }
        plain {
            path: Path,
        }
    }
}

/// Mean cross-entropy of scores against labels, with a backward that turns the scores into their gradient.
///
/// With scores x, m_n = max_v x_nv and l_n = log Σ_v exp(x_nv − m_n):
///
/// ```text
/// loss     = Σ_n (l_n − (x_n,label(n) − m_n)) / N
/// ∂L/∂x_nv = (exp(x_nv − m_n − l_n) − [v = label(n)]) · ∂L/∂loss / N
/// ```
///
/// as `torch.nn.functional.cross_entropy`. No label is ignored: select the rows with labels first.
///
/// The forward reads the scores and keeps them, with two numbers per row. On Flex and the CubeCL devices, the backward
/// writes the gradient to the memory of the scores, if nothing else holds them: drop the tensor before `backward`, and no
/// second [N, V] is allocated.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::cross_entropy;
///
/// let device = Device::default().autodiff();
/// let logits = Tensor::<2>::from_floats([[0.0, 0.0], [2.0, 2.0]], &device).require_grad();
/// let labels = Tensor::from_ints([1, 0], &device);
/// let loss = cross_entropy(logits.clone(), labels);
/// let gradient = logits.grad(&loss.backward()).unwrap();
/// assert!((loss.into_scalar::<f32>() - 2f32.ln()).abs() < 1e-6);
/// let gradient: Vec<f32> = gradient.into_data().try_into_vec().unwrap();
/// let expected = [0.25, -0.25, -0.25, 0.25]; // (softmax − one hot) / N
/// assert!(gradient.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6));
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
/// f16 and bf16 scores are computed in f32, all others in their own dtype; loss and gradient are rounded once. On Flex, exponentials are right to 2 units in the last place, and the sum
/// over rows is taken in f64.
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
    Tensor::from_dispatch(run::<CrossEntropyOp, _>(CrossEntropy { logits, labels, path: Path::current() }))
}
