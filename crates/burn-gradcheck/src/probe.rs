use burn::prelude::*;
use burn::tensor::DType;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Passed to the loss of a [`GradCheck`](crate::GradCheck) beside the module, to compute in the check's dtype.
#[derive(Debug, Clone)]
pub struct Probe {
    pub(super) device: Device,
    pub(super) dtype: DType,
    pub(super) seed: u64,
}

impl Probe {
    /// The device of the module's first parameter.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The dtype that the module was cast to.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A constant of the loss (an input, a mask, a target), in the module's dtype.
    pub fn constant<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        tensor.cast(self.dtype)
    }

    /// Σ w ⊙ y, `[1]`, with weights w uniform in [−1, 1], the same for every call with the same number of values.
    pub fn weighted_sum<const D: usize>(&self, output: Tensor<D>) -> Tensor<1> {
        let shape = output.shape();
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        // On the host: every device gets the same weights.
        let weights = (0..shape.num_elements()).map(|_| random.random_range(-1.0..=1.0)).collect();
        let weights = TensorData::new::<f64, _>(weights, shape);
        let weights = Tensor::from_data(weights, (&output.device(), output.dtype()));
        (output * weights).sum()
    }
}
