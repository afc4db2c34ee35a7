//! Add a bias, drop, add the residual, normalise: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
mod reference;

use crate::operator::dropout::Dropout;
use crate::operator::inputs::inputs;
use crate::operator::path::Path;

inputs! {
    /// N rows of length H.
    AddLayerNorm of AddLayerNormOp {
        nested {
            /// What dropout does to `x + bias`.
            dropout: Dropout,
        }
        floats {
            /// The output of a linear layer without its bias, [N, H].
            x,
            /// The bias of the linear layer, `[H]`.
            bias,
            /// The residual, [N, H]: the input of the linear layer's block.
            residual,
            /// LayerNorm's scale γ, `[H]`.
            gamma,
            /// LayerNorm's shift β, `[H]`.
            beta,
        }
        plain {
            /// LayerNorm's ε.
            epsilon: f64,
            path: Path,
        }
    }
}
