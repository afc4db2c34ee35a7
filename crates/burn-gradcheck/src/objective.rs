//! The loss as a function of the module alone, and its gradients.

use super::error::GradCheckError;
use super::probe::Probe;
use super::walk;
use burn::prelude::*;
use burn::tensor::Gradients;

/// A loss and what it is given beside the module.
pub(super) struct Objective<F> {
    pub loss: F,
    pub probe: Probe,
}

impl<F> Objective<F> {
    /// The distance from 1 to the next number of the check's dtype.
    pub fn epsilon(&self) -> f64 {
        self.probe.dtype.finfo().map_or(f64::EPSILON, |info| info.epsilon)
    }

    /// The loss of `module`.
    pub fn value<M>(&self, module: &M) -> Result<f64, GradCheckError>
    where
        F: Fn(&M, &Probe) -> Tensor<1>,
    {
        self.tensor(module).map(scalar)
    }

    /// The loss of `module` and its gradients, where there is something to check.
    pub fn value_and_gradients<M>(&self, module: &M) -> Result<(f64, Gradients), GradCheckError>
    where
        F: Fn(&M, &Probe) -> Tensor<1>,
    {
        let root = self.tensor(module)?;
        let first = scalar(root.clone());
        let second = self.value(module)?;
        for value in [first, second] {
            if !value.is_finite() {
                let place = "at the module's own parameters".into();
                return Err(GradCheckError::NotFinite { value, place });
            }
        }
        // Devices that add in no fixed order may differ in the last bits; randomness differs in the first.
        if (first - second).abs() > 16.0 * self.epsilon() * first.abs() {
            return Err(GradCheckError::NotRepeatable { first, second });
        }
        if root.is_tracked() { Ok((first, root.backward())) } else { Err(GradCheckError::NoGraph) }
    }

    fn tensor<M>(&self, module: &M) -> Result<Tensor<1>, GradCheckError>
    where
        F: Fn(&M, &Probe) -> Tensor<1>,
    {
        let loss = (self.loss)(module, &self.probe);
        let count = loss.shape().num_elements();
        let (found, expected) = (loss.dtype(), self.probe.dtype);
        match count {
            1 if found == expected => Ok(loss),
            1 => Err(GradCheckError::LossDtype { found, expected }),
            _ => Err(GradCheckError::NotScalar { found: count }),
        }
    }
}

/// The one value of a loss.
fn scalar(loss: Tensor<1>) -> f64 {
    walk::host(loss).iter().sum()
}
