//! Sums over all rows: each cube of a backward adds up some rows and stores its share, then the shares are added up.

use crate::cube::launch::{RowLaunch, Split, UNITS, UNROLLED, address_type, buffer, column};
use crate::cube::row::{cube_sum, scratch_values};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::tensor::CubeTensor;

/// The most shares of a total: cubes enough for the largest GPU; with more the second launch would have more to add than the first.
/// Not tuned.
const SHARES: usize = 1024;

/// Units that add up one column between them. Not tuned.
const LANES: usize = 8;

impl RowLaunch {
    pub(crate) fn rows_per_cube(&self) -> usize {
        // At least four, so that the shares are few beside the rows themselves.
        self.rows.div_ceil(SHARES).max(4)
    }

    /// The cubes that take all rows.
    pub(crate) fn shares(&self) -> usize {
        self.rows.div_ceil(self.rows_per_cube())
    }

    /// Room for the shares of some totals, [totals, cubes, H]; `None` for none.
    pub(crate) fn partials(&self, totals: usize) -> Option<CubeTensor> {
        (totals > 0).then(|| self.empty([totals, self.shares(), self.hidden], self.wide))
    }

    /// The first totals of `partials`, each `[H]` in `dtype`, by one launch: views of one buffer.
    pub(crate) fn totals(&self, partials: &CubeTensor, totals: usize, dtype: DType) -> Vec<CubeTensor> {
        let (all, stride, views) = self.parts(totals, Shape::new([self.hidden]), dtype);
        self.total(partials.clone(), 0..totals, all, 0, stride);
        views
    }

    /// The sums of `groups` of so many rows as the launch has, each `[H]`, by one launch if they are of a usual batch. Groups begin `apart`
    /// values from each other.
    pub(crate) fn sums_of_rows(
        &self,
        mut rows: CubeTensor,
        groups: usize,
        mut apart: usize,
    ) -> Vec<CubeTensor> {
        let mut count = self.rows;
        loop {
            let sums = count.div_ceil(SHARES);
            if sums == 1 {
                let (all, stride, views) = self.parts(groups, Shape::new([self.hidden]), self.wide);
                self.add_up([rows, all], 0..groups, [count, count], [apart, 0, stride]);
                return views;
            }
            let output = self.empty([groups * sums, self.hidden], self.wide);
            self.add_up([rows, output.clone()], 0..groups * sums, [count, SHARES], [apart, 0, self.hidden]);
            (rows, count, apart) = (output, sums, sums * self.hidden);
        }
    }

    /// Adds the shares of `totals` up into `output`, from `start` on and `stride` apart.
    pub(crate) fn total(
        &self,
        partials: CubeTensor,
        totals: std::ops::Range<usize>,
        output: CubeTensor,
        start: usize,
        stride: usize,
    ) {
        let rows = self.shares();
        self.add_up([partials, output], totals, [rows, rows], [rows * self.hidden, start, stride]);
    }

    /// For each of `totals` adds up at most `shares` rows, of a group of `count` rows. Groups begin `apart` values from each other.
    fn add_up(
        &self,
        [partials, output]: [CubeTensor; 2],
        totals: std::ops::Range<usize>,
        [count, shares]: [usize; 2],
        [apart, start, stride]: [usize; 3],
    ) {
        let units = self.max_units;
        // Small cubes have too few columns to share.
        let lanes = if units == UNITS { LANES } else { 1 };
        let dtypes = [partials.dtype, output.dtype, self.wide].map(dtype_to_elem_type);
        total::launch(
            &self.client,
            self.cubes(totals.len() * self.hidden.div_ceil(units / lanes)),
            CubeDim::new_1d(units as u32),
            address_type([&partials, &output]),
            buffer(partials),
            output.into_tensor_arg(),
            totals.start,
            totals.end,
            count,
            shares,
            apart,
            start,
            stride,
            self.hidden,
            units,
            lanes,
            dtypes,
        );
    }

    /// `share` · Σ `values`, `[1]` in `dtype`, by one cube; values are in `wide`.
    pub(crate) fn sum(&self, values: CubeTensor, share: f64, dtype: DType) -> CubeTensor {
        let sum = self.empty([1], dtype);
        sum_kernel::launch(
            &self.client,
            self.cubes(1),
            CubeDim::new_1d(self.max_units as u32),
            address_type([&values]),
            buffer(values),
            sum.clone().into_buffer_arg(),
            self.scalar(share),
            self.max_units,
            [dtype, self.wide].map(dtype_to_elem_type),
        );
        sum
    }
}

/// `sum[0] = share · Σ values`, by one cube.
#[cube(launch, address_type = "dynamic")]
fn sum_kernel<T: Float, W: Float>(
    values: &[W],
    sum: &mut [T],
    share: InputScalar,
    #[comptime] units: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let mut scratch = Shared::<[W]>::new_slice(comptime!(scratch_values(units)));
    let mut total = W::new(0.0);
    let mut index = UNIT_POS as usize;
    while index < values.len() {
        total += values[index];
        index += units;
    }
    let total = cube_sum::<W>(total, &mut scratch, units);
    // A device may launch more cubes than were asked for.
    if CUBE_POS == 0 && UNIT_POS == 0 {
        sum[0] = T::cast_from(total * share.get::<W>());
    }
}

/// Stores a unit's part of a share of total `index`, which lies in `partials` [totals, cubes, H], if totals are asked for.
#[cube]
pub(crate) fn store_share<W: Float>(
    share: &Array<W>,
    partials: &mut ComptimeOption<Box<[W]>>,
    index: usize,
    cubes: usize,
    #[comptime] hidden: usize,
    #[comptime] split: Split,
) {
    #[unroll(split.slots <= UNROLLED)]
    for i in 0..split.slots {
        let column = column(i, split);
        if column < hidden {
            store::<W, W>(partials, (index * cubes + CUBE_POS) * hidden + column, share[i]);
        }
    }
}

/// Stores a value, or a vector of them, where it is asked for.
#[cube]
pub(crate) fn store<T: CubePrimitive, W: CubePrimitive>(
    to: &mut ComptimeOption<Box<[T]>>,
    index: usize,
    value: W,
) {
    #[comptime]
    match to {
        ComptimeOption::Some(to) => to[index] = T::cast_from(value),
        ComptimeOption::None => {}
    }
}

/// `output[start + t · stride ..][column]` = Σ over at most `shares` rows of `partials[.., column]` from row (first + t) · shares on, of groups
/// of `count` rows that begin `apart` values from each other.
#[cube(launch, address_type = "dynamic")]
fn total<P: Float, T: Float, W: Float>(
    partials: &[P],
    output: &mut Tensor<T>,
    first: usize,
    end: usize,
    count: usize,
    shares: usize,
    apart: usize,
    start: usize,
    stride: usize,
    #[comptime] hidden: usize,
    #[comptime] units: usize,
    #[comptime] lanes: usize,
    #[define(P, T, W)] _dtypes: [ElemType; 3],
) {
    let columns = comptime!(units / lanes);
    let blocks = comptime!(hidden.div_ceil(columns));
    let index = first + CUBE_POS / blocks;
    if index >= end {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let column = CUBE_POS % blocks * columns + unit % columns;
    let mut scratch = Shared::<[W]>::new_slice(units);
    let mut sum = W::new(0.0);
    if column < hidden {
        let of_group = count.div_ceil(shares);
        let (group, share) = (index / of_group, index % of_group);
        let mut row = share * shares + unit / columns;
        let end = clamp_max((share + 1) * shares, count);
        while row < end {
            sum += W::cast_from(partials[group * apart + row * hidden + column]);
            row += lanes;
        }
    }
    scratch[unit] = sum;
    sync_cube();
    if unit < columns && column < hidden {
        let mut sum = W::new(0.0);
        #[unroll]
        for lane in 0..lanes {
            sum += scratch[unit + lane * columns];
        }
        output[start + (index - first) * stride + column] = T::cast_from(sum);
    }
}
