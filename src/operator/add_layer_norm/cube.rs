//! The kernels for CubeCL's devices: one forward; two backward, of which one adds up column sums.

use super::input::{AddLayerNorm, AddLayerNormNeeds};
use crate::operator::cube::launch::{RowLaunch, buffer};
use crate::operator::cube::mask::Mask;
use crate::operator::cube::row::{
    Statistics, StatisticsLaunch, column, factors, layer_norm, layer_norm_backward, ones, zeros,
};
use crate::operator::cube::totals::store_share;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

type Input = AddLayerNorm<CubeBackend>;

/// Buffers that the backward binds, with CubeCL's own for sizes and scalars; the forward binds fewer.
const BINDINGS: u32 = 13;

/// `None` for inputs that the kernels do not take.
fn launch(input: &Input) -> Option<RowLaunch> {
    RowLaunch::of(input.path, &operands(input), input.x.meta.shape().dims(), BINDINGS)
}

fn operands(input: &Input) -> [&CubeTensor; 5] {
    [&input.x, &input.bias, &input.residual, &input.gamma, &input.beta]
}

/// y [N, H], and the mean and rstd [N, 1] if they are asked for.
pub(super) fn forward(input: &Input, statistics: bool) -> Option<(CubeTensor, Option<[CubeTensor; 2]>)> {
    let on = launch(input)?;
    let y = on.empty([on.rows, on.hidden], on.float);
    let statistics = statistics.then(|| [(); 2].map(|()| on.empty([on.rows, 1], on.wide)));
    let statistics_args = statistics
        .clone()
        .map(|[mean, rstd]| StatisticsLaunch::new(mean.into_buffer_arg(), rstd.into_buffer_arg()));
    let [x, bias, residual, gamma, beta] = operands(input).map(|tensor| buffer(tensor.clone()));
    forward_kernel::launch(
        &on.client,
        on.cubes(on.rows),
        on.cube_dim(),
        on.address_type,
        x,
        bias,
        residual,
        gamma,
        beta,
        on.scalar(input.epsilon),
        on.mask(&input.dropout, DType::I32).into(),
        y.clone().into_buffer_arg(),
        statistics_args.into(),
        on.rows,
        on.hidden,
        on.units,
        on.slots(),
        on.dtypes(DType::I32),
    );
    Some((y, statistics))
}

/// The gradients that are asked for.
pub(super) fn backward(
    input: &Input,
    [mean, rstd]: [CubeTensor; 2],
    grad: CubeTensor,
    [x, bias, residual, gamma, beta]: AddLayerNormNeeds,
) -> Option<Vec<Option<CubeTensor>>> {
    let on = launch(input)?;
    let matrix = |needed: bool| needed.then(|| on.empty([on.rows, on.hidden], on.float));
    let (dx, d_residual) = (matrix(x), matrix(residual));
    let vectors = bias || gamma || beta;
    let partials = on.partials(if vectors { 3 } else { 0 });
    let arg = |tensor: &Option<CubeTensor>| tensor.clone().map(CubeTensor::into_buffer_arg);
    let [of_x, of_bias, of_residual, of_gamma, _] = operands(input).map(|tensor| buffer(tensor.clone()));
    backward_kernel::launch(
        &on.client,
        on.cubes(on.shares()),
        on.cube_dim(),
        on.address_type,
        of_x,
        of_bias,
        of_residual,
        of_gamma,
        on.mask(&input.dropout, DType::I32).into(),
        buffer(mean),
        buffer(rstd),
        buffer(grad),
        arg(&dx).into(),
        arg(&d_residual).into(),
        arg(&partials).into(),
        on.rows,
        on.rows_per_cube(),
        on.hidden,
        on.units,
        on.slots(),
        on.dtypes(DType::I32),
    );
    let totals = partials.map_or_else(Vec::new, |partials| on.totals(&partials, 3));
    let vector = |needed: bool, i: usize| totals.get(i).filter(|_| needed).cloned();
    Some(vec![dx, vector(bias, 0), d_residual, vector(gamma, 1), vector(beta, 2)])
}

/// residual + mask · (x + bias) of a unit's columns of a row, 0 past the last column.
#[cube]
fn sum<T: Float, W: Float>(
    x: &[T],
    bias: &[T],
    residual: &[T],
    factors: &Array<W>,
    row: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
) -> Array<W> {
    let mut sum = zeros::<W>(slots);
    #[unroll(slots <= 16)]
    for i in 0..slots {
        let column = column(i, units);
        if column < hidden {
            let place = row * hidden + column;
            let x = W::cast_from(x[place]) + W::cast_from(bias[column]);
            sum[i] = W::cast_from(residual[place]) + x * factors[i];
        }
    }
    sum
}

#[cube(launch, address_type = "dynamic")]
fn forward_kernel<T: Float, W: Float, I: Int>(
    x: &[T],
    bias: &[T],
    residual: &[T],
    gamma: &[T],
    beta: &[T],
    epsilon: InputScalar,
    mask: &ComptimeOption<Mask<I>>,
    y: &mut [T],
    mut statistics: ComptimeOption<Statistics<W>>,
    rows: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let factors = factors::<W, I>(mask, row, slots, units);
    let mut s = sum::<T, W>(x, bias, residual, &factors, row, hidden, units, slots);
    let epsilon = epsilon.get::<W>();
    let ones = ones::<W>(slots);
    layer_norm::<T, W>(&mut s, &ones, gamma, beta, epsilon, y, &mut statistics, row, hidden, units, slots);
}

/// Each cube takes `rows_per_cube` rows in turn, and stores its share of the totals of bias, γ and β.
#[cube(launch, address_type = "dynamic")]
fn backward_kernel<T: Float, W: Float, I: Int>(
    x: &[T],
    bias: &[T],
    residual: &[T],
    gamma: &[T],
    mask: &ComptimeOption<Mask<I>>,
    mean: &[W],
    rstd: &[W],
    grad: &[T],
    mut dx: ComptimeOption<Box<[T]>>,
    mut d_residual: ComptimeOption<Box<[T]>>,
    mut partials: ComptimeOption<Box<[W]>>,
    rows: usize,
    rows_per_cube: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] slots: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    let first = CUBE_POS * rows_per_cube;
    if first >= rows {
        terminate!();
    }
    let end = clamp_max(first + rows_per_cube, rows);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(units + 16));
    let mut bias_total = zeros::<W>(slots);
    let mut gamma_total = zeros::<W>(slots);
    let mut beta_total = zeros::<W>(slots);
    let mut d = zeros::<W>(slots);
    let mut normalized = zeros::<W>(slots);

    for row in first..end {
        let mean = mean[row];
        let rstd = rstd[row];
        let factors = factors::<W, I>(mask, row, slots, units);
        let s = sum::<T, W>(x, bias, residual, &factors, row, hidden, units, slots);
        #[unroll(slots <= 16)]
        for i in 0..slots {
            let column = column(i, units);
            if column < hidden {
                d[i] = W::cast_from(grad[row * hidden + column]);
                normalized[i] = (s[i] - mean) * rstd;
                beta_total[i] += d[i];
                gamma_total[i] += d[i] * normalized[i];
            }
        }
        let ds =
            layer_norm_backward::<T, W>(&d, &normalized, gamma, rstd, &mut scratch, hidden, units, slots);
        #[unroll(slots <= 16)]
        for i in 0..slots {
            let column = column(i, units);
            if column < hidden {
                let place = row * hidden + column;
                let dropped = ds[i] * factors[i];
                bias_total[i] += dropped;
                #[comptime]
                match &mut dx {
                    ComptimeOption::Some(dx) => dx[place] = T::cast_from(dropped),
                    ComptimeOption::None => {}
                }
                #[comptime]
                match &mut d_residual {
                    ComptimeOption::Some(d_residual) => d_residual[place] = T::cast_from(ds[i]),
                    ComptimeOption::None => {}
                }
            }
        }
    }

    #[comptime]
    match &mut partials {
        ComptimeOption::Some(partials) => {
            let cubes = rows.div_ceil(rows_per_cube);
            store_share::<W>(&bias_total, partials, 0usize, cubes, hidden, units, slots);
            store_share::<W>(&gamma_total, partials, 1usize, cubes, hidden, units, slots);
            store_share::<W>(&beta_total, partials, 2usize, cubes, hidden, units, slots);
        }
        ComptimeOption::None => {}
    }
}
