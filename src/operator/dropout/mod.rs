//! Dropout, as the operators take it.

#[cfg(feature = "_cubecl")]
mod cube;
pub(crate) mod ops;
mod seeds;

use super::inputs::Tensors;
#[cfg(feature = "flex")]
use super::philox::Mask;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchAutodiffContext};
use burn::prelude::*;
use ops::DropoutOps;
pub(crate) use seeds::{Seed, recorded, replayed, with_one_draw};

/// The elements that dropout keeps.
#[derive(Clone, Debug)]
pub(crate) enum Dropout<T: Tensors> {
    /// All of them.
    Inactive,
    /// Each with probability 1 − `prob`, scaled by 1 / (1 − `prob`).
    ///
    /// The mask is a function of the seed, the token and the column alone, so the backward computes it again.
    /// It is the same on every device, in every dtype, and on any number of threads.
    Philox {
        /// Seeds, [K, 4]. A seed is four integers in 0..65536: the 64 bits of the generator's key, least significant
        /// first.
        seeds: T::Int,
        /// The row of the seed.
        row: usize,
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
        let (seeds, row) = seeds::next(&Tensor::<1>::from_dispatch(tensor.clone()).device());
        Self::Philox { seeds: seeds.into_dispatch(), row, prob }
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
            Self::Philox { seeds, row, prob } => Dropout::Philox { seeds: int(seeds), row, prob },
        }
    }

    /// None: nothing in it has a gradient.
    pub(crate) fn operands(&self) -> [Option<&T::Float>; 0] {
        []
    }

    #[cfg(feature = "remote")]
    pub(crate) fn put(&self, to: &mut Vec<super::wire::Number>) {
        use super::wire::Plain;
        match self {
            Self::Inactive => false.put(to),
            Self::Philox { row, prob, .. } => {
                true.put(to);
                row.put(to);
                prob.put(to);
            }
        }
    }
}

#[cfg(feature = "remote")]
impl Dropout<super::inputs::Places> {
    pub(crate) fn take(from: &mut super::wire::Numbers) -> Self {
        use super::wire::Plain;
        match bool::take(from) {
            false => Self::Inactive,
            true => Self::Philox { seeds: (), row: usize::take(from), prob: f64::take(from) },
        }
    }
}

impl<B: Backend> Dropout<B> {
    /// The mask, its seed read back.
    #[cfg(feature = "flex")]
    pub(crate) fn mask(&self) -> Option<Mask> {
        let Self::Philox { seeds, row, prob } = self else { return None };
        Some(ops::read_mask::<B>(seeds.clone(), *row, *prob))
    }

    /// The elements of `tensor` that are kept, scaled.
    pub(crate) fn apply(&self, tensor: FloatTensor<B>) -> FloatTensor<B>
    where
        B: DropoutOps,
    {
        match self {
            Self::Inactive => tensor,
            Self::Philox { seeds, row, prob } => B::dropout(tensor, seeds.clone(), *row, *prob),
        }
    }
}
