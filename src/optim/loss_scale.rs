//! The scale of gradients in f16.

use super::clip::SumOfSquares;
use crate::operator::precision::{Precision, scaled_autocast};
use burn::module::Module;
use burn::optim::GradientsParams;
use serde::{Deserialize, Serialize};

/// Keeps gradients in f16 from vanishing: the scale that they are stored with, which adapts, as that of PyTorch's
/// `GradScaler`.
///
/// It begins at 65536, doubles after 2000 steps without overflow, and is halved where gradients overflowed; such a step is
/// not taken. It stays between 2⁻¹²⁶ and 2¹²⁶, where it and its reciprocal are normal numbers of f32. Gradients of parameters come without the scale: there is nothing to unscale, and batches that are added up may
/// have had different scales.
///
/// ```
/// use burn::optim::GradientsParams;
/// use burn::prelude::*;
/// # use burn::nn::LinearConfig;
/// use burn_bert::functional::linear;
/// use burn_bert::optim::{AdamWConfig, LossScale, adamw};
///
/// # let device = Device::default().autodiff();
/// # let mut model = LinearConfig::new(3, 4).with_bias(false).init(&device);
/// # let x = Tensor::<2>::ones([1, 3], &device);
/// let mut optimizer = adamw(&AdamWConfig::new());
/// let mut scale = LossScale::new();
/// for _ in 0..2 {
///     let loss = scale.autocast(|| linear(x.clone(), model.weight.val(), None).square().mean());
///     let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
///     if scale.update(&model, &mut gradients) {
///         model = optimizer.step(1e-3, model, gradients);
///     }
/// }
/// assert_eq!(scale.scale(), 65536.0);
/// ```
///
/// To resume a training exactly, save it with serde. [`Training`](crate::training) does all this for Burn's `Learner`.
///
/// Source: `torch.amp.GradScaler` of PyTorch 2.15.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    scale: f64,
    /// Steps since the scale changed.
    steps: usize,
}

/// Steps without overflow after which the scale doubles.
const GROWTH_INTERVAL: usize = 2000;

impl LossScale {
    /// A scale of 65536.
    #[allow(clippy::new_without_default)] // a default would say nothing
    pub fn new() -> Self {
        Self { scale: 65536.0, steps: 0 }
    }

    /// What gradients in f16 are multiplied with.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// [`autocast`](crate::functional::autocast) in f16 with this scale.
    pub fn autocast<T>(&self, f: impl FnOnce() -> T) -> T {
        scaled_autocast(Precision::F16, self.scale, f)
    }

    /// Adapts the scale to the gradients of a step, and returns whether the step is to be taken: all of them are finite.
    ///
    /// On other devices than the CPU, one number is read back.
    pub fn update<M: Module>(&mut self, model: &M, gradients: &mut GradientsParams) -> bool {
        self.take_in(SumOfSquares::of(model, &mut [gradients]))
    }

    /// [`update`](Self::update) by the sum of the gradients' squares.
    pub(crate) fn take_in(&mut self, squares: SumOfSquares) -> bool {
        let is_finite = squares.all_finite();
        self.steps += 1;
        if !is_finite || self.steps == GROWTH_INTERVAL {
            let smallest = f64::from(f32::MIN_POSITIVE);
            let scale = self.scale * if is_finite { 2.0 } else { 0.5 };
            *self = Self { scale: scale.clamp(smallest, smallest.recip()), steps: 0 };
        }
        is_finite
    }
}

#[cfg(feature = "train")]
impl LossScale {
    /// Both numbers, `[2]`: a power of two and a count, which f32 holds exactly.
    pub(crate) fn state(&self) -> burn::tensor::TensorData {
        burn::tensor::TensorData::from([self.scale as f32, self.steps as f32])
    }

    /// From [`state`](Self::state).
    pub(crate) fn from_state(mut state: impl Iterator<Item = f64>) -> Self {
        let mut next = || state.next().expect("a scale and a count");
        Self { scale: next(), steps: next() as usize }
    }
}
