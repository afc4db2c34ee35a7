//! Dropout, as the operators take it, and seeds of masks, from the generator of a device.

use crate::engine::call::{Seed, SeedSource, with_current, within};
use crate::engine::inputs::Tensors;
use crate::numerics::philox::{GROUP, Mask};
use crate::numerics::precision::{narrow, wide};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, DispatchAutodiffContext, TensorMetadata, try_read_sync};
use burn::prelude::*;
use burn::tensor::{Distribution, TensorData};
use std::collections::VecDeque;
use std::mem::take;

/// What dropout does: nothing if `None`.
#[derive(Clone, Debug)]
pub(crate) struct Dropout<T: Tensors>(pub(crate) Option<Seeded<T>>);

/// Keeps each element with probability 1 − `prob`, scaled by 1 / (1 − `prob`).
// The mask is a function of the seed, the token and the column alone, so the backward computes it again. It is the same on
// every device, in every dtype, and on any number of threads.
#[derive(Clone, Debug)]
pub(crate) struct Seeded<T: Tensors> {
    /// Seeds, [K, 4]. A seed is four integers in 0..65536: the 64 bits of the generator's key, least significant first.
    pub(crate) seeds: T::Int,
    /// The row of the seed.
    pub(crate) row: usize,
    /// The probability of a zero, in [0, 1).
    pub(crate) prob: f64,
}

impl Dropout<Dispatch> {
    /// The dropout of an operator with these operands: active on an autodiff device, if `prob` > 0. Panics if `prob` is not in
    /// [0, 1).
    pub(crate) fn choose(prob: f64, operands: Vec<Option<&FloatTensor<Dispatch>>>) -> Self {
        assert!((0.0..1.0).contains(&prob), "dropout: the probability is {prob}, but must lie in [0, 1)");
        // Without dropout no seed is drawn: other random numbers stay the same.
        let mut operands = operands.into_iter().flatten().filter(|_| prob > 0.0);
        // The device of the operand that is under autodiff: others may be constants from outside.
        let operand = operands.find(|operand| operand.autodiff != DispatchAutodiffContext::Disabled);
        Self(operand.map(|operand| {
            let (seeds, row) = next_seed(&Tensor::<1>::from_dispatch(operand.clone()).device());
            Seeded { seeds: seeds.into_dispatch(), row, prob }
        }))
    }
}

impl<T: Tensors> Dropout<T> {
    pub(crate) fn map<U: Tensors>(
        self,
        _float: &mut impl FnMut(T::Float) -> U::Float,
        int: &mut impl FnMut(T::Int) -> U::Int,
    ) -> Dropout<U> {
        Dropout(self.0.map(|Seeded { seeds, row, prob }| Seeded { seeds: int(seeds), row, prob }))
    }

    /// No operands: neither seeds nor probability have a gradient.
    pub(crate) fn operands(&self) -> [Option<&T::Float>; 0] {
        []
    }
}

impl<B: Backend> Dropout<B> {
    #[cfg(feature = "flex")]
    pub(crate) fn mask(&self) -> Option<Mask> {
        self.0.as_ref().map(read_mask::<B>)
    }

    /// The elements of `tensor` that are kept, scaled.
    pub(crate) fn apply(&self, tensor: FloatTensor<B>) -> FloatTensor<B>
    where
        B: DropoutOps,
    {
        match &self.0 {
            None => tensor,
            Some(seeded) => B::dropout(tensor, seeded),
        }
    }
}

/// Dropout with a mask that is a function of its seed. The default body draws it on the host: right for devices whose memory
/// is the host's. A kernel must give the same bits.
pub(crate) trait DropoutOps: Backend {
    /// `tensor` [.., H] times its mask: a token is an index into all axes but the last, row-major, a column one into the last.
    /// f16 and bf16 are multiplied in f32. The default body panics on a device that cannot be read without waiting for a
    /// browser's event loop.
    fn dropout(tensor: FloatTensor<Self>, seeded: &Seeded<Self>) -> FloatTensor<Self> {
        let mask = read_mask::<Self>(seeded);
        let shape = tensor.shape();
        let columns = shape[shape.num_dims() - 1];
        let mut factors = Vec::with_capacity(shape.num_elements());
        // Without columns there are no tokens.
        for token in 0..(shape.num_elements() / columns.max(1)) as u64 {
            for group in 0..columns.div_ceil(GROUP) {
                let words = mask.words(token, group as u32).into_iter().take(columns - group * GROUP);
                factors.extend(words.map(|word| if mask.keeps(word) { mask.scale } else { 0.0 }));
            }
        }
        let dtype = tensor.dtype();
        // Scaled in f32 and rounded once, as kernels do.
        let tensor = wide::<Self>(tensor);
        let factors = TensorData::new(factors, shape).convert_dtype(tensor.dtype());
        let factors = Self::float_from_data(factors, &tensor.device());
        narrow::<Self>(Self::float_mul(tensor, factors), dtype)
    }
}

/// The mask of a seed, which is read back.
fn read_mask<B: Backend>(Seeded { seeds, row, prob }: &Seeded<B>) -> Mask {
    let Some(Ok(data)) = try_read_sync(B::int_into_data(seeds.clone())) else {
        panic!("the seed of a dropout mask could not be read from its device")
    };
    let words: Vec<u32> = data.iter::<u32>().collect();
    Mask::new(std::array::from_fn(|i| words[4 * row + i]), *prob)
}

#[cfg(feature = "flex")]
impl DropoutOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn deprecates NdArray; it is supported as long as Burn ships it.
impl DropoutOps for burn::backend::NdArray {}

/// Fusion's queue runs operators as a whole.
#[cfg(feature = "_cubecl")]
impl DropoutOps for burn::backend::Cube {}

/// On a device that the operators do not know, the mask is Burn's own.
impl DropoutOps for Dispatch {
    fn dropout(tensor: FloatTensor<Self>, Seeded { prob, .. }: &Seeded<Self>) -> FloatTensor<Self> {
        let (shape, device, dtype) = (tensor.shape(), tensor.device(), tensor.dtype());
        let mask = Self::float_random(shape, Distribution::Bernoulli(1.0 - prob), &device, dtype.into());
        Self::float_mul_scalar(Self::float_mul(tensor, mask), (1.0 / (1.0 - prob)).into())
    }
}

/// Runs `f`, whose first `count` operators with dropout on one device get the rows of one draw, in the order in which they
/// are called.
///
/// A queue such as that of Burn's fusion can run independent draws in another order than they were asked for. Inside another
/// call `f` goes on with that call's seeds.
///
/// ```
/// use burn::prelude::*;
/// use burn_fused::{drop_out, with_one_draw};
///
/// let x = Tensor::<2>::ones([2, 4], &Device::default().autodiff());
/// let y = with_one_draw(2, || drop_out(drop_out(x, 0.1), 0.1));
/// assert_eq!(y.dims(), [2, 4]);
/// ```
pub fn with_one_draw<T>(count: usize, f: impl FnOnce() -> T) -> T {
    if with_current(|call| !matches!(call.seeds.source, SeedSource::Own)) {
        return f();
    }
    within(|call| &mut call.seeds.source, SeedSource::OneDraw { count, drawn: VecDeque::new() }, f).0
}

/// What `f` returns, and the seeds that its operators got, those of parts that record their own among them.
pub(crate) fn recorded<T>(f: impl FnOnce() -> T) -> (T, Vec<Seed>) {
    let (result, seeds) = within(|call| &mut call.seeds.recorded, Some(Vec::new()), f);
    let seeds = seeds.expect("nothing else stops the recording");
    with_current(|call| {
        if let Some(outer) = &mut call.seeds.recorded {
            outer.extend(seeds.iter().cloned());
        }
    });
    (result, seeds)
}

/// Runs `f`, whose operators get the seeds of a recorded call. Panics if they ask for others.
pub(crate) fn replayed<T>(seeds: Vec<Seed>, f: impl FnOnce() -> T) -> T {
    let (result, left) = within(|call| &mut call.seeds.source, SeedSource::Recorded(seeds.into()), f);
    assert!(matches!(left, SeedSource::Recorded(seeds) if seeds.is_empty()), "{OTHER_MASKS}");
    result
}

const OTHER_MASKS: &str = "a recomputed part drops out other values in its backward than in its forward; it must compute the \
    same from the same module, x and context";

/// Seeds on a device, and the row of one that no other operator has.
fn next_seed(device: &Device) -> Seed {
    // Outside autodiff: those of one draw go to operators with and without gradient checkpointing, whose tensors Burn does
    // not mix.
    let device = device.clone().without_autodiff();
    let announced = with_current(|call| match &mut call.seeds.source {
        SeedSource::OneDraw { count, .. } => take(count),
        _ => 0,
    });
    if announced > 0 {
        let seeds = draw(announced, &device);
        with_current(|call| {
            if let SeedSource::OneDraw { drawn, .. } = &mut call.seeds.source {
                drawn.extend((0..announced).map(|row| (seeds.clone(), row)));
            }
        });
    }
    let given = with_current(|call| match &mut call.seeds.source {
        SeedSource::Own => None,
        // A model may span devices; the draw is on one.
        SeedSource::OneDraw { drawn, .. } => drawn.pop_front_if(|(seeds, _)| seeds.device() == device),
        SeedSource::Recorded(seeds) => {
            Some(seeds.pop_front().filter(|(seeds, _)| seeds.device() == device).expect(OTHER_MASKS))
        }
    });
    // More operators than were announced: each draws for itself.
    let seed = given.unwrap_or_else(|| (draw(1, &device), 0));
    with_current(|call| {
        if let Some(seeds) = &mut call.seeds.recorded {
            seeds.push(seed.clone());
        }
    });
    seed
}

fn draw(count: usize, device: &Device) -> Tensor<2, Int> {
    // 16 bits each: devices draw integers as floats, which hold no 32.
    Tensor::random([count, 4], Distribution::Uniform(0.0, 65536.0), device)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    /// The seed, and how many its draw has.
    fn seed() -> (Vec<i32>, usize) {
        let (seeds, row) = next_seed(&Device::flex());
        let drawn = seeds.dims()[0];
        (seeds.narrow(0, row, 1).into_data().iter::<i32>().collect(), drawn)
    }

    #[test]
    fn operators_of_a_forward_have_seeds_of_their_own_from_one_draw() {
        let mut seeds = with_one_draw(3, || {
            let first = seed();
            // An encoder within a model.
            let second = with_one_draw(2, seed);
            vec![first, second, seed(), seed()]
        });
        seeds.push(seed());
        assert_eq!(seeds.iter().map(|seed| seed.1).collect::<Vec<_>>(), [3, 3, 3, 1, 1]);
        for (i, a) in seeds.iter().enumerate() {
            assert!(a.0.iter().all(|word| (0..65536).contains(word)), "{a:?}");
            assert!(seeds[..i].iter().all(|b| a.0 != b.0), "{seeds:?}");
        }
    }
}
