//! The operator, as an extension of Burn's backends.

#![cfg_attr(feature = "ndarray", allow(deprecated))] // what the macro generates names Burn's NdArray

use crate::operator::dtype::{narrow, wide};
use crate::operator::philox::{GROUP, Mask};
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{AutodiffBackend, Backend, TensorMetadata, backend_extension, try_read_sync};
use burn::tensor::TensorData;

/// Dropout with a mask that is a function of its seed, see [`Dropout`](super::Dropout).
///
/// The default body draws the mask on the host: right for devices whose memory is the host's. A kernel must give the
/// same bits.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "_cubecl"),
    Remote: cfg(feature = "remote"),
    Fusion: cfg(feature = "_cubecl"),
    Autodiff,
)]
pub trait DropoutOps: Backend {
    /// `tensor` [.., H] times its mask.
    ///
    /// A token is an index into all axes but the last, row-major; a column is an index into the last. f16 and bf16 are
    /// multiplied in f32.
    ///
    /// # Panics
    ///
    /// The default body panics on a device that cannot be read without waiting for a browser's event loop.
    #[fusion(dtype = tensor, shape = tensor)]
    fn dropout(tensor: FloatTensor<Self>, seed: IntTensor<Self>, prob: f64) -> FloatTensor<Self> {
        let mask = read_mask::<Self>(seed, prob);
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

/// The mask of a seed, which is read back.
pub(super) fn read_mask<B: Backend>(seed: IntTensor<B>, prob: f64) -> Mask {
    let Some(Ok(data)) = try_read_sync(B::int_into_data(seed)) else {
        panic!("the seed of a dropout mask could not be read from its device")
    };
    let words: Vec<u32> = data.iter::<u32>().collect();
    Mask::new(std::array::from_fn(|i| words[i]), prob)
}

#[cfg(feature = "flex")]
impl DropoutOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl DropoutOps for burn::backend::NdArray {}

/// A worker runs dropout as part of its operators.
#[cfg(feature = "remote")]
impl DropoutOps for burn::backend::Remote {}

impl<B: DropoutOps, C: CheckpointStrategy> DropoutOps for Autodiff<B, C> {
    fn dropout(tensor: FloatTensor<Self>, seed: IntTensor<Self>, prob: f64) -> FloatTensor<Self> {
        let ones = B::float_ones(tensor.shape(), &tensor.device(), tensor.dtype().into());
        Self::float_mul(tensor, Self::from_inner(B::dropout(ones, seed, prob)))
    }
}
