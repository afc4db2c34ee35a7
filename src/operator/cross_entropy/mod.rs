//! Mean cross-entropy over the rows of a matrix of scores: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
mod reference;

use crate::operator::inputs::inputs;
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
