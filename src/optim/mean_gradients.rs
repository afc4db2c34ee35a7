//! Gradients of several batches.

use super::clip::Factor;
use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};

/// The mean of the gradients of several batches, g = (g₁ + … + gₙ) / n, for accumulation in a custom loop; Burn's
/// `GradientsAccumulator` has their sum. Batches are counted, so the last step of an epoch may have fewer.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::GradientsParams;
/// use burn::prelude::*;
/// use burn_bert::optim::MeanGradients;
///
/// let device = Device::default().autodiff();
/// let model = LinearConfig::new(2, 1).init(&device);
/// let mut mean = MeanGradients::new();
/// for batch in [[1.0, 2.0], [3.0, 6.0]] {
///     let loss = model.forward(Tensor::<1>::from_floats(batch, &device)).sum();
///     mean.add(&model, GradientsParams::from_grads(loss.backward(), &model));
/// }
/// let weight = mean.take(&model).get::<2>(model.weight.id).unwrap();
/// assert_eq!(weight.into_data(), TensorData::from([[2.0f32], [4.0]]));
/// ```
pub struct MeanGradients<M> {
    sum: GradientsAccumulator<M>,
    batches: usize,
    count: f64,
}

impl<M: Module> MeanGradients<M> {
    /// Of no batch.
    pub fn new() -> Self {
        Self { sum: GradientsAccumulator::new(), batches: 0, count: 0.0 }
    }

    /// Adds the gradients of a batch.
    pub fn add(&mut self, model: &M, gradients: GradientsParams) {
        self.add_counted(model, gradients, 1.0);
    }

    /// Adds the gradients of a batch whose loss is a mean over `count` tokens or texts, weighted by it: the mean is then that
    /// of one large batch.
    pub fn add_counted(&mut self, model: &M, mut gradients: GradientsParams, count: f64) {
        // A gradient is that of a mean; times its count it is that of a sum, which adds up.
        Factor::Host(count).apply_to_all(model, &mut gradients);
        self.sum.accumulate(model, gradients);
        self.batches += 1;
        self.count += count;
    }

    /// The sum of the counts since the last [`take`](Self::take); [`add`](Self::add) counts 1.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// How many batches were added since the last [`take`](Self::take).
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// The mean, for an optimizer; without a batch there are no gradients. The next batch begins another mean.
    pub fn take(&mut self, model: &M) -> GradientsParams {
        let mut gradients = self.sum.grads();
        let count = std::mem::take(&mut self.count);
        self.batches = 0;
        // What counts for nothing has gradients of 0.
        let share = if count > 0.0 { count.recip() } else { 1.0 };
        Factor::Host(share).apply_to_all(model, &mut gradients);
        gradients
    }
}

impl<M: Module> Default for MeanGradients<M> {
    fn default() -> Self {
        Self::new()
    }
}
