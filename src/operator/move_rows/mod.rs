//! Rows of a matrix at other places: one gather forward, one backward.

#[cfg(feature = "_cubecl")]
mod cube;
pub(crate) mod functional;
mod reference;
#[cfg(test)]
mod tests;

use crate::operator::inputs::inputs;
use crate::operator::path::Path;

inputs! {
    /// N rows of length C, which become M.
    MoveRows of MoveRowsOp {
        floats {
            /// [N, C].
            x,
        }
        ints {
            /// For each of M rows, the one of x that it is; N for a row of zeros, `[M]`.
            from,
            /// For each of N rows of x, where it is; M if it is nowhere, `[N]`.
            to,
        }
        plain {
            /// M.
            rows: usize,
            /// The rows of x that are somewhere.
            moved: usize,
            path: Path,
        }
    }
}

#[cfg(feature = "flex")]
impl crate::operator::kernels::Kernels<burn::backend::Flex> for MoveRowsOp {}
