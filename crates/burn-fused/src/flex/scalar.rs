//! The float types that the kernels run on.

use super::functions::Functions;
use burn::tensor::{Element, bf16, f16};
use bytemuck::Pod;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// What a tensor holds.
pub(crate) trait Scalar: Element + Pod + Send + Sync {
    /// What arithmetic is done in.
    type Wide: Wide;

    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;

    fn narrow_all(wide: Vec<Self::Wide>) -> Vec<Self> {
        wide.into_iter().map(Self::narrow).collect()
    }
}

/// A type that arithmetic is done in.
pub(crate) trait Wide:
    Scalar<Wide = Self>
    + Functions
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
{
    const ZERO: Self;

    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    fn sqrt(self) -> Self;
}

macro_rules! wide {
    ($float:ty) => {
        impl Scalar for $float {
            type Wide = Self;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }

            // A table's gradient has tens of millions of values: no pass over them for nothing.
            fn narrow_all(wide: Vec<Self>) -> Vec<Self> {
                wide
            }
        }

        impl Wide for $float {
            const ZERO: Self = 0.0;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
        }
    };
}

macro_rules! narrow {
    ($float:ty) => {
        impl Scalar for $float {
            type Wide = f32;

            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn narrow(wide: f32) -> Self {
                Self::from_f32(wide)
            }
        }
    };
}

wide!(f32);
wide!(f64);
narrow!(f16);
narrow!(bf16);
