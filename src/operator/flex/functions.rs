//! The exponential and the normal distribution, without branches: loops over them vectorise in f32.

use std::f64::consts::FRAC_1_SQRT_2;

/// Functions of a real number.
pub(crate) trait Functions: Sized {
    /// eˣ for x ≤ 0. In f32, 0 where it is below the smallest normal number.
    fn exp(self) -> Self;

    /// The normal distribution's cumulative function Φ and density φ.
    fn normal(self) -> (Self, Self);
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

/// The polynomial at `x`, highest power first.
#[inline(always)]
fn polynomial<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut sum = coefficients[0];
    for coefficient in &coefficients[1..] {
        sum = sum * x + coefficient;
    }
    sum
}

impl Functions for f32 {
    #[inline(always)]
    fn exp(self) -> Self {
        let shifted = self * std::f32::consts::LOG2_E + TO_INTEGER;
        let power = shifted - TO_INTEGER;
        let rest = (self - power * LN_2[0]) - power * LN_2[1];
        let fraction = polynomial(&EXP, rest) * (rest * rest) + rest + 1.0;
        let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3F80_0000));
        if self < LOWEST { 0.0 } else { fraction * power }
    }

    #[inline(always)]
    fn normal(self) -> (Self, Self) {
        let exp = Functions::exp(-0.5 * self * self);
        let scaled = 0.33 * self.abs().min(64.0); // infinity would give infinity / infinity
        let tail = polynomial(&TAIL, scaled / (1.0 + scaled)) * exp;
        (if self > 0.0 { 1.0 - tail } else { tail }, exp * 0.398_942_3)
    }
}

impl Functions for f64 {
    #[inline(always)]
    fn exp(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn normal(self) -> (Self, Self) {
        let density = (-0.5 * self * self).exp() * 0.398_942_280_401_432_7;
        (0.5 * libm::erfc(-self * FRAC_1_SQRT_2), density)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        for i in 0..=1_000_000 {
            let x = -87.3 * i as f32 / 1e6;
            let (found, expected) = (f64::from(Functions::exp(x)), f64::from(x).exp());
            assert!(
                (found / expected - 1.0).abs() < 2.0 * f64::from(f32::EPSILON),
                "{x}: {found}, {expected}"
            );
        }
        assert_eq!([-88.0, -1e30, f32::NEG_INFINITY].map(Functions::exp), [0.0; 3]);
        assert!(Functions::exp(f32::NAN).is_nan());
    }

    /// The error of Φ is that of erf, halved.
    #[test]
    fn normal_distribution_is_right_to_one_rounding() {
        let (mut cumulative_error, mut density_error) = (0.0f64, 0.0f64);
        for i in -1_000_000..=1_000_000 {
            let z = 14.0 * i as f32 / 1e6;
            let (cumulative, density) = z.normal();
            let expected = f64::from(z).normal();
            cumulative_error = cumulative_error.max((f64::from(cumulative) - expected.0).abs());
            density_error = density_error.max((f64::from(density) - expected.1).abs());
        }
        println!("Φ: {cumulative_error:e}, φ: {density_error:e}");
        assert!(cumulative_error <= f64::from(f32::EPSILON), "{cumulative_error:e}");
        assert!(density_error <= f64::from(f32::EPSILON), "{density_error:e}");
    }
}
