//! CubeCL's devices: one kernel forward; two backward, of which one adds up the bias's gradient. Each is compiled for an
//! activation.

use super::{Activation, BiasGelu, BiasGeluOp, CUBIC};
use crate::cube::launch::{RowLaunch, buffer, output, written};
use crate::cube::row::{Split, column, zeros};
use crate::cube::totals::{store, store_share};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Buffers that the backward binds, with CubeCL's own for sizes and scalars; the forward binds fewer.
const BINDINGS: u32 = 7;

/// `None` for inputs that the kernels do not take.
fn launch(x: &CubeTensor, bias: &CubeTensor) -> Option<RowLaunch> {
    let on = RowLaunch::of(&[x], x.meta.shape().dims(), BINDINGS)?;
    on.of_vectors([bias]).map(|_| on)
}

/// f(x + bias) in `dtype`, one launch; `None` for what the kernel does not take.
pub(crate) fn activated(
    x: &CubeTensor,
    bias: &CubeTensor,
    activation: Activation,
    dtype: DType,
) -> Option<CubeTensor> {
    let on = launch(x, bias)?;
    let y = on.empty([on.rows, on.hidden], dtype);
    forward_kernel::launch(
        &on.client,
        on.cubes((on.rows * on.hidden).div_ceil(on.max_units)),
        CubeDim::new_1d(on.max_units as u32),
        on.address_type,
        buffer(x.clone()),
        buffer(bias.clone()),
        written(&y),
        constants(&on, activation),
        on.hidden,
        activation,
        [on.float, bias.dtype, dtype, on.wide].map(dtype_to_elem_type),
    );
    Some(y)
}

/// What the formula of an activation multiplies by.
fn constants(on: &RowLaunch, activation: Activation) -> ConstantsLaunch {
    let [first, second] = match activation {
        Activation::Gelu => [FRAC_1_SQRT_2, 1.0 / (2.0 * PI).sqrt()],
        Activation::QuickGelu | Activation::Silu => [activation.slope(), 0.0],
        _ => [2.0 * activation.slope(), 2.0 * activation.slope() * CUBIC],
    };
    ConstantsLaunch::new(on.scalar(first), on.scalar(second))
}

impl Kernels<CubeBackend> for BiasGeluOp {
    fn forward(input: BiasGelu<CubeBackend>) -> Output<Self, CubeBackend> {
        match activated(&input.x, &input.bias, input.activation, input.x.dtype) {
            Some(y) => (y, []),
            None => Self::reference(input),
        }
    }

    fn backward(
        input: BiasGelu<CubeBackend>,
        upstream: Upstream<Self, CubeBackend>,
    ) -> Gradients<CubeBackend> {
        let Some(on) = launch(&input.x, &input.bias) else {
            return Self::reference_backward(input, upstream);
        };
        let Upstream { grad, needs: [x, bias], .. } = upstream;
        let of_bias = input.bias.dtype;
        let dx = x.then(|| on.empty([on.rows, on.hidden], on.float));
        let partials = on.partials(usize::from(bias));
        backward_kernel::launch(
            &on.client,
            on.cubes(on.shares()),
            on.cube_dim(),
            on.address_type,
            buffer(input.x),
            buffer(input.bias),
            buffer(grad),
            output(&dx).into(),
            output(&partials).into(),
            constants(&on, input.activation),
            on.rows,
            on.rows_per_cube(),
            on.hidden,
            on.split,
            input.activation,
            [on.float, of_bias, on.wide].map(dtype_to_elem_type),
        );
        vec![dx, partials.map(|partials| on.totals(&partials, 1, of_bias).remove(0))]
    }
}

/// For GELU 1 / √2 and 1 / √(2π); for its approximations 2 √(2/π) and that times 0.044715, or 1.702; for SiLU 1.
#[derive(CubeType, CubeLaunch)]
struct Constants {
    first: InputScalar,
    second: InputScalar,
}

/// f(z).
#[cube]
fn value<W: Float>(z: W, constants: &Constants, #[comptime] activation: Activation) -> W {
    if comptime!(activation == Activation::Gelu) {
        z * cumulative::<W>(z, constants)
    } else if comptime!(matches!(activation, Activation::GeluTanh | Activation::GeluFast)) {
        z * logistic::<W>(cubic::<W>(z, constants, 1.0))
    } else if comptime!(activation == Activation::Relu) {
        // NaN stays.
        select(z < W::new(0.0), W::new(0.0), z)
    } else if comptime!(matches!(activation, Activation::QuickGelu | Activation::Silu)) {
        z * logistic::<W>(z * constants.first.get::<W>())
    } else if comptime!(activation == Activation::Tanh) {
        z.tanh()
    } else if comptime!(activation == Activation::Sigmoid) {
        logistic::<W>(z)
    } else {
        z
    }
}

/// f′(z).
#[cube]
fn slope<W: Float>(z: W, constants: &Constants, #[comptime] activation: Activation) -> W {
    let one = W::new(1.0);
    if comptime!(activation == Activation::Gelu) {
        let density = constants.second.get::<W>() * (W::new(-0.5) * z * z).exp();
        cumulative::<W>(z, constants) + z * density
    } else if comptime!(matches!(activation, Activation::GeluTanh | Activation::GeluFast)) {
        let u = cubic::<W>(z, constants, 1.0);
        let near = logistic::<W>(u);
        // z times the derivative of the cubic is the cubic with three times its last term; 1 − σ(u) is σ(−u).
        near + near * logistic::<W>(-u) * cubic::<W>(z, constants, 3.0)
    } else if comptime!(activation == Activation::Relu) {
        select(z > W::new(0.0), one, W::new(0.0))
    } else if comptime!(matches!(activation, Activation::QuickGelu | Activation::Silu)) {
        let u = z * constants.first.get::<W>();
        let near = logistic::<W>(u);
        near * (one + u * logistic::<W>(-u))
    } else if comptime!(activation == Activation::Tanh) {
        let y = z.tanh();
        one - y * y
    } else if comptime!(activation == Activation::Sigmoid) {
        logistic::<W>(z) * logistic::<W>(-z)
    } else {
        one
    }
}

/// Φ(z).
#[cube]
fn cumulative<W: Float>(z: W, constants: &Constants) -> W {
    W::new(0.5) * (W::new(1.0) + (z * constants.first.get::<W>()).erf())
}

/// 2 √(2/π) (z + `weight` · 0.044715 z³): its logistic function is (1 + tanh) / 2 of half of it.
#[cube]
fn cubic<W: Float>(z: W, constants: &Constants, #[comptime] weight: f32) -> W {
    // Both tails are flat there: z² of what is far would overflow.
    let square = min(z * z, W::new(1000.0));
    z * (constants.first.get::<W>() + W::new(weight) * constants.second.get::<W>() * square)
}

/// σ(u) = 1 / (1 + e⁻ᵘ).
#[cube]
fn logistic<W: Float>(u: W) -> W {
    // Of −|u|: no exponential overflows.
    let exp = (-u.abs()).exp();
    let near = W::new(1.0) / (W::new(1.0) + exp);
    select(u < W::new(0.0), exp * near, near)
}

#[cube(launch, address_type = "dynamic")]
fn forward_kernel<T: Float, V: Float, O: Float, W: Float>(
    x: &[T],
    bias: &[V],
    y: &mut [O],
    constants: &Constants,
    #[comptime] hidden: usize,
    #[comptime] activation: Activation,
    #[define(T, V, O, W)] _dtypes: [ElemType; 4],
) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    let z = W::cast_from(x[ABSOLUTE_POS]) + W::cast_from(bias[ABSOLUTE_POS % hidden]);
    y[ABSOLUTE_POS] = O::cast_from(value::<W>(z, constants, activation));
}

/// Each cube takes `rows_per_cube` rows in turn, and stores its share of the total.
#[cube(launch, address_type = "dynamic")]
fn backward_kernel<T: Float, V: Float, W: Float>(
    x: &[T],
    bias: &[V],
    grad: &[T],
    mut dx: ComptimeOption<Box<[T]>>,
    mut partials: ComptimeOption<Box<[W]>>,
    constants: &Constants,
    rows: usize,
    rows_per_cube: usize,
    #[comptime] hidden: usize,
    #[comptime] split: Split,
    #[comptime] activation: Activation,
    #[define(T, V, W)] _dtypes: [ElemType; 3],
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
                let gradient = W::cast_from(grad[place]) * slope::<W>(z, constants, activation);
                total[i] += gradient;
                store::<T, W>(&mut dx, place, gradient);
            }
        }
    }
    store_share::<W>(&total, &mut partials, 0usize, rows.div_ceil(rows_per_cube), hidden, split);
}
