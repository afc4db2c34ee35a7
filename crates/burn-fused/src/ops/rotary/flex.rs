//! Flex, Burn's CPU backend: one pass over the rows, in place where nobody else holds them.

use super::{Rotary, RotaryOp};
use crate::engine::operator::{Gradients, Output, Upstream};
use crate::flex::{HostKernels, Rows, Scalar, Wide, for_each, rows_per_task, simd_fn, slice};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};

impl HostKernels for RotaryOp {
    fn forward<T: Scalar>(input: Rotary<Flex>) -> Output<Self, Flex> {
        (turned::<T>(input, 1.0), [])
    }

    fn backward<T: Scalar>(input: Rotary<Flex>, upstream: Upstream<Self, Flex>) -> Gradients<Flex> {
        vec![Some(turned::<T>(Rotary { x: upstream.grad, ..input }, -1.0))]
    }
}

/// x turned by the angles, or back.
fn turned<T: Scalar>(Rotary { x, cos, sin, heads }: Rotary<Flex>, direction: f64) -> FloatTensor<Flex> {
    let [_, hidden] = x.shape().dims();
    let half = hidden / heads / 2;
    let [cos, sin] = [cos, sin].map(|angles| angles.to_contiguous());
    let (cos, sin) = (slice::<T::Wide>(&cos), slice::<T::Wide>(&sin));
    let per_task = rows_per_task(hidden);
    let count = x.shape().num_elements();
    let mut rows = Rows::new(x);
    let tasks = rows.tasks::<T>(per_task * hidden).zip(cos.chunks(per_task * half));
    for_each(count, tasks.zip(sin.chunks(per_task * half)), |((rows, cos), sin)| {
        turn::<T>([cos, sin], half, hidden, T::Wide::from_f64(direction), rows());
    });
    rows.output
}

simd_fn! {
    /// Some rows of x, which are overwritten by y.
    fn turn<S, T: Scalar>(
        simd,
        angles: [&'a [T::Wide]; 2],
        half: usize,
        hidden: usize,
        direction: T::Wide,
        y: &'a mut [T],
    ) {
        let [cos, sin] = angles;
        for ((row, cos), sin) in y.chunks_exact_mut(hidden).zip(cos.chunks_exact(half)).zip(sin.chunks_exact(half)) {
            for head in row.chunks_exact_mut(2 * half) {
                let (low, high) = head.split_at_mut(half);
                for (((low, high), &cos), &sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                    let (a, b, sin) = (low.widen(), high.widen(), sin * direction);
                    *low = T::narrow(a * cos - b * sin);
                    *high = T::narrow(b * cos + a * sin);
                }
            }
        }
    }
}
