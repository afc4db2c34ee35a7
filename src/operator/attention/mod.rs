//! Scaled dot-product attention of packed sequences to themselves: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
mod rectangle;
mod reference;

use crate::operator::dropout::Dropout;
use crate::operator::inputs::{Tensors, inputs};
use crate::operator::path::Path;

inputs! {
    /// B sequences of N tokens in all, the longest of L; A heads of d columns, H = A · d.
    Attention of AttentionOp {
        nested {
            /// What dropout does to the attention weights.
            dropout: Dropout,
        }
        floats {
            /// Q, [N, H]: the sequences one after the other, without padding.
            query,
            /// K, [N, H].
            key,
            /// V, [N, H].
            value,
        }
        optional {
            /// What is added to the scaled scores, [B, A, L, L]. Of a shorter sequence, only the first rows and columns are
            /// read.
            bias,
        }
        ints {
            /// The first row of each sequence, and N, [B + 1]: `lengths` on the device.
            starts,
        }
        plain {
            /// Tokens of each sequence, N in all.
            lengths: Vec<usize>,
            /// A.
            heads: usize,
            /// What scores are multiplied by, usually 1 / √d.
            scale: f64,
            path: Path,
        }
    }
}

impl<T: Tensors> Attention<T> {
    /// L.
    pub(crate) fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }
}
