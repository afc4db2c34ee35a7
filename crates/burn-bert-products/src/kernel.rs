//! What multiplies, and its choice when the program runs.

use crate::float;
use crate::matrix::Matrix;
use std::fmt;

/// What multiplies two matrices. Only a kernel that this CPU can run exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    Float { rounded: bool },
}

impl Kernel {
    /// Products in f32.
    pub const F32: Self = Self(Instructions::Float { rounded: false });

    /// Products of operands rounded to bf16, with f32 sums: the fastest kernel for them on this CPU.
    pub fn bf16() -> Self {
        Self::all_bf16()[0]
    }

    /// Every kernel for operands rounded to bf16 that this CPU has, the fastest first: to compare them.
    pub fn all_bf16() -> Vec<Self> {
        vec![Self(Instructions::Float { rounded: true })]
    }

    /// The instructions that it runs on.
    pub fn name(self) -> &'static str {
        match self.0 {
            Instructions::Float { rounded: false } => float::name(),
            Instructions::Float { rounded: true } => "f32 on rounded operands",
        }
    }

    /// C = A · B, or C += A · B if `add`.
    ///
    /// # Safety
    ///
    /// `c` must be valid for writes of M · N values, and if `add`, for reads of as many that are initialised. They are
    /// initialised when this returns.
    pub(crate) unsafe fn run(self, a: Matrix, b: Matrix, c: *mut f32, add: bool) {
        let [m, k] = a.shape();
        let [_, n] = b.shape();
        if m == 0 || n == 0 {
            return;
        }
        if k == 0 {
            if !add {
                // SAFETY: the caller's promise. All bits 0 are the f32 0.
                unsafe { c.write_bytes(0, m * n) };
            }
            return;
        }
        match self.0 {
            // SAFETY: the caller's promise.
            Instructions::Float { rounded } => unsafe { float::multiply(a, b, c, add, rounded) },
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}
