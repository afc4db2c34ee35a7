//! Add a bias, take the exact GELU: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
mod reference;

use crate::operator::inputs::inputs;
use crate::operator::path::Path;

inputs! {
    /// N rows of length I.
    BiasGelu of BiasGeluOp {
        floats {
            /// The output of a linear layer without its bias, [N, I].
            x,
            /// The bias of the linear layer, `[I]`.
            bias,
        }
        plain {
            path: Path,
        }
    }
}
