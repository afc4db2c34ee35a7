//! Mean cross-entropy over the rows of a matrix of scores: one operator with its own backward.

#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
mod reference;
#[cfg(all(test, feature = "flex"))]
mod tests;

use crate::operator::inputs::inputs;
#[cfg(feature = "_cubecl")]
use crate::operator::kernels::Kernels;
use crate::operator::path::Path;

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

#[cfg(feature = "_cubecl")]
impl Kernels<burn_cubecl::CubeBackend> for CrossEntropyOp {}
