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
        let output = launch.empty(shape, tensor.dtype);
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
    use crate::operator::testing::{float, int, numbers, sixteen_bits};
    use burn::backend::Flex;

    /// A tensor of odd numbers, dropped, in f64.
    fn dropped<B: DropoutOps>(shape: &[usize], dtype: DType, seed: [i32; 4], prob: f64) -> Vec<f64> {
        let values = (0..shape.iter().product::<usize>()).map(|i| (2 * (i % 500)) as f32 - 499.0).collect();
        // The seed's row is the last of three.
        let seeds = [[5, 6, 7, 8], [9; 4], seed].as_flattened().to_vec();
        numbers::<B>(&B::dropout(float::<B>(values, shape, dtype), int::<B>(seeds, [3, 4]), 2, prob))
    }

    #[test]
    fn kernel_gives_the_bits_of_the_host() {
        let shapes: [&[usize]; 6] = [&[1, 1], &[5, 1], &[70, 1023], &[127, 3], &[2, 3, 65, 64], &[0, 8]];
        for (shape, prob) in shapes.into_iter().zip([0.1, 0.5, 0.4, 0.9, 0.1, 0.1]) {
            for seed in [[1, 70, 7000, 65535], [0, 0, 0, 0]] {
                let expected = dropped::<Flex>(shape, DType::F32, seed, prob);
                assert!(dropped::<CubeBackend>(shape, DType::F32, seed, prob) == expected, "{shape:?}");
            }
        }
    }

    /// Multiplied in f32 and rounded once, as on the host.
    #[test]
    fn sixteen_bit_floats_are_dropped_by_the_same_bits() {
        for dtype in sixteen_bits::<CubeBackend>() {
            let (shape, seed) = ([31, 127], [1, 2, 3, 4]);
            let expected = dropped::<Flex>(&shape, dtype, seed, 0.3);
            assert!(dropped::<CubeBackend>(&shape, dtype, seed, 0.3) == expected, "{dtype:?}");
        }
    }
}
