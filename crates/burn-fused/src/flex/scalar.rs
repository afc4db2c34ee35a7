//! The float types that the kernels run on, and their exponential and normal distribution, without branches: loops over
//! them vectorise in f32.

use burn::tensor::{Element, bf16, f16};
use bytemuck::Pod;
use pulp::Simd;
use std::f64::consts::FRAC_1_SQRT_2;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// What a tensor holds.
pub(crate) trait Scalar: Element + Pod + Send + Sync {
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

/// Functions of a real number, with the instructions of `S`.
pub(crate) trait Functions: Sized {
    /// eˣ for x ≤ 0. In f32, 0 where it is below the smallest normal number.
    fn exp<S: Simd>(self) -> Self;

    /// The normal distribution's cumulative function Φ and density φ.
    fn normal<S: Simd>(self) -> (Self, Self);
}

/// Adding it rounds an f32 to an integer, whose bits are then the lowest of the sum.
const TO_INTEGER: f32 = 12_582_912.0;

/// ln 2 in two parts; the first has so few bits that its products with integers are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// ln 2⁻¹²⁶.
const LOWEST: f32 = -87.336_54;

/// (eʳ − 1 − r) / r² for |r| ≤ ln 2 / 2, highest power first: a minimax fit, relative error of eʳ 3e-9.
const EXP: [f32; 5] = [0.001_381_454, 0.008_368_745, 0.041_668_39, 0.166_665_21, 0.499_999_94];

/// Φ(−z) / exp(−z² / 2) for 0 ≤ z ≤ 13.5 in v = 0.33 z / (1 + 0.33 z), highest power first: a minimax fit, relative
/// error 9e-9. The last is Φ(0), so that errors vanish towards z = 0, where the exponential is 1.
const TAIL: [f32; 10] = [
    0.026_417_803,
    -0.086_380_355,
    0.068_522_52,
    0.019_275_976,
    0.066_845_81,
    -0.154_764_7,
    -0.317_755_82,
    1.086_762_1,
    -1.208_916_1,
    0.5,
];

#[inline(always)]
fn multiply_add<S: Simd>(a: f32, b: f32, c: f32) -> f32 {
    // Where it is not an instruction, `mul_add` is a slow function.
    if S::IS_SCALAR || cfg!(target_family = "wasm") { a * b + c } else { a.mul_add(b, c) }
}

/// The polynomial at `x`, highest power first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = multiply_add::<S>(sum, x, coefficient);
    }
    sum
}

impl Functions for f32 {
    #[inline(always)]
    fn exp<S: Simd>(self) -> Self {
        let shifted = multiply_add::<S>(self, std::f32::consts::LOG2_E, TO_INTEGER);
        let power = shifted - TO_INTEGER;
        // In two steps, the first of them exact: x − n · ln 2 would cancel.
        let rest = multiply_add::<S>(power, -LN_2[0], self);
        let rest = multiply_add::<S>(power, -LN_2[1], rest);
        let fraction = multiply_add::<S>(polynomial::<S, _>(&EXP, rest), rest * rest, rest) + 1.0;
        // The integer in the lowest bits moves to the exponent.
        let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3F80_0000));
        // Below it the power's exponent runs over.
        if self < LOWEST { 0.0 } else { fraction * power }
    }

    #[inline(always)]
    fn normal<S: Simd>(self) -> (Self, Self) {
        let exp = Functions::exp::<S>(-0.5 * self * self);
        let scaled = 0.33 * self.abs().min(64.0); // infinity would give infinity / infinity
        let tail = polynomial::<S, _>(&TAIL, scaled / (1.0 + scaled)) * exp;
        // The tail is small on the left, where 1 − tail would lose its digits.
        (if self > 0.0 { 1.0 - tail } else { tail }, exp * 0.398_942_3)
    }
}

impl Functions for f64 {
    #[inline(always)]
    fn exp<S: Simd>(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn normal<S: Simd>(self) -> (Self, Self) {
        let density = (-0.5 * self * self).exp() * 0.398_942_280_401_432_7;
        (0.5 * libm::erfc(-self * FRAC_1_SQRT_2), density)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, Scalar, WithSimd};

    /// The largest errors of eˣ, relative to it, of Φ and of φ.
    struct Errors;

    impl WithSimd for Errors {
        type Output = [f64; 3];

        #[inline(always)]
        fn with_simd<S: Simd>(self, _simd: S) -> [f64; 3] {
            let mut largest = [0.0f64; 3];
            for i in -1_000_000..=1_000_000i32 {
                let (x, z) = (-87.3 * i.abs() as f32 / 1e6, 14.0 * i as f32 / 1e6);
                let (cumulative, density) = z.normal::<S>();
                let expected = f64::from(z).normal::<S>();
                let found = [
                    f64::from(Functions::exp::<S>(x)) / f64::from(x).exp() - 1.0,
                    f64::from(cumulative) - expected.0,
                    f64::from(density) - expected.1,
                ];
                largest = [0, 1, 2].map(|i| largest[i].max(found[i].abs()));
            }
            largest
        }
    }

    /// The error of Φ is that of erf, halved.
    #[test]
    fn functions_are_right_to_one_or_two_roundings_with_and_without_fused_instructions() {
        for [exp, cumulative, density] in [Errors.with_simd(Scalar::new()), Arch::new().dispatch(Errors)] {
            println!("exp {exp:e}, Φ {cumulative:e}, φ {density:e}");
            assert!(exp < 2.0 * f64::from(f32::EPSILON), "{exp:e}");
            assert!(cumulative <= f64::from(f32::EPSILON), "{cumulative:e}");
            assert!(density <= f64::from(f32::EPSILON), "{density:e}");
        }
    }

    #[test]
    fn an_exponential_below_all_normal_numbers_is_zero_and_nan_stays() {
        assert_eq!([-88.0, -1e30, f32::NEG_INFINITY].map(Functions::exp::<Scalar>), [0.0; 3]);
        assert!(Functions::exp::<Scalar>(f32::NAN).is_nan());
    }
}
