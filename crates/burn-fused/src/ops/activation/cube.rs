//! CubeCL's devices: one kernel forward; two backward, of which one adds up the bias's gradient. Each is compiled for an
//! activation.

use super::{Activation, BiasActivation, BiasActivationOp, FAR};
use crate::cube::launch::{RowLaunch, Split, UNROLLED, buffer, column, output};
use crate::cube::row::filled;
use crate::cube::totals::{store, store_share};
use crate::engine::inputs::OperatorInputs;
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

type Input = BiasActivation<CubeBackend>;

/// The most buffers of a kernel, the backward's: x, the bias, the gate, y's gradient, the gradients of x and the gate, and shares of the
/// bias's.
const BUFFERS: usize = 7;

pub(crate) fn launch(input: &Input) -> Option<RowLaunch> {
    let operands: Vec<_> = BiasActivationOp::operands::<CubeBackend>(input).into_iter().flatten().collect();
    RowLaunch::for_rows(&operands, input.x.meta.shape().dims(), BUFFERS)
}

/// f(x + bias) ∘ gate in `output`, one launch, for rows that have a [`launch`].
pub(crate) fn activated(on: &RowLaunch, input: Input, output: DType) -> CubeTensor {
    let y = on.empty([on.rows, on.hidden], output);
    let widest = if output.size() > on.float.size() { output } else { on.float };
    let (cubes, units, vector) = on.elementwise(on.rows * on.hidden, widest, &[on.hidden]);
    forward_kernel::launch(
        &on.client,
        cubes,
        units,
        on.address_type,
        vector,
        buffer(input.x),
        input.bias.map(buffer).into(),
        input.gate.map(buffer).into(),
        y.clone().into_buffer_arg(),
        constants(on, input.activation),
        on.hidden / vector,
        input.activation,
        [on.float, output, on.wide].map(dtype_to_elem_type),
    );
    y
}

impl Kernels<CubeBackend> for BiasActivationOp {
    fn forward(input: Input) -> Output<Self, CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference(input) };
        (activated(&on, input, on.float), [])
    }

    fn backward(input: Input, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference_backward(input, upstream) };
        let Upstream { grad, needs: [x, bias, gate], .. } = upstream;
        let Input { bias: of_bias, gate: of_gate, .. } = &input;
        let dx = x.then(|| on.empty([on.rows, on.hidden], on.float));
        let gate_grad = gate.then(|| on.empty([on.rows, on.hidden], on.float));
        let partials = on.partials(usize::from(bias));
        backward_kernel::launch(
            &on.client,
            on.cubes(on.shares()),
            on.cube_dim(),
            on.address_type,
            buffer(input.x.clone()),
            of_bias.clone().map(buffer).into(),
            buffer(grad),
            of_gate.clone().map(buffer).into(),
            output(&dx).into(),
            output(&gate_grad).into(),
            output(&partials).into(),
            constants(&on, input.activation),
            on.rows,
            on.rows_per_cube(),
            on.hidden,
            on.split,
            input.activation,
            on.floats(),
        );
        vec![dx, partials.map(|partials| on.totals(&partials, 1, on.float).remove(0)), gate_grad]
    }
}

/// What the formula of an activation multiplies by: for GELU 1 / √2 and 1 / √(2π), otherwise those of [`Activation::logistic`].
#[derive(CubeType, CubeLaunch)]
struct Constants {
    first: InputScalar,
    second: InputScalar,
}

fn constants(on: &RowLaunch, activation: Activation) -> ConstantsLaunch {
    let [first, second] = match activation {
        Activation::Gelu => [FRAC_1_SQRT_2, 1.0 / (2.0 * PI).sqrt()],
        _ => activation.logistic(),
    };
    ConstantsLaunch::new(on.scalar(first), on.scalar(second))
}

/// f(z).
#[cube]
fn value<W: Float>(z: W, constants: &Constants, #[comptime] activation: Activation) -> W {
    match comptime!(activation) {
        Activation::Gelu => z * cumulative::<W>(z, constants),
        // NaN stays.
        Activation::Relu => select(z < W::new(0.0), W::new(0.0), z),
        Activation::Tanh => z.tanh(),
        Activation::Sigmoid => logistic::<W>(z),
        Activation::Identity => z,
        _ => z * logistic::<W>(cubic::<W>(z, constants, 1.0)),
    }
}

/// f′(z).
#[cube]
fn slope<W: Float>(z: W, constants: &Constants, #[comptime] activation: Activation) -> W {
    let one = W::new(1.0);
    match comptime!(activation) {
        Activation::Gelu => {
            let density = constants.second.get::<W>() * (W::new(-0.5) * z * z).exp();
            cumulative::<W>(z, constants) + z * density
        }
        // Of NaN 1, as PyTorch's.
        Activation::Relu => select(z <= W::new(0.0), W::new(0.0), one),
        Activation::Tanh => {
            let y = z.tanh();
            one - y * y
        }
        Activation::Sigmoid => logistic::<W>(z) * logistic::<W>(-z),
        Activation::Identity => one,
        _ => {
            let u = cubic::<W>(z, constants, 1.0);
            let near = logistic::<W>(u);
            // z times the derivative of the cubic is the cubic with three times its last term; 1 − σ(u) is σ(−u).
            near + near * logistic::<W>(-u) * cubic::<W>(z, constants, 3.0)
        }
    }
}

/// Φ(z).
#[cube]
fn cumulative<W: Float>(z: W, constants: &Constants) -> W {
    W::new(0.5) * (W::new(1.0) + (z * constants.first.get::<W>()).erf())
}

/// first · z + `weight` · second · z³.
#[cube]
fn cubic<W: Float>(z: W, constants: &Constants, #[comptime] weight: f32) -> W {
    // Both tails are flat there, and nothing overflows. Not `clamp`, which may make a number of NaN.
    let far = W::new(FAR as f32);
    let near = select(z > far, far, select(z < -far, -far, z));
    near * (constants.first.get::<W>() + W::new(weight) * constants.second.get::<W>() * near * near)
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
fn forward_kernel<T: Float, O: Float, W: Float, N: Size>(
    x: &[Vector<T, N>],
    bias: &ComptimeOption<Box<[Vector<T, N>]>>,
    gate: &ComptimeOption<Box<[Vector<T, N>]>>,
    y: &mut [Vector<O, N>],
    constants: &Constants,
    #[comptime] vectors_of_row: usize,
    #[comptime] activation: Activation,
    #[define(T, O, W)] _dtypes: [ElemType; 3],
) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    let zero = Vector::<W, N>::new(W::new(0.0));
    let one = Vector::<W, N>::new(W::new(1.0));
    let bias = value_or::<Vector<T, N>, Vector<W, N>>(bias, ABSOLUTE_POS % vectors_of_row, zero);
    let z = Vector::<W, N>::cast_from(x[ABSOLUTE_POS]) + bias;
    let mut values = value_or::<Vector<T, N>, Vector<W, N>>(gate, ABSOLUTE_POS, one);
    #[unroll]
    for i in 0..z.vector_size() {
        values.insert(i, value::<W>(z.extract(i), constants, activation) * values.extract(i));
    }
    y[ABSOLUTE_POS] = Vector::cast_from(values);
}

/// A value, or a vector of them, of a tensor that can be absent.
#[cube]
fn value_or<T: CubePrimitive, W: CubePrimitive>(
    values: &ComptimeOption<Box<[T]>>,
    index: usize,
    absent: W,
) -> W {
    #[comptime]
    match values {
        ComptimeOption::Some(values) => W::cast_from(values[index]),
        ComptimeOption::None => absent,
    }
}

/// Each cube takes `rows_per_cube` rows in turn, and stores its share of the total.
#[cube(launch, address_type = "dynamic")]
fn backward_kernel<T: Float, W: Float>(
    x: &[T],
    bias: &ComptimeOption<Box<[T]>>,
    grad: &[T],
    gate: &ComptimeOption<Box<[T]>>,
    mut dx: ComptimeOption<Box<[T]>>,
    mut gate_grad: ComptimeOption<Box<[T]>>,
    mut partials: ComptimeOption<Box<[W]>>,
    constants: &Constants,
    rows: usize,
    rows_per_cube: usize,
    #[comptime] hidden: usize,
    #[comptime] split: Split,
    #[comptime] activation: Activation,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let first = CUBE_POS * rows_per_cube;
    if first >= rows {
        terminate!();
    }
    let end = clamp_max(first + rows_per_cube, rows);
    let mut total = filled::<W>(0.0, split);
    for row in first..end {
        #[unroll(split.slots <= UNROLLED)]
        for i in 0..split.slots {
            let column = column(i, split);
            if column < hidden {
                let index = row * hidden + column;
                let z = W::cast_from(x[index]) + value_or::<T, W>(bias, column, W::new(0.0));
                let of_output = W::cast_from(grad[index]);
                store::<T, W>(&mut gate_grad, index, of_output * value::<W>(z, constants, activation));
                let factor = value_or::<T, W>(gate, index, W::new(1.0));
                let gradient = of_output * factor * slope::<W>(z, constants, activation);
                total[i] += gradient;
                store::<T, W>(&mut dx, index, gradient);
            }
        }
    }
    store_share::<W>(&total, &mut partials, 0usize, rows.div_ceil(rows_per_cube), hidden, split);
}
