//! Weighted sums over all ranks.

use super::group::{Element, Group};
use burn::tensor::bf16;

/// Elements of a rank in one exchange: large enough for the bandwidth, small enough for a core's cache.
const PART: usize = 1 << 18;

/// Elements of all ranks in one exchange, which bounds the buffers where there are many.
const MAX_BUFFER: usize = 1 << 23;

/// Elements whose sums are in the fastest cache.
const BLOCK: usize = 1 << 11;

/// How gradients travel between ranks; [the module](crate::distributed) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// In f32, or in f64 where a parameter is f64.
    #[default]
    Full,
    /// In bf16, half as many bytes. Sums are f64 and rounded once, to 8 bits of precision.
    Bf16,
}

/// Numbers that are added up over all ranks, or travel for them.
pub(super) trait Number: Element {
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;

    /// The product with a factor of this type: that of two f32 has room in f64, so it is rounded once.
    fn times(self, factor: Self) -> Self {
        Self::from_f64(self.to_f64() * factor.to_f64())
    }
}

impl Number for f64 {
    fn to_f64(self) -> f64 {
        self
    }

    fn from_f64(value: f64) -> Self {
        value
    }
}

impl Number for f32 {
    fn to_f64(self) -> f64 {
        self.into()
    }

    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

/// The bits of a bf16, which MPI has no type for.
pub(super) type Bf16Bits = u16;

impl Number for Bf16Bits {
    fn to_f64(self) -> f64 {
        bf16::from_bits(self).to_f64()
    }

    fn from_f64(value: f64) -> Self {
        bf16::from_f32(value as f32).to_bits()
    }
}

/// Σᵣ `weights[r]` · `factor` · (the `values` of rank r), in the place of `values`, which travel as `W`. Returns the bytes that
/// this rank sent.
///
/// Each rank adds up one part of the values, in the order of the ranks, and gives it to all: the bytes of a ring, and the
/// same bits on every rank and in every run, which `MPI_Allreduce` does not promise.
pub(super) fn weighted_sum<T: Number, W: Number>(
    group: &Group,
    values: Vec<&mut [T]>,
    factor: f64,
    weights: &[f64],
) -> usize {
    let factor = T::from_f64(factor);
    let (ranks, length) = (weights.len(), values.iter().map(|values| values.len()).sum::<usize>());
    let part = PART.min(MAX_BUFFER / ranks).min(length.div_ceil(ranks)).max(1);
    let (mut sent, mut received) = (vec![W::default(); part * ranks], vec![W::default(); part * ranks]);
    let (mut sums, mut own) = (vec![0.0; BLOCK.min(part)], vec![W::default(); part]);
    let mut bytes = 0;
    for mut piece in pieces(values, part * ranks) {
        // The last piece may be shorter: what is left of the one before is added up too, and read by nobody.
        let mut rest = sent.as_mut_slice();
        for values in &piece {
            let (now, later) = rest.split_at_mut(values.len());
            now.iter_mut()
                .zip(&**values)
                .for_each(|(sent, value)| *sent = W::from_f64(value.times(factor).to_f64()));
            rest = later;
        }
        group.all_to_all(&sent, &mut received);
        for (block, own) in own.chunks_mut(BLOCK).enumerate() {
            let sums = &mut sums[..own.len()];
            sums.fill(0.0);
            // In f64, which is rounded once. What has no weight is left out: 0 · NaN would be NaN.
            for (weight, values) in
                weights.iter().zip(received.chunks(part)).filter(|(weight, _)| **weight > 0.0)
            {
                let values = &values[block * BLOCK..];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value.to_f64());
            }
            own.iter_mut().zip(sums).for_each(|(own, sum)| *own = W::from_f64(*sum));
        }
        group.all_gather(&own, &mut sent);
        let mut sums = sent.as_slice();
        for values in &mut piece {
            values.iter_mut().zip(sums).for_each(|(value, sum)| *value = T::from_f64(sum.to_f64()));
            sums = &sums[values.len()..];
        }
        bytes += 2 * part * (ranks - 1) * size_of::<W>();
    }
    bytes
}

/// All `values` side by side, in pieces of `size`: the slices that make up each.
fn pieces<T>(values: Vec<&mut [T]>, size: usize) -> Vec<Vec<&mut [T]>> {
    let (mut pieces, mut room) = (Vec::new(), 0);
    for mut rest in values {
        while !rest.is_empty() {
            if room == 0 {
                pieces.push(Vec::new());
                room = size;
            }
            let (now, later) = rest.split_at_mut(room.min(rest.len()));
            room -= now.len();
            pieces.last_mut().expect("one was begun").push(now);
            rest = later;
        }
    }
    pieces
}
