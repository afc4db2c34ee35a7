//! The operator, as an extension of Burn's backends.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use super::input::CrossEntropy;
use super::reference;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

/// Mean cross-entropy of N rows of V scores, and its gradient. On tensors:
/// [`functional::cross_entropy`](crate::functional::cross_entropy).
///
/// With m_n = max_v x_nv and l_n = log Σ_v exp(x_nv − m_n):
///
/// ```text
/// loss     = Σ_n (l_n − (x_n,label(n) − m_n)) / N
/// ∂L/∂x_nv = (exp(x_nv − m_n − l_n) − [v = label(n)]) · ∂L/∂loss / N
/// ```
///
/// The default bodies are made of Burn's primitive operations: they are the reference that every kernel must
/// equal, and what a backend without a kernel runs.
///
/// # Numerics
///
/// f16 and bf16 scores are computed in f32, all others in their own dtype; loss and gradient are rounded once.
///
/// # Labels out of range
///
/// No memory outside the scores is ever read or written. Flex panics and names the label; the default bodies take
/// the nearest one that exists.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "_cubecl"),
    Remote: cfg(feature = "remote"),
    Autodiff,
)]
pub trait CrossEntropyOps: Backend {
    /// The loss, `[1]`.
    fn cross_entropy(#[extension_type] input: CrossEntropy<Self>) -> FloatTensor<Self> {
        reference::cross_entropy::<Self>(input).0
    }

    /// The loss `[1]`, and m and l, which the backward needs, both [N, 1] in the dtype that is computed in.
    fn cross_entropy_with_statistics(
        #[extension_type] input: CrossEntropy<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        reference::cross_entropy::<Self>(input)
    }

    /// ∂L/∂x [N, V], given m and l [N, 1] and `grad` = ∂L/∂loss `[1]`.
    ///
    /// Flex writes it to the memory of the scores, if nothing else holds them.
    fn cross_entropy_backward(
        #[extension_type] input: CrossEntropy<Self>,
        largest: FloatTensor<Self>,
        log_sums: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        reference::backward::<Self>(input, largest, log_sums, grad)
    }
}
