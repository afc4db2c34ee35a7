//! Weighted sums over all ranks.

use super::group::{Element, Group};

/// Elements of a rank in one exchange: large enough for the bandwidth, small beside the gradients.
const PART: usize = 1 << 20;

/// How gradients travel between ranks; [the module](crate::distributed) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// In f32, or in f64 where a parameter is f64.
    #[default]
    Full,
    /// In bf16, half as many bytes. Sums are f64 and rounded once, to 8 bits of precision.
    Bf16,
}

/// Numbers that are added up over all ranks.
pub(super) trait Number: Element {
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;

    fn sum(group: &Group, wire: Wire, values: &mut [Self], weights: &[f64]);
}

impl Number for f64 {
    fn to_f64(self) -> f64 {
        self
    }

    fn from_f64(value: f64) -> Self {
        value
    }

    fn sum(group: &Group, _wire: Wire, values: &mut [Self], weights: &[f64]) {
        weighted_sum(group, values, weights, |value| value, |value| value);
    }
}

impl Number for f32 {
    fn to_f64(self) -> f64 {
        self.into()
    }

    fn from_f64(value: f64) -> Self {
        value as f32
    }

    fn sum(group: &Group, wire: Wire, values: &mut [Self], weights: &[f64]) {
        match wire {
            Wire::Full => weighted_sum(group, values, weights, |value| value, |value| value),
            Wire::Bf16 => weighted_sum(group, values, weights, Bf16::from_f32, Bf16::to_f32),
        }
    }
}

/// The bits of a bf16, which MPI has no type for.
type Bf16Bits = u16;

struct Bf16;

impl Bf16 {
    /// Rounded to nearest, ties to even.
    fn from_f32(value: f32) -> Bf16Bits {
        let bits = value.to_bits();
        if value.is_nan() {
            return (bits >> 16) as u16 | 0x40; // rounding could make it infinite
        }
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    }

    fn to_f32(bits: Bf16Bits) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }
}

impl Number for Bf16Bits {
    fn to_f64(self) -> f64 {
        Bf16::to_f32(self).into()
    }

    fn from_f64(value: f64) -> Self {
        Bf16::from_f32(value as f32)
    }

    fn sum(group: &Group, _wire: Wire, values: &mut [Self], weights: &[f64]) {
        weighted_sum(group, values, weights, |value| value, |value| value);
    }
}

/// Σᵣ `weights[r]` · (the `values` of rank r), in the place of `values`.
///
/// Each rank adds up one part of the values, in the order of the ranks, and gives it to all: the bytes of a ring, and the
/// same bits on every rank and in every run, which `MPI_Allreduce` does not promise.
fn weighted_sum<T: Copy, W: Number>(
    group: &Group,
    values: &mut [T],
    weights: &[f64],
    narrow: impl Fn(T) -> W,
    widen: impl Fn(W) -> T,
) {
    let ranks = weights.len();
    let part = PART.min(values.len().div_ceil(ranks)).max(1);
    let (mut sent, mut received) = (vec![W::default(); part * ranks], vec![W::default(); part * ranks]);
    let (mut sums, mut own) = (vec![0.0; part], vec![W::default(); part]);
    for piece in values.chunks_mut(part * ranks) {
        // The last piece may be shorter: what is left of the one before is added up too, and read by nobody.
        sent.iter_mut().zip(&*piece).for_each(|(sent, value)| *sent = narrow(*value));
        group.all_to_all(&sent, &mut received);
        sums.fill(0.0);
        for (weight, values) in weights.iter().zip(received.chunks(part)).filter(|(weight, _)| **weight > 0.0)
        {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value.to_f64());
        }
        own.iter_mut().zip(&sums).for_each(|(own, sum)| *own = W::from_f64(*sum));
        group.all_gather(&own, &mut sent);
        piece.iter_mut().zip(&sent).for_each(|(value, sum)| *value = widen(*sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_rounded_to_nearest_even() {
        for (value, expected) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),               // a tie, to even
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0), // a tie, to even
            (1.0 + 1.5 / 256.0, 1.0 + 2.0 / 256.0),
            (-3.0e38, -226.0 * 2f32.powi(120)), // 225.7 units in the last place
            (f32::INFINITY, f32::INFINITY),
        ] {
            let found = Bf16::to_f32(Bf16::from_f32(value));
            assert!(found == expected, "{value}: {found}");
        }
        assert!(Bf16::to_f32(Bf16::from_f32(f32::NAN)).is_nan());
        assert!(Bf16::to_f32(Bf16::from_f32(f32::from_bits(0x7f80_0001))).is_nan());
    }
}
