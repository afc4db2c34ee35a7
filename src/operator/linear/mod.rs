//! A linear layer whose operands may be rounded to 16 bits: one operator with its own backward.

#[cfg(feature = "_cubecl")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub(crate) mod functional;
mod reference;

use crate::operator::inputs::{Tensors, inputs};
use crate::operator::path::Path;
use crate::operator::precision::Rounding;
use burn::tensor::DType;

inputs! {
    /// N rows of I values to N rows of O.
    Linear of LinearOp {
        floats {
            /// [N, I], in f32 or 16 bits.
            x,
            /// W, [I, O], in f32, or in 16 bits with a scale of 1.
            weight,
        }
        optional {
            /// b, `[O]`, in W's dtype.
            bias,
        }
        plain {
            rounding: Rounding,
            /// Whether the output is in 16 bits, otherwise in f32.
            narrow: bool,
            path: Path,
        }
    }
}

impl<T: Tensors> Linear<T> {
    /// The output's dtype.
    fn output(&self) -> DType {
        if self.narrow { self.rounding.dtype } else { DType::F32 }
    }
}
