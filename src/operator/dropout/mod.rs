//! Dropout, as the operators take it.

#[cfg(feature = "_cubecl")]
mod cube;
pub(crate) mod ops;

use super::inputs::Tensors;
#[cfg(feature = "flex")]
use super::philox::Mask;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchAutodiffContext};
use burn::prelude::*;
use burn::tensor::Distribution;
use ops::DropoutOps;

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
    /// The dropout of an operator with these operands: active on an autodiff device, if `prob` > 0.
    ///
    /// # Panics
    ///
    /// If `prob` is not in [0, 1).
    pub(crate) fn choose(prob: f64, operands: Vec<Option<&FloatTensor<Dispatch>>>) -> Self {
        assert!((0.0..1.0).contains(&prob), "dropout: the probability is {prob}, but must lie in [0, 1)");
        let is_active = |tensor: &&FloatTensor<Dispatch>| {
            prob > 0.0 && tensor.autodiff != DispatchAutodiffContext::Disabled
        };
        let Some(tensor) = operands.into_iter().flatten().find(is_active) else { return Self::Inactive };
        let device = Tensor::<1>::from_dispatch(tensor.clone()).device();
        let seed = Tensor::<1, Int>::random([4], Distribution::Uniform(0.0, 65536.0), &device);
        Self::Philox { seed: seed.into_dispatch(), prob }
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
    #[cfg(feature = "flex")]
    pub(crate) fn mask(&self) -> Option<Mask> {
        let Self::Philox { seed, prob } = self else { return None };
        Some(ops::read_mask::<B>(seed.clone(), *prob))
    }

    /// The elements of `tensor` that are kept, scaled.
    pub(crate) fn apply(&self, tensor: FloatTensor<B>) -> FloatTensor<B>
    where
        B: DropoutOps,
    {
        match self {
            Self::Inactive => tensor,
            Self::Philox { seed, prob } => B::dropout(tensor, seed.clone(), *prob),
        }
    }
}
