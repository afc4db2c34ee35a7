//! LayerNorm of rows that are added up as they are read: the kernels of `add_layer_norm` and `embed_layer_norm`.

use crate::cube::launch::{RowLaunch, Split, UNROLLED, buffer, column, int_tensor, output};
use crate::cube::mask::Mask;
use crate::cube::row::{cube_sum, cube_sums, factors, filled, nearest_row, scratch_values};
use crate::cube::totals::{store, store_share};
use crate::numerics::dropout::Dropout;
use burn::backend::cubecl::dtype_to_elem_type;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;

/// Three rows that are added up to the one that is normalised: words + token_types + positions, of which y is dropped, or, with a
/// residual, mask · (x + bias) + residual.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Summands<T: Float> {
    first: ComptimeOption<Source<T>>,
    second: ComptimeOption<Source<T>>,
    third: ComptimeOption<Source<T>>,
    #[cube(comptime)]
    has_residual: bool,
}

/// A table, and which of its rows a token reads.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Source<T: Float> {
    table: OwnedTensor<T>,
    /// The row by id, one for each token or one for each place of a sequence.
    ids: ComptimeOption<OwnedTensor<i32>>,
    /// Without ids: the row of token 0, ...
    first: usize,
    /// ... and the number of tokens after which the rows repeat.
    period: usize,
    last: u32,
}

pub(crate) fn source<T: Float>(
    table: CubeTensor,
    ids: Option<CubeTensor>,
    [first, period]: [usize; 2],
) -> SourceLaunch<T> {
    // Kernels know the stride of rows alone.
    let table = if table.meta.strides().last() == Some(&1) { table } else { into_contiguous(table) };
    let last = table.meta.shape()[0] - 1;
    SourceLaunch::new(table.into_tensor_arg(), ids.map(int_tensor).into(), first, period, last as u32)
}

#[cube]
impl<T: Float> Summands<T> {
    /// A unit's columns of a row, 0 past the last column.
    fn row<W: Float>(
        &self,
        row: usize,
        factors: &Array<W>,
        #[comptime] hidden: usize,
        #[comptime] split: Split,
    ) -> Array<W> {
        let mut sum = filled::<W>(0.0, split);
        let first = start::<T>(&self.first, row);
        let second = start::<T>(&self.second, row);
        let third = start::<T>(&self.third, row);
        #[unroll(split.slots <= UNROLLED)]
        for i in 0..split.slots {
            let column = column(i, split);
            if column < hidden {
                let x = self.added::<W>(sum[i], &self.first, first + column);
                let x = self.added::<W>(x, &self.second, second + column);
                let x = self.drop_summand::<W>(x, factors[i]);
                sum[i] = self.added::<W>(x, &self.third, third + column);
            }
        }
        sum
    }

    /// A source's value added to `x`; a table's is rounded to `T` as Burn's additions round.
    fn added<W: Float>(&self, x: W, source: &ComptimeOption<Source<T>>, index: usize) -> W {
        #[comptime]
        match source {
            ComptimeOption::Some(source) => {
                let sum = x + W::cast_from(source.table[index]);
                if comptime!(self.has_residual) { sum } else { W::cast_from(T::cast_from(sum)) }
            }
            ComptimeOption::None => x,
        }
    }

    /// What dropout's `factor` does to the summand that has a gradient of its own.
    fn drop_summand<W: Float>(&self, value: W, factor: W) -> W {
        if comptime!(self.has_residual) { value * factor } else { value }
    }

    /// What dropout's `factor` does to y.
    fn drop_output<W: Float>(&self, value: W, factor: W) -> W {
        if comptime!(self.has_residual) { value } else { value * factor }
    }
}

/// The index in a table at which the row of `token` begins.
#[cube]
fn start<T: Float>(source: &ComptimeOption<Source<T>>, token: usize) -> usize {
    #[comptime]
    match source {
        ComptimeOption::Some(source) => {
            #[comptime]
            let row = match &source.ids {
                ComptimeOption::Some(ids) => nearest_row(ids, token, source.last) as usize,
                ComptimeOption::None => source.first + token % source.period,
            };
            row * source.table.stride(0)
        }
        ComptimeOption::None => 0usize,
    }
}

impl RowLaunch {
    /// y, [.., H], and of each row mean and rstd, [.., 1]; `axes` are those before the last.
    pub(crate) fn layer_norm(
        &self,
        axes: &[usize],
        summands: SummandsLaunch<forward::T>,
        [gamma, beta]: [CubeTensor; 2],
        epsilon: f64,
        dropout: &Dropout<CubeBackend>,
    ) -> (CubeTensor, [CubeTensor; 2]) {
        let shape = |last: usize| [axes, &[last]].concat();
        let (y, vectors) = (self.empty(shape(self.hidden), self.float), gamma.dtype);
        let [mean, rstd] = [(); 2].map(|()| self.empty(shape(1), self.wide));
        forward::launch(
            &self.client,
            self.cubes(self.rows),
            self.cube_dim(),
            self.address_type,
            summands,
            buffer(gamma),
            buffer(cast(beta, vectors)),
            self.scalar(epsilon),
            self.mask(dropout).into(),
            y.clone().into_buffer_arg(),
            mean.clone().into_buffer_arg(),
            rstd.clone().into_buffer_arg(),
            self.rows,
            self.hidden,
            self.split,
            [self.float, self.wide, vectors].map(dtype_to_elem_type),
        );
        (y, [mean, rstd])
    }

    /// Stores, where there is room for them, the gradients of the summands and of the residual, and the shares of three totals:
    /// of γ, of β and of the summands' gradient.
    pub(crate) fn layer_norm_backward(
        &self,
        summands: SummandsLaunch<backward::T>,
        gamma: CubeTensor,
        dropout: &Dropout<CubeBackend>,
        statistics: [CubeTensor; 2],
        grad: CubeTensor,
        [dx, d_residual, partials]: [&Option<CubeTensor>; 3],
    ) {
        let [mean, rstd] = statistics.map(buffer);
        let (dx_dtype, vectors) = (dx.as_ref().map_or(self.float, |dx| dx.dtype), gamma.dtype);
        backward::launch(
            &self.client,
            self.cubes(self.shares()),
            self.cube_dim(),
            self.address_type,
            summands,
            buffer(gamma),
            self.mask(dropout).into(),
            mean,
            rstd,
            buffer(grad),
            output(dx).into(),
            output(d_residual).into(),
            output(partials).into(),
            self.rows,
            self.rows_per_cube(),
            self.hidden,
            self.split,
            [self.float, self.wide, dx_dtype, vectors].map(dtype_to_elem_type),
        );
    }
}

/// y = (x − mean) · rstd · γ + β of each row x, with its mean and rstd; one cube a row.
#[cube(launch, address_type = "dynamic")]
fn forward<T: Float, W: Float, G: Float>(
    summands: &Summands<T>,
    gamma: &[G],
    beta: &[G],
    epsilon: InputScalar,
    mask: &ComptimeOption<Mask>,
    y: &mut [T],
    means: &mut [W],
    rstds: &mut [W],
    rows: usize,
    #[comptime] hidden: usize,
    #[comptime] split: Split,
    #[define(T, W, G)] _dtypes: [ElemType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let factors = factors::<W>(mask, row, split);
    let mut x = summands.row::<W>(row, &factors, hidden, split);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(2 * scratch_values(split.units)));
    let length = W::cast_from(comptime!(hidden as u32));
    let mut sum = W::new(0.0);
    #[unroll(split.slots <= UNROLLED)]
    for i in 0..split.slots {
        sum += x[i];
    }
    let mean = cube_sum::<W>(sum, &mut scratch, split.units) / length;

    // The mean is subtracted before values are squared: Σ x² / H − mean² would cancel. Of large values the sum has lost digits: the
    // mean is off by what deviations from it add up to.
    let mut off = W::new(0.0);
    let mut squares = W::new(0.0);
    #[unroll(split.slots <= UNROLLED)]
    for i in 0..split.slots {
        // Past the last column x would become −mean.
        if column(i, split) < hidden {
            x[i] -= mean;
            off += x[i];
            squares += x[i] * x[i];
        }
    }
    let (off, squares) = cube_sums::<W>(off, squares, &mut scratch, split.units);
    let off = off / length;
    let variance = squares / length - off * off;
    // Of equal values rounding makes it negative; NaN stays.
    let variance = select(variance < W::new(0.0), W::new(0.0), variance);
    let rstd = W::new(1.0) / (variance + epsilon.get::<W>()).sqrt();

    #[unroll(split.slots <= UNROLLED)]
    for i in 0..split.slots {
        let column = column(i, split);
        if column < hidden {
            let value = (x[i] - off) * rstd * W::cast_from(gamma[column]) + W::cast_from(beta[column]);
            y[row * hidden + column] = T::cast_from(summands.drop_output::<W>(value, factors[i]));
        }
    }
    if UNIT_POS == 0 {
        means[row] = mean + off;
        rstds[row] = rstd;
    }
}

/// Each cube takes `rows_per_cube` rows in turn. It stores the gradients of the summands in `O` and of the residual in `T`,
/// and its share of the totals of γ, β and the summands' gradient.
#[cube(launch, address_type = "dynamic")]
fn backward<T: Float, W: Float, O: Float, G: Float>(
    summands: &Summands<T>,
    gamma: &[G],
    mask: &ComptimeOption<Mask>,
    means: &[W],
    rstds: &[W],
    grad: &[T],
    mut dx: ComptimeOption<Box<[O]>>,
    mut d_residual: ComptimeOption<Box<[T]>>,
    mut partials: ComptimeOption<Box<[W]>>,
    rows: usize,
    rows_per_cube: usize,
    #[comptime] hidden: usize,
    #[comptime] split: Split,
    #[define(T, W, O, G)] _dtypes: [ElemType; 4],
) {
    let first = CUBE_POS * rows_per_cube;
    if first >= rows {
        terminate!();
    }
    let end = clamp_max(first + rows_per_cube, rows);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(2 * scratch_values(split.units)));
    let length = W::cast_from(comptime!(hidden as u32));
    let mut gamma_total = filled::<W>(0.0, split);
    let mut beta_total = filled::<W>(0.0, split);
    let mut summand_total = filled::<W>(0.0, split);
    // ∂L/∂y · γ and x̂, 0 past the last column.
    let mut g = filled::<W>(0.0, split);
    let mut normalized = filled::<W>(0.0, split);

    for row in first..end {
        let mean = means[row];
        let rstd = rstds[row];
        let factors = factors::<W>(mask, row, split);
        let x = summands.row::<W>(row, &factors, hidden, split);
        let mut average = W::new(0.0);
        let mut along = W::new(0.0);
        #[unroll(split.slots <= UNROLLED)]
        for i in 0..split.slots {
            let column = column(i, split);
            if column < hidden {
                let d = W::cast_from(grad[row * hidden + column]);
                let d = summands.drop_output::<W>(d, factors[i]);
                normalized[i] = (x[i] - mean) * rstd;
                beta_total[i] += d;
                gamma_total[i] += d * normalized[i];
                g[i] = d * W::cast_from(gamma[column]);
                average += g[i];
                along += g[i] * normalized[i];
            }
        }
        let (average, along) = cube_sums::<W>(average, along, &mut scratch, split.units);
        let average = average / length;
        let along = along / length;
        #[unroll(split.slots <= UNROLLED)]
        for i in 0..split.slots {
            let column = column(i, split);
            if column < hidden {
                let index = row * hidden + column;
                let ds = rstd * (g[i] - average - normalized[i] * along);
                let dropped = summands.drop_summand::<W>(ds, factors[i]);
                // In `W`: what is stored is rounded, its total is not.
                summand_total[i] += dropped;
                store::<O, W>(&mut dx, index, dropped);
                store::<T, W>(&mut d_residual, index, ds);
            }
        }
    }

    let cubes = rows.div_ceil(rows_per_cube);
    store_share::<W>(&gamma_total, &mut partials, 0usize, cubes, hidden, split);
    store_share::<W>(&beta_total, &mut partials, 1usize, cubes, hidden, split);
    store_share::<W>(&summand_total, &mut partials, 2usize, cubes, hidden, split);
}
