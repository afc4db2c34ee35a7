//! CubeCL's devices: Burn's autotuned matmuls of operands in 16 bits, which reach tensor cores, added up in f32.

use super::{Linear, LinearOp, backward, forward};
use crate::cube::launch::{RowLaunch, buffer, product};
use crate::engine::operator::{Gradients, Kernels, Operator, Output, Upstream};
use crate::numerics::precision::narrow;
use crate::ops::activation::cube::{activated, launch};
use crate::ops::activation::{Activation, BiasActivation, BiasActivationOp};
use burn::backend::cubecl::dtype_to_elem_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;

impl Kernels<CubeBackend> for LinearOp {
    fn forward(input: Linear<CubeBackend>) -> Output<Self, CubeBackend> {
        forward::<CubeBackend>(input, affine, rounded)
    }

    fn backward(input: Linear<CubeBackend>, upstream: Upstream<Self, CubeBackend>) -> Gradients<CubeBackend> {
        backward::<CubeBackend>(input, upstream, affine, total)
    }
}

fn affine(a: CubeTensor, b: CubeTensor, bias: Option<CubeTensor>, output: DType) -> CubeTensor {
    let Some(bias) = bias else { return product(a, b, output) };
    let (x, bias) = (product(a, b, DType::F32), cast(bias, DType::F32));
    let sum = BiasActivation { x, bias, gate: None, activation: Activation::Identity };
    // The matmul's own rounding would be before the bias.
    match launch(&sum) {
        Some(on) => activated(&on, sum, output),
        None => narrow::<CubeBackend>(BiasActivationOp::reference(sum).0, output),
    }
}

/// Both in `dtype`, by one launch where neither is.
fn rounded([a, b]: [CubeTensor; 2], dtype: DType) -> [CubeTensor; 2] {
    if a.dtype == dtype || a.dtype != b.dtype {
        return [a, b].map(|tensor| narrow::<CubeBackend>(tensor, dtype));
    }
    let shapes = [&a, &b].map(|tensor| tensor.meta.shape().clone());
    let on = RowLaunch::new(&a, [1, shapes.iter().map(Shape::num_elements).sum()]);
    let outputs = shapes.map(|shape| on.empty(shape, dtype));
    let [to_a, to_b] = outputs.clone();
    round::launch(
        &on.client,
        on.cubes(on.hidden.div_ceil(on.max_units)),
        CubeDim::new_1d(on.max_units as u32),
        on.address_type,
        buffer(a),
        buffer(b),
        to_a.into_buffer_arg(),
        to_b.into_buffer_arg(),
        [dtype, on.float].map(dtype_to_elem_type),
    );
    outputs
}

#[cube(launch, address_type = "dynamic")]
fn round<T: Float, W: Float>(
    a: &[W],
    b: &[W],
    to_a: &mut [T],
    to_b: &mut [T],
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    if ABSOLUTE_POS < a.len() {
        to_a[ABSOLUTE_POS] = T::cast_from(a[ABSOLUTE_POS]);
    } else if ABSOLUTE_POS - a.len() < b.len() {
        to_b[ABSOLUTE_POS - a.len()] = T::cast_from(b[ABSOLUTE_POS - a.len()]);
    }
}

/// The sum of all rows as the gradient of `bias`, added up in f32.
fn total(rows: CubeTensor, bias: &CubeTensor) -> CubeTensor {
    let mut sums = rows;
    loop {
        let [count, columns] = sums.meta.shape().dims();
        let on = RowLaunch::new(&sums, [count, columns]);
        let (shares, blocks) = (count.div_ceil(ROWS), columns.div_ceil(COLUMNS));
        let output = on.empty([shares, columns], on.wide);
        column_sums::launch(
            &on.client,
            on.cubes(shares * blocks),
            CubeDim::new_1d((COLUMNS * LANES) as u32),
            on.address_type,
            buffer(sums),
            output.clone().into_buffer_arg(),
            count,
            columns,
            on.floats(),
        );
        sums = output;
        if shares == 1 {
            return narrow::<CubeBackend>(CubeBackend::float_reshape(sums, [columns].into()), bias.dtype);
        }
    }
}

/// Rows that a cube adds up, at most: those of a usual batch take one launch.
const ROWS: usize = 2048;
/// Columns of a cube.
const COLUMNS: usize = 32;
/// Units that add up one column between them.
const LANES: usize = 8;

/// `sums[share][column]` = Σ of the share's rows.
#[cube(launch, address_type = "dynamic")]
fn column_sums<T: Float, W: Float>(
    rows: &[T],
    sums: &mut [W],
    count: usize,
    columns: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let blocks = columns.div_ceil(COLUMNS);
    let share = CUBE_POS / blocks;
    let unit = UNIT_POS as usize;
    let column = CUBE_POS % blocks * COLUMNS + unit % COLUMNS;
    let end = clamp_max((share + 1) * ROWS, count);
    let mut scratch = Shared::<[W]>::new_slice(comptime!(COLUMNS * LANES));
    let mut sum = W::new(0.0);
    if column < columns {
        let mut row = share * ROWS + unit / COLUMNS;
        while row < end {
            sum += W::cast_from(rows[row * columns + column]);
            row += LANES;
        }
    }
    scratch[unit] = sum;
    sync_cube();
    // A device may launch more cubes than were asked for.
    if unit < COLUMNS && column < columns && share * ROWS < count {
        let mut sum = W::new(0.0);
        #[unroll]
        for lane in 0..LANES {
            sum += scratch[unit + lane * COLUMNS];
        }
        sums[share * columns + column] = sum;
    }
}

#[cfg(all(test, feature = "wgpu"))]
#[path = "../../../../../tests/support/launches/mod.rs"]
mod launches;

#[cfg(test)]
mod tests {
    #[cfg(feature = "wgpu")]
    use super::launches::launches;
    use super::*;
    use burn::backend::try_read_sync;
    use burn::tensor::{TensorData, Tolerance};

    fn tensor(shape: [usize; 2], step: usize) -> CubeTensor {
        let values: Vec<f32> =
            (0..shape[0] * shape[1]).map(|i| ((i * step) % 23) as f32 / 16.0 - 0.7).collect();
        CubeBackend::float_from_data(TensorData::new::<f32, _>(values, shape), &Default::default())
    }

    /// In f16, for software adapters have no bf16: the code is the same.
    #[test]
    fn operands_in_16_bits_have_the_products_of_the_reference() {
        let [rows, inputs, outputs] = [37, 65, 19];
        for bias in [None, Some(CubeBackend::float_reshape(tensor([1, outputs], 5), [outputs].into()))] {
            let (dtype, needs) = (DType::F16, [true, true, bias.is_some()]);
            let (x, weight) = (tensor([rows, inputs], 7), tensor([inputs, outputs], 11));
            let input = Linear::<CubeBackend> { x, weight, bias, dtype, output: dtype };
            let (y, statistics) = <LinearOp as Kernels<CubeBackend>>::forward(input.clone());
            let (expected_y, others) = LinearOp::reference::<CubeBackend>(input.clone());
            assert_eq!(y.dtype, dtype);
            let grad = cast(tensor([rows, outputs], 13), dtype);
            let upstream = |statistics| Upstream { statistics, grad: grad.clone(), needs };
            let mut found = <LinearOp as Kernels<CubeBackend>>::backward(input.clone(), upstream(statistics));
            let mut expected = LinearOp::reference_backward::<CubeBackend>(input, upstream(others));
            found.push(Some(y));
            expected.push(Some(expected_y));
            for (found, expected) in found.into_iter().flatten().zip(expected.into_iter().flatten()) {
                assert_eq!(found.dtype, expected.dtype);
                let [found, expected] = [found, expected]
                    .map(|tensor| try_read_sync(CubeBackend::float_into_data(tensor)).unwrap().unwrap());
                found.assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(2e-3, 2e-3));
            }
        }
    }

    #[test]
    fn more_rows_than_one_cube_takes_are_added_up() {
        let [rows, columns] = [2 * ROWS + 1, COLUMNS + 1];
        let bias = tensor([1, columns], 1);
        let found = total(tensor([rows, columns], 7), &CubeBackend::float_reshape(bias, [columns].into()));
        let found = try_read_sync(CubeBackend::float_into_data(found)).unwrap().unwrap();
        let value = |i: usize| f64::from(((i * 7) % 23) as f32 / 16.0 - 0.7);
        let expected = (0..columns).map(|column| (0..rows).map(|row| value(row * columns + column)).sum());
        let expected: Vec<f64> = expected.collect();
        found.assert_approx_eq::<f64>(
            &TensorData::from(expected.as_slice()).convert::<f32>(),
            Tolerance::rel_abs(1e-5, 1e-2),
        );
    }

    /// Beside the three matmuls: one rounds both operands, one adds the bias as it rounds, one adds up the rows of a gradient.
    #[cfg(feature = "wgpu")]
    #[test]
    fn a_layer_in_16_bits_takes_three_launches_beside_its_matmuls() {
        let (dtype, bias) = (DType::F16, CubeBackend::float_reshape(tensor([1, 19], 5), [19].into()));
        let (x, weight) = (tensor([37, 65], 7), tensor([65, 19], 11));
        let input = Linear::<CubeBackend> { x, weight, bias: Some(bias), dtype, output: dtype };
        let grad = cast(tensor([37, 19], 13), dtype);
        let run = || {
            let (_, statistics) = <LinearOp as Kernels<CubeBackend>>::forward(input.clone());
            let upstream = Upstream { statistics, grad: grad.clone(), needs: [true; 3] };
            <LinearOp as Kernels<CubeBackend>>::backward(input.clone(), upstream)
        };
        // Burn tunes its matmuls first.
        (0..4).for_each(|_| drop(run()));
        let mut found = launches(&burn::prelude::Device::wgpu(Default::default()), run);
        found.retain(|name| !name.contains("Matmul"));
        assert_eq!(found, ["Round", "ForwardKernel", "ColumnSums"]);
    }
}
