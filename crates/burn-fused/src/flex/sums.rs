//! Loops over vectors, which the compiler vectorises for the CPU that pulp finds at run time.

use super::scalar::Wide;
use std::ops::Add;

/// Partial sums that are carried side by side: four AVX2 registers of f32.
const LANES: usize = 32;

/// `to += from`.
#[inline(always)]
pub(crate) fn accumulate<W: Wide>(to: &mut [W], from: &[W]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to += from);
}

/// Σ term(x), in an order that depends on the length alone.
#[inline(always)]
pub(crate) fn sum_of<W: Wide>(values: &[W], term: impl Fn(W) -> W) -> W {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [W::ZERO; LANES];
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, &x)| *lane += term(x));
    }
    // The rest first, then the lanes in their order: no order depends on the CPU.
    let rest = rest.iter().fold(W::ZERO, |sum, &x| sum + term(x));
    lanes.into_iter().fold(rest, Add::add)
}

/// The largest of `values`, or −∞; what is not a number is passed over.
#[inline(always)]
pub(crate) fn max_of<W: Wide>(values: &[W]) -> W {
    let higher = |a: W, b: W| if b > a { b } else { a };
    let lowest = W::from_f64(f64::NEG_INFINITY);
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [lowest; LANES];
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, &x)| *lane = higher(*lane, x));
    }
    let rest = rest.iter().fold(lowest, |max, &x| higher(max, x));
    lanes.into_iter().fold(rest, higher)
}

/// Σ a · b, in the same order.
#[inline(always)]
pub(crate) fn dot<W: Wide>(a: &[W], b: &[W]) -> W {
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [W::ZERO; LANES];
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest = a_rest.iter().zip(b_rest).fold(W::ZERO, |sum, (&a, &b)| sum + a * b);
    lanes.into_iter().fold(rest, Add::add)
}
