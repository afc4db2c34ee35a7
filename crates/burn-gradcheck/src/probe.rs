use super::error::{GradCheckError, Result};
use burn::prelude::*;
use burn::tensor::DType;

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
        let mut random = SplitMix(self.seed);
        // On the host: every device gets the same weights.
        let weights = (0..shape.num_elements()).map(|_| random.unit() * 2.0 - 1.0).collect();
        let weights = TensorData::new::<f64, _>(weights, shape);
        let weights = Tensor::from_data(weights, (&output.device(), output.dtype()));
        (output * weights).sum()
    }

    /// The distance from 1 to the next number of the check's dtype.
    pub(super) fn epsilon(&self) -> f64 {
        self.dtype.finfo().map_or(f64::EPSILON, |info| info.epsilon)
    }

    /// `loss`, if it is one number of the check's dtype.
    pub(super) fn one_number(&self, loss: Tensor<1>) -> Result<Tensor<1>> {
        let (found, expected) = (loss.dtype(), self.dtype);
        match loss.shape().num_elements() {
            1 if found == expected => Ok(loss),
            1 => Err(GradCheckError::LossDtype { found, expected }),
            count => Err(GradCheckError::NotScalar { found: count }),
        }
    }

    /// Fails unless two losses of the same parameters are the same number.
    pub(super) fn check_repeatable(&self, first: f64, second: f64) -> Result<()> {
        if let Some(value) = [first, second].into_iter().find(|value| !value.is_finite()) {
            return Err(GradCheckError::NotFinite { value, place: "at the module's own parameters".into() });
        }
        // Devices that add in no fixed order may differ in the last bits; randomness differs in the first.
        if (first - second).abs() > 16.0 * self.epsilon() * first.abs() {
            return Err(GradCheckError::NotRepeatable { first, second });
        }
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(super) struct SplitMix(pub u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        // The upper 53 bits, as many as an f64 holds.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// −1 or 1.
    pub fn sign(&mut self) -> f64 {
        if self.next() >> 63 == 0 { 1.0 } else { -1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first words of the authors' `splitmix64.c` for the seed 1234567.
    #[test]
    fn split_mix_gives_the_published_words() {
        let mut random = SplitMix(1_234_567);
        let words = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| random.next()), words);
    }

    #[test]
    fn units_fill_the_range_from_zero_to_one() {
        let mut random = SplitMix(0);
        let units = [(); 1000].map(|()| random.unit());
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        for tenth in 0..10 {
            let count = units.iter().filter(|&&unit| (unit * 10.0) as usize == tenth).count();
            assert!((60..140).contains(&count), "{count} of 1000 in tenth {tenth}");
        }
    }
}
