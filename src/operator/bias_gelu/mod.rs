//! Add a bias, take the activation: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
mod reference;

use crate::operator::activation::Activation;
use crate::operator::inputs::inputs;
use crate::operator::path::Path;

/// The factor of z³ in the approximation of GELU.
const CUBIC: f64 = 0.044715;

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
            activation: Activation,
            path: Path,
        }
    }
}
