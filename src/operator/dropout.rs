//! Dropout, as the operators take it.

use super::device::draws_masks;
use super::inputs::Tensors;
use super::philox::{GROUP, Mask};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchAutodiffContext, TensorMetadata, try_read_sync};
use burn::prelude::*;
use burn::tensor::Distribution;

/// The elements that dropout keeps.
#[derive(Clone, Debug)]
pub(crate) enum Dropout<T: Tensors> {
    /// All of them.
    Inactive,
    /// Each with probability 1 − `prob`, scaled by 1 / (1 − `prob`).
    ///
    /// The mask is a function of `seed`, the token and the column alone, so the backward computes it again.
    /// It is the same on every device, in every dtype, and on any number of threads.
    Philox {
        /// Four integers in 0..65536: the 64 bits of the generator's key, least significant first.
        seed: T::Int,
        /// The probability of a zero, in [0, 1).
        prob: f64,
    },
}

impl Dropout<Dispatch> {
    /// The dropout of an operator with these float inputs: active on an autodiff device, if `prob` > 0.
    ///
    /// `None` if it is active, but the device's mask has to be Burn's own.
    ///
    /// # Panics
    ///
    /// If `prob` is not in [0, 1).
    pub(crate) fn choose<'a>(
        prob: f64,
        inputs: impl IntoIterator<Item = &'a FloatTensor<Dispatch>>,
    ) -> Option<Self> {
        assert!((0.0..1.0).contains(&prob), "dropout: the probability is {prob}, but must lie in [0, 1)");
        let is_active = |tensor: &&FloatTensor<Dispatch>| {
            prob > 0.0 && tensor.autodiff != DispatchAutodiffContext::Disabled
        };
        let Some(tensor) = inputs.into_iter().find(is_active) else { return Some(Self::Inactive) };
        if !draws_masks(&tensor.kind) {
            return None;
        }
        let device = Tensor::<1>::from_dispatch(tensor.clone()).device();
        let seed = Tensor::<1, Int>::random([4], Distribution::Uniform(0.0, 65536.0), &device);
        Some(Self::Philox { seed: seed.into_dispatch(), prob })
    }
}

impl<T: Tensors> Dropout<T> {
    pub(crate) fn map<U: Tensors>(
        self,
        _float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Dropout<U> {
        match self {
            Self::Inactive => Dropout::Inactive,
            Self::Philox { seed, prob } => Dropout::Philox { seed: int(seed), prob },
        }
    }

    /// None: nothing in it has a gradient.
    pub(crate) fn operands(&self) -> [Option<&T::Float>; 0] {
        []
    }

    #[cfg(feature = "remote")]
    pub(crate) fn put(&self, to: &mut Vec<super::wire::Number>) {
        let prob = match self {
            Self::Inactive => None,
            Self::Philox { prob, .. } => Some(*prob),
        };
        super::wire::Plain::put(&prob, to);
    }
}

#[cfg(feature = "remote")]
impl Dropout<super::inputs::Places> {
    pub(crate) fn take(from: &mut super::wire::Numbers) -> Self {
        match super::wire::Plain::take(from) {
            None => Self::Inactive,
            Some(prob) => Self::Philox { seed: (), prob },
        }
    }
}

impl<B: Backend> Dropout<B> {
    /// The mask, its seed read back.
    ///
    /// # Panics
    ///
    /// On a device that cannot be read without waiting for a browser's event loop; dropout there is Burn's own.
    pub(crate) fn mask(&self) -> Option<Mask> {
        let Self::Philox { seed, prob } = self else { return None };
        let Some(Ok(data)) = try_read_sync(B::int_into_data(seed.clone())) else {
            panic!("the seed of a dropout mask could not be read from its device")
        };
        let words: Vec<u32> = data.iter::<u32>().collect();
        Some(Mask::new(std::array::from_fn(|i| words[i]), *prob))
    }

    /// The elements of `tensor` that are kept, scaled. The mask is made on the host.
    ///
    /// A token is an index into all axes but the last, row-major; a column is an index into the last.
    pub(crate) fn apply(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let Some(mask) = self.mask() else { return tensor };
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
        let factors = TensorData::new(factors, shape).convert_dtype(tensor.dtype());
        let factors = B::float_from_data(factors, &tensor.device());
        B::float_mul(tensor, factors)
    }
}
