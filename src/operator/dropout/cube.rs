//! The kernel for CubeCL's devices: each unit drops the four columns of one counter.

use super::ops::DropoutOps;
use crate::operator::cube::launch::{RowLaunch, buffer, is_computed};
use crate::operator::cube::mask::{Mask, mask_args};
use crate::operator::cube::row::column_of;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;

impl DropoutOps for CubeBackend {
    fn dropout(
        tensor: FloatTensor<Self>,
        seeds: IntTensor<Self>,
        row: usize,
        prob: f64,
    ) -> FloatTensor<Self> {
        let shape = tensor.shape();
        let columns = shape[shape.num_dims() - 1];
        let count = shape.num_elements();
        assert!(is_computed(tensor.dtype), "dropout: no kernel for {:?}", tensor.dtype);
        if count == 0 {
            return tensor;
        }
        let launch = RowLaunch::new(&tensor, [count / columns, columns]);
        let output =
            empty_device_contiguous_dtype(tensor.client.clone(), tensor.device.clone(), shape, tensor.dtype);
        let counters = 16 * columns.div_ceil(64) * launch.rows;
        dropout::launch(
            &launch.client,
            launch.cubes(counters.div_ceil(launch.max_units)),
            CubeDim::new_1d(launch.max_units as u32),
            launch.address_type,
            buffer(tensor),
            mask_args(seeds, row, prob, DType::I32, launch.wide),
            output.clone().into_buffer_arg(),
            launch.rows,
            columns,
            launch.dtypes(DType::I32),
        );
        output
    }
}

#[cube(launch, address_type = "dynamic")]
fn dropout<T: Float, W: Float, I: Int>(
    input: &[T],
    mask: &Mask<I>,
    output: &mut [T],
    rows: usize,
    columns: usize,
    #[define(T, W, I)] _dtypes: [ElemType; 3],
) {
    let counters = columns.div_ceil(64) * 16;
    let row = ABSOLUTE_POS / counters;
    let counter = ABSOLUTE_POS % counters;
    if row >= rows {
        terminate!();
    }
    let factors = mask.factors::<W>(row, counter);
    #[unroll]
    for i in 0..4usize {
        let column = column_of(counter, i);
        if column < columns {
            let place = row * columns + column;
            output[place] = T::cast_from(W::cast_from(input[place]) * factors[i]);
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::backend::{Backend, Flex, try_read_sync};
    use burn::tensor::{FloatDType, TensorData};

    /// A tensor of odd numbers, dropped, in f64.
    fn dropped<B: DropoutOps>(shape: &[usize], dtype: FloatDType, seed: [i32; 4], prob: f64) -> Vec<f64> {
        let device = Default::default();
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| (2 * (i % 500)) as f32 - 499.0).collect();
        let values = TensorData::new(values, shape).convert_dtype(dtype.into());
        // The seed's row is the last of three.
        let seeds = [[5, 6, 7, 8], [9; 4], seed].as_flattened().to_vec();
        let seeds = B::int_from_data(TensorData::new(seeds, [3, 4]), &device);
        let dropped = B::dropout(B::float_from_data(values, &device), seeds, 2, prob);
        try_read_sync(B::float_into_data(dropped)).unwrap().unwrap().iter::<f64>().collect()
    }

    #[test]
    fn kernel_gives_the_bits_of_the_host() {
        let shapes: [&[usize]; 6] = [&[1, 1], &[5, 1], &[70, 1023], &[127, 3], &[2, 3, 65, 64], &[0, 8]];
        for (shape, prob) in shapes.into_iter().zip([0.1, 0.5, 0.4, 0.9, 0.1, 0.1]) {
            for seed in [[1, 70, 7000, 65535], [0, 0, 0, 0]] {
                let run = |of: fn(&[usize], FloatDType, [i32; 4], f64) -> Vec<f64>| {
                    of(shape, FloatDType::F32, seed, prob)
                };
                let expected = run(dropped::<Flex>);
                assert!(run(dropped::<CubeBackend>) == expected, "{shape:?}");
            }
        }
    }

    /// Multiplied in f32 and rounded once, as on the host.
    #[test]
    fn sixteen_bit_floats_are_dropped_by_the_same_bits() {
        let mut dtypes = vec![FloatDType::F16, FloatDType::BF16];
        dtypes.retain(|&dtype| CubeBackend::supports_dtype(&Default::default(), dtype.into()));
        assert!(
            !dtypes.is_empty(),
            "the device has no 16-bit floats; `--skip sixteen_bit` leaves this test out"
        );
        for dtype in dtypes {
            let run = |of: fn(&[usize], FloatDType, [i32; 4], f64) -> Vec<f64>| {
                of(&[31, 127], dtype, [1, 2, 3, 4], 0.3)
            };
            assert!(run(dropped::<CubeBackend>) == run(dropped::<Flex>), "{dtype:?}");
        }
    }
}
