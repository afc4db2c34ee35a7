//! CubeCL's devices: one kernel forward; two backward, of which one adds up the bias's gradient.

use super::{Activation, BiasActivation, BiasActivationOp};
use crate::cube::launch::{RowLaunch, buffer, output};
use crate::cube::row::{Split, column, zeros};
use crate::cube::totals::{store, store_share};
use crate::engine::operator::{Fields, Gradients, Kernels, Operator, Output, Upstream};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Buffers that the backward binds, with CubeCL's own for sizes and scalars; the forward binds fewer.
const BINDINGS: u32 = 9;

/// `None` for inputs that the kernels do not take.
fn launch(input: &BiasActivation<CubeBackend>) -> Option<RowLaunch> {
    // No kernels for the others: the reference computes them.
    if input.activation != Activation::Gelu {
        return None;
    }
    let operands: Vec<_> = BiasActivationOp::operands::<CubeBackend>(input).into_iter().flatten().collect();
    RowLaunch::of(&operands, input.x.meta.shape().dims(), BINDINGS)
}

impl Kernels<CubeBackend> for BiasActivationOp {
    fn forward(input: BiasActivation<CubeBackend>) -> Output<Self, CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference(input) };
        let y = on.empty([on.rows, on.hidden], on.float);
        forward_kernel::launch(
            &on.client,
            on.cubes((on.rows * on.hidden).div_ceil(on.max_units)),
            CubeDim::new_1d(on.max_units as u32),
            on.address_type,
            buffer(input.x),
            buffer(input.bias),
            input.gate.map(buffer).into(),
            y.clone().into_buffer_arg(),
            on.scalar(FRAC_1_SQRT_2),
            on.hidden,
            on.floats(),
        );
        (y, [])
    }

    fn backward(
        input: BiasActivation<CubeBackend>,
        upstream: Upstream<Self, CubeBackend>,
    ) -> Gradients<CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference_backward(input, upstream) };
        let Upstream { grad, needs: [x, bias, gate], .. } = upstream;
        let dx = x.then(|| on.empty([on.rows, on.hidden], on.float));
        let gate_grad = (gate && input.gate.is_some()).then(|| on.empty([on.rows, on.hidden], on.float));
        let partials = on.partials(usize::from(bias));
        backward_kernel::launch(
            &on.client,
            on.cubes(on.shares()),
            on.cube_dim(),
            on.address_type,
            buffer(input.x),
            buffer(input.bias),
            buffer(grad),
            input.gate.map(buffer).into(),
            output(&dx).into(),
            output(&gate_grad).into(),
            output(&partials).into(),
            on.scalar(FRAC_1_SQRT_2),
            on.scalar(1.0 / (2.0 * PI).sqrt()),
            on.rows,
            on.rows_per_cube(),
            on.hidden,
            on.split,
            on.floats(),
        );
        vec![dx, partials.map(|partials| on.totals(&partials, 1).remove(0)), gate_grad]
    }
}

/// Φ(z), given 1 / √2.
#[cube]
fn cumulative<W: Float>(z: W, inverse_root: W) -> W {
    W::new(0.5) * (W::new(1.0) + (z * inverse_root).erf())
}

#[cube(launch, address_type = "dynamic")]
fn forward_kernel<T: Float, W: Float>(
    x: &[T],
    bias: &[T],
    gate: &ComptimeOption<Box<[T]>>,
    y: &mut [T],
    inverse_root: InputScalar,
    #[comptime] hidden: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    let z = W::cast_from(x[ABSOLUTE_POS]) + W::cast_from(bias[ABSOLUTE_POS % hidden]);
    let value = z * cumulative::<W>(z, inverse_root.get::<W>());
    y[ABSOLUTE_POS] = T::cast_from(value * factor::<T, W>(gate, ABSOLUTE_POS));
}

/// What the activation is multiplied by.
#[cube]
fn factor<T: Float, W: Float>(gate: &ComptimeOption<Box<[T]>>, place: usize) -> W {
    #[comptime]
    match gate {
        ComptimeOption::Some(gate) => W::cast_from(gate[place]),
        ComptimeOption::None => W::new(1.0),
    }
}

/// Each cube takes `rows_per_cube` rows in turn, and stores its share of the total.
#[cube(launch, address_type = "dynamic")]
fn backward_kernel<T: Float, W: Float>(
    x: &[T],
    bias: &[T],
    grad: &[T],
    gate: &ComptimeOption<Box<[T]>>,
    mut dx: ComptimeOption<Box<[T]>>,
    mut gate_grad: ComptimeOption<Box<[T]>>,
    mut partials: ComptimeOption<Box<[W]>>,
    inverse_root: InputScalar,
    density: InputScalar,
    rows: usize,
    rows_per_cube: usize,
    #[comptime] hidden: usize,
    #[comptime] split: Split,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let first = CUBE_POS * rows_per_cube;
    if first >= rows {
        terminate!();
    }
    let end = clamp_max(first + rows_per_cube, rows);
    let mut total = zeros::<W>(split);
    for row in first..end {
        #[unroll(split.slots <= 16)]
        for i in 0..split.slots {
            let column = column(i, split);
            if column < hidden {
                let place = row * hidden + column;
                let z = W::cast_from(x[place]) + W::cast_from(bias[column]);
                let density = density.get::<W>() * (W::new(-0.5) * z * z).exp();
                let cumulative = cumulative::<W>(z, inverse_root.get::<W>());
                let slope = cumulative + z * density;
                let of_output = W::cast_from(grad[place]);
                store::<T, W>(&mut gate_grad, place, of_output * z * cumulative);
                let gradient = of_output * factor::<T, W>(gate, place) * slope;
                total[i] += gradient;
                store::<T, W>(&mut dx, place, gradient);
            }
        }
    }
    store_share::<W>(&total, &mut partials, 0usize, rows.div_ceil(rows_per_cube), hidden, split);
}
