//! Dropout's mask, as [`crate::operator::philox`] defines it.

use crate::operator::philox;
use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;

/// The mask of a row of `seeds`, read as integers of dtype `ints`, with factors in `wide`.
pub(crate) fn mask_args<I: Int>(
    seeds: CubeTensor,
    row: usize,
    prob: f64,
    ints: DType,
    wide: DType,
) -> MaskLaunch<I> {
    let (threshold, scale) = philox::threshold_and_scale(prob);
    let seeds = into_contiguous(cast(seeds, ints)).into_tensor_arg();
    MaskLaunch::new(seeds, 4 * row, threshold, InputScalar::new(scale, dtype_to_elem_type(wide)))
}

/// Where the mask's seed is, threshold and scale.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Mask<I: Int> {
    /// [K, 4].
    seeds: OwnedTensor<I>,
    /// The first integer of the seed.
    first: usize,
    /// An element whose word is below is dropped.
    threshold: u32,
    /// 1 / (1 − p).
    scale: InputScalar,
}

#[cube]
impl<I: Int> Mask<I> {
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
fn seed_half<I: Int>(seeds: &OwnedTensor<I>, first: usize) -> u32 {
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
