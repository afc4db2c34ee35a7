//! Gather three rows, add them, normalise, drop: one operator with its own backward.

pub(crate) mod check;
#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
pub(crate) mod reference;
pub(crate) mod rows;
#[cfg(all(test, feature = "flex"))]
mod tests;

use crate::operator::dropout::Dropout;
use crate::operator::inputs::{Tensors, inputs};
use crate::operator::path::Path;
use rows::Rows;

inputs! {
    /// B sequences of S tokens, vectors of length H.
    EmbedLayerNorm of EmbedLayerNormOp {
        nested {
            /// The first summand.
            words: Rows,
            /// The second summand.
            token_types: Rows,
            /// The third summand.
            positions: Rows,
            /// What dropout does to the result.
            dropout: Dropout,
        }
        floats {
            /// LayerNorm's scale γ, `[H]`.
            gamma,
            /// LayerNorm's shift β, `[H]`.
            beta,
        }
        plain {
            /// B and S.
            shape: [usize; 2],
            /// LayerNorm's ε.
            epsilon: f64,
            path: Path,
        }
    }
}

impl<T: Tensors> EmbedLayerNorm<T> {
    /// The tables or vectors of the summands.
    pub(crate) fn sources(&self) -> [Option<&T::Float>; 3] {
        [&self.words, &self.token_types, &self.positions].map(Rows::source)
    }
}
