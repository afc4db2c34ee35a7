//! CubeCL's devices: one kernel forward, and the same backward.

use super::{Rotary, RotaryOp};
use crate::cube::launch::{RowLaunch, buffer};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// The buffers of the kernel: x, cosines, sines and y.
const BUFFERS: usize = 4;

/// `x` turned by the angles, or back; `None` if the kernel does not take it.
fn turned(input: &Rotary<CubeBackend>, x: &CubeTensor, direction: f64) -> Option<CubeTensor> {
    let on = RowLaunch::for_rows(&[x], x.meta.shape().dims(), BUFFERS)?;
    let y = on.empty([on.rows, on.hidden], on.float);
    turn::launch(
        &on.client,
        on.cubes((on.rows * on.hidden).div_ceil(on.max_units)),
        CubeDim::new_1d(on.max_units as u32),
        on.address_type,
        buffer(x.clone()),
        buffer(input.cos.clone()),
        buffer(input.sin.clone()),
        y.clone().into_buffer_arg(),
        on.scalar(direction),
        on.hidden,
        on.hidden / input.heads / 2,
        on.floats(),
    );
    Some(y)
}

impl Kernels<CubeBackend> for RotaryOp {
    fn forward(input: Rotary<CubeBackend>) -> Output<Self, CubeBackend> {
        let Some(y) = turned(&input, &input.x, 1.0) else { return Self::reference(input) };
        (y, [])
    }

    fn backward(input: Rotary<CubeBackend>, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let x = turned(&input, &upstream.grad, -1.0);
        if x.is_some() { vec![x] } else { Self::reference_backward(input, upstream) }
    }
}

#[cube(launch, address_type = "dynamic")]
fn turn<T: Float, W: Float>(
    x: &[T],
    cos: &[W],
    sin: &[W],
    y: &mut [T],
    direction: InputScalar,
    #[comptime] hidden: usize,
    #[comptime] half: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    let column = ABSOLUTE_POS % (2 * half);
    let angle = ABSOLUTE_POS / hidden * half + column % half;
    let sin = sin[angle] * direction.get::<W>();
    let value = W::cast_from(x[ABSOLUTE_POS]) * cos[angle];
    if column < half {
        y[ABSOLUTE_POS] = T::cast_from(value - W::cast_from(x[ABSOLUTE_POS + half]) * sin);
    } else {
        y[ABSOLUTE_POS] = T::cast_from(value + W::cast_from(x[ABSOLUTE_POS - half]) * sin);
    }
}
