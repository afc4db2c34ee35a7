//! Dropout's mask, as [`crate::numerics::philox`] defines it.

use crate::cube::launch::{RowLaunch, Split, WORDS, buffer, column_of, int_tensor, is_computed};
use crate::numerics::dropout::{Dropout, DropoutOps, Seeded};
use crate::numerics::philox::{self, GROUP, LANES};
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, prelude::*};

impl RowLaunch {
    /// The mask of a dropout, if it does something.
    pub(crate) fn mask(&self, dropout: &Dropout<CubeBackend>) -> Option<MaskLaunch> {
        dropout.0.as_ref().map(|seeded| self.seeded(seeded))
    }

    fn seeded(&self, Seeded { seeds, row, prob }: &Seeded<CubeBackend>) -> MaskLaunch {
        let (threshold, scale) = philox::threshold_and_scale(*prob);
        MaskLaunch::new(int_tensor(seeds.clone()), 4 * row, threshold, self.scalar(scale))
    }
}

/// The seed of a mask, its threshold and its scale.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Mask {
    /// [K, 4].
    seeds: OwnedTensor<i32>,
    /// The first integer of the seed.
    first: usize,
    /// An element whose word is below is dropped.
    threshold: u32,
    /// 1 / (1 − p).
    scale: InputScalar,
}

#[cube]
impl Mask {
    /// What dropout multiplies the four columns of `counter` by.
    pub(crate) fn factors<W: Float>(&self, token: usize, counter: usize) -> Array<W> {
        let scale = self.scale.get::<W>();
        let words = philox4x32_10(
            counter as u32,
            token as u32,
            seed_half(&self.seeds, self.first),
            seed_half(&self.seeds, self.first + 2),
        );
        let mut factors = Array::<W>::new(4usize);
        #[unroll]
        for i in 0..4usize {
            factors[i] = if words[i] < self.threshold { W::new(0.0) } else { scale };
        }
        factors
    }
}

/// 32 bits of the key out of two seed integers.
#[cube]
fn seed_half(seeds: &OwnedTensor<i32>, first: usize) -> u32 {
    (u32::cast_from(seeds[first]) & 0xFFFF) | (u32::cast_from(seeds[first + 1]) << 16)
}

/// The four words at counter (`counter`, `token`, 0, 0).
#[cube]
fn philox4x32_10(counter: u32, token: u32, key0: u32, key1: u32) -> Array<u32> {
    let mut c0 = counter;
    let mut c1 = token;
    let mut c2 = 0u32;
    let mut c3 = 0u32;
    let mut k0 = key0;
    let mut k1 = key1;
    #[unroll]
    for round in 0..10u32 {
        if comptime!(round > 0) {
            k0 += 0x9E37_79B9u32;
            k1 += 0xBB67_AE85u32;
        }
        let high0 = c0.mul_hi(0xD251_1F53u32);
        let low0 = c0 * 0xD251_1F53u32;
        let high1 = c2.mul_hi(0xCD9E_8D57u32);
        let low1 = c2 * 0xCD9E_8D57u32;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
    }
    let mut words = Array::<u32>::new(4usize);
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
    words
}

impl DropoutOps for CubeBackend {
    fn dropout(tensor: FloatTensor<Self>, seeded: &Seeded<Self>) -> FloatTensor<Self> {
        let shape = tensor.shape();
        let columns = shape[shape.num_dims() - 1];
        let count = shape.num_elements();
        assert!(is_computed(tensor.dtype), "dropout: no kernel for {:?}", tensor.dtype);
        // No device launches zero cubes.
        if count == 0 {
            return tensor;
        }
        let launch = RowLaunch::new(&tensor, [count / columns, columns]);
        let output = launch.empty(shape, tensor.dtype);
        let counters = Split::counters(columns) * launch.rows;
        dropout::launch(
            &launch.client,
            launch.cubes(counters.div_ceil(launch.max_units)),
            CubeDim::new_1d(launch.max_units as u32),
            launch.address_type,
            buffer(tensor),
            launch.seeded(seeded),
            output.clone().into_buffer_arg(),
            launch.rows,
            columns,
            launch.floats(),
        );
        output
    }
}

#[cube(launch, address_type = "dynamic")]
fn dropout<T: Float, W: Float>(
    input: &[T],
    mask: &Mask,
    output: &mut [T],
    rows: usize,
    columns: usize,
    #[define(T, W)] _dtypes: [ElemType; 2],
) {
    let counters = columns.div_ceil(GROUP) * LANES;
    let row = ABSOLUTE_POS / counters;
    let counter = ABSOLUTE_POS % counters;
    if row >= rows {
        terminate!();
    }
    let factors = mask.factors::<W>(row, counter);
    #[unroll]
    for i in 0..WORDS {
        let column = column_of(counter, i);
        if column < columns {
            let index = row * columns + column;
            output[index] = T::cast_from(W::cast_from(input[index]) * factors[i]);
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::backend::{Backend, Flex, get_or_init_device_settings, try_read_sync};
    use burn::tensor::{DType, TensorData};

    /// A tensor of odd numbers, dropped, in f64.
    fn dropped<B: DropoutOps>(shape: &[usize], dtype: DType, seed: [i32; 4], prob: f64) -> Vec<f64> {
        let device = Default::default();
        let values = (0..shape.iter().product::<usize>()).map(|i| (2 * (i % 500)) as f32 - 499.0).collect();
        let tensor =
            B::float_from_data(TensorData::new::<f32, _>(values, shape).convert_dtype(dtype), &device);
        // The seed's row is the last of three.
        let seeds = TensorData::from([[5, 6, 7, 8], [9; 4], seed]);
        let seeds = seeds.convert_dtype(get_or_init_device_settings::<B>(&device).int_dtype.into());
        let seeded = Seeded { seeds: B::int_from_data(seeds, &device), row: 2, prob };
        let dropped = B::float_into_data(B::dropout(tensor, &seeded));
        try_read_sync(dropped).unwrap().unwrap().iter::<f64>().collect()
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
        let mut dtypes = vec![DType::F16, DType::BF16];
        dtypes.retain(|&dtype| CubeBackend::supports_dtype(&Default::default(), dtype));
        assert!(!dtypes.is_empty(), "no 16-bit floats; `--skip sixteen_bit` leaves this test out");
        for dtype in dtypes {
            let (shape, seed) = ([31, 127], [1, 2, 3, 4]);
            let expected = dropped::<Flex>(&shape, dtype, seed, 0.3);
            assert!(dropped::<CubeBackend>(&shape, dtype, seed, 0.3) == expected, "{dtype:?}");
        }
    }
}
