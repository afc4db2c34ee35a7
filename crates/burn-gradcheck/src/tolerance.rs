//! The tolerance within which two gradients must agree.

use burn::tensor::DType;
use std::fmt;

/// How far an analytic gradient may be from the difference quotient; see the table in the [crate's documentation](crate#numerics).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Allowed whatever the gradient's size.
    pub absolute: f64,
    /// Allowed as a share of the larger of the two numbers.
    pub relative: f64,
}

impl Tolerance {
    /// The table's entry for a dtype, where differences can be taken in it.
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F64 => Some(Self { absolute: 1e-7, relative: 1e-5 }),
            DType::F32 => Some(Self { absolute: 1e-3, relative: 1e-2 }),
            _ => None,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tolerance {:e} + {:e}·|gradient|", self.absolute, self.relative)
    }
}
