//! Dropout for the references, which compute in single steps.

use crate::operator::dtype::{narrow, wide};
use crate::operator::philox::{GROUP, Mask};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, TensorMetadata, try_read_sync};
use burn::tensor::{Distribution, TensorData};

/// Dropout with a mask that is a function of its seed, a row of `seeds`; see [`Dropout`](super::Dropout).
///
/// The default body draws the mask on the host: right for devices whose memory is the host's. A kernel must give the
/// same bits.
pub(crate) trait DropoutOps: Backend {
    /// `tensor` [.., H] times its mask.
    ///
    /// A token is an index into all axes but the last, row-major; a column is an index into the last. f16 and bf16 are
    /// multiplied in f32.
    ///
    /// # Panics
    ///
    /// The default body panics on a device that cannot be read without waiting for a browser's event loop.
    fn dropout(
        tensor: FloatTensor<Self>,
        seeds: IntTensor<Self>,
        row: usize,
        prob: f64,
    ) -> FloatTensor<Self> {
        let mask = read_mask::<Self>(seeds, row, prob);
        let shape = tensor.shape();
        let columns = shape[shape.num_dims() - 1];
        let mut factors = Vec::with_capacity(shape.num_elements());
        for token in 0..(shape.num_elements() / columns.max(1)) as u64 {
            for group in 0..columns.div_ceil(GROUP) {
                let columns = GROUP.min(columns - group * GROUP);
                let words = mask.words(token, group as u32);
                factors.extend(
                    words[..columns].iter().map(|&word| if mask.keeps(word) { mask.scale } else { 0.0 }),
                );
            }
        }
        let dtype = tensor.dtype();
        let tensor = wide::<Self>(tensor);
        let factors = TensorData::new(factors, shape).convert_dtype(tensor.dtype());
        let factors = Self::float_from_data(factors, &tensor.device());
        narrow::<Self>(Self::float_mul(tensor, factors), dtype)
    }
}

/// The mask of a row of seeds, which are read back.
pub(super) fn read_mask<B: Backend>(seeds: IntTensor<B>, row: usize, prob: f64) -> Mask {
    let Some(Ok(data)) = try_read_sync(B::int_into_data(seeds)) else {
        panic!("the seed of a dropout mask could not be read from its device")
    };
    let words: Vec<u32> = data.iter::<u32>().collect();
    Mask::new(std::array::from_fn(|i| words[4 * row + i]), prob)
}

#[cfg(feature = "flex")]
impl DropoutOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn deprecates NdArray; it is supported as long as Burn ships it.
impl DropoutOps for burn::backend::NdArray {}

/// Fusion's queue runs operators as a whole.
#[cfg(feature = "_cubecl")]
impl DropoutOps for burn::backend::Cube {}

/// A worker runs operators as a whole.
#[cfg(feature = "remote")]
impl DropoutOps for burn::backend::Remote {}

/// On a device that the operators do not know, the mask is Burn's own.
impl DropoutOps for Dispatch {
    fn dropout(
        tensor: FloatTensor<Self>,
        _seeds: IntTensor<Self>,
        _row: usize,
        prob: f64,
    ) -> FloatTensor<Self> {
        let (shape, device, dtype) = (tensor.shape(), tensor.device(), tensor.dtype());
        let mask = Self::float_random(shape, Distribution::Bernoulli(1.0 - prob), &device, dtype.into());
        Self::float_mul_scalar(Self::float_mul(tensor, mask), (1.0 / (1.0 - prob)).into())
    }
}
