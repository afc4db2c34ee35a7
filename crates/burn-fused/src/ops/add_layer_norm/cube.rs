//! The kernels for CubeCL's devices: one forward; two backward, of which one adds up column sums.

use super::{AddLayerNorm, AddLayerNormOp};
use crate::cube::launch::{RowLaunch, buffer};
use crate::cube::mask::Mask;
use crate::cube::row::{column, factors, layer_norm, layer_norm_backward, ones, zeros};
use crate::cube::totals::store_share;
use crate::engine::operator::{Kernels, Operator, Output};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// Buffers that the backward binds, with CubeCL's own for sizes and scalars; the forward binds fewer.
const BINDINGS: u32 = 13;

/// `None` for inputs that the kernels do not take.
fn launch(input: &AddLayerNorm<CubeBackend>) -> Option<RowLaunch> {
    let AddLayerNorm { x, bias, residual, gamma, beta, .. } = input;
    RowLaunch::of(input.path, &[x, bias, residual, gamma, beta], x.meta.shape().dims(), BINDINGS)
}

impl Kernels<CubeBackend> for AddLayerNormOp {
    fn forward(input: AddLayerNorm<CubeBackend>) -> Output<Self, CubeBackend> {
        let Some(on) = launch(&input) else { return Self::reference(input) };
        let y = on.empty([on.rows, on.hidden], on.float);
        let [mean, rstd] = [(); 2].map(|()| on.empty([on.rows, 1], on.wide));
        forward_kernel::launch(
            &on.client,
            on.cubes(on.rows),
            on.cube_dim(),
            on.address_type,
            buffer(input.x),
            buffer(input.bias),
            buffer(input.residual),
            buffer(input.gamma),
            buffer(input.beta),
            on.scalar(input.epsilon),
            on.mask(&input.dropout, DType::I32).into(),
            y.clone().into_buffer_arg(),
            mean.clone().into_buffer_arg(),
            rstd.clone().into_buffer_arg(),
            on.rows,
            on.hidden,
            on.units,
            on.slots(),
            on.dtypes(DType::I32),
        );
        (y, [mean, rstd])
    }

    fn backward(
        input: AddLayerNorm<CubeBackend>,
        statistics: [CubeTensor; 2],
        grad: CubeTensor,
        needs: [bool; 5],
    ) -> Vec<Option<CubeTensor>> {
        let Some(on) = launch(&input) else {
            return Self::reference_backward(input, statistics, grad, needs);
        };
        let [x, bias, residual, gamma, beta] = needs;
        let matrix = |needed: bool| needed.then(|| on.empty([on.rows, on.hidden], on.float));
        let (dx, d_residual) = (matrix(x), matrix(residual));
        let partials = on.partials(if bias || gamma || beta { 3 } else { 0 });
        let arg = |tensor: &Option<CubeTensor>| tensor.clone().map(CubeTensor::into_buffer_arg);
        let [mean, rstd] = statistics.map(buffer);
        backward_kernel::launch(
            &on.client,
            on.cubes(on.shares()),
            on.cube_dim(),
            on.address_type,
            buffer(input.x),
            buffer(input.bias),
            buffer(input.residual),
            buffer(input.gamma),
            on.mask(&input.dropout, DType::I32).into(),
            mean,
            rstd,
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
        vec![dx, vector(bias, 0), d_residual, vector(gamma, 1), vector(beta, 2)]
    }
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
    mean: &mut [W],
    rstd: &mut [W],
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
    layer_norm::<T, W>(&mut s, &ones, gamma, beta, epsilon, y, mean, rstd, row, hidden, units, slots);
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
