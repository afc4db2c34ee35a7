use super::checks::ensure;
use crate::error::Result;
use burn::module::{Param, ParamId};
use burn::prelude::*;
use burn::tensor::{DType, Distribution};

/// The distribution that a [`TokenEmbedding`](crate::TokenEmbedding) and the weights of linear layers are initialised
/// from; biases start at zero. Values come from the device's generator, so [`Device::seed`] makes them reproducible, and are
/// drawn on first use.
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub enum EmbeddingInitializer {
    /// N(0, `std`²), as Hugging Face's models with `initializer_range = std`.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// N(0, `std`²) restricted to [−`bound`·`std`, `bound`·`std`].
    ///
    /// TensorFlow's BERT uses `std` 0.02 with `bound` 2. The standard deviation of the result is smaller than `std`: by a
    /// factor of 0.880 at bound 2, 0.987 at bound 3.
    TruncatedNormal {
        /// Standard deviation of the distribution before it is restricted.
        std: f64,
        /// Largest distance from 0, in units of `std`; at most [`MAX_BOUND`](Self::MAX_BOUND).
        bound: f64,
    },
}

impl EmbeddingInitializer {
    /// The largest `bound`. Beyond it fewer than one value in 10⁶ would be restricted, and the single-precision inverse of
    /// the distribution function loses its tails: use [`Normal`](Self::Normal).
    pub const MAX_BOUND: f64 = 5.0;

    /// Checks the numbers of the distribution. Returns [`Error::Config`](crate::Error::Config) if `std` is
    /// negative or not finite, or `bound` is not in (0, 5].
    pub fn validate(&self) -> Result<()> {
        let (field, std, largest) = ("initializer", self.std(), Self::MAX_BOUND);
        ensure(std.is_finite() && std >= 0.0, field, || {
            format!("has std {std}, which must be finite and not negative")
        })?;
        let Self::TruncatedNormal { bound, .. } = *self else { return Ok(()) };
        ensure(bound > 0.0 && bound <= largest, field, || {
            format!(
                "has bound {bound} (in units of std), which must lie in (0, {largest}]; for no bound use Normal"
            )
        })
    }

    pub(crate) fn std(&self) -> f64 {
        let (Self::Normal { std } | Self::TruncatedNormal { std, .. }) = *self;
        std
    }

    /// The distribution with `factor` times the spread.
    pub(crate) fn times(&self, factor: f64) -> Self {
        match *self {
            Self::Normal { std } => Self::Normal { std: std * factor },
            Self::TruncatedNormal { std, bound } => Self::TruncatedNormal { std: std * factor, bound },
        }
    }

    /// A trainable matrix, initialised on first use; row `zero_row`, if any, is zero.
    pub(crate) fn init_matrix(
        &self,
        [rows, columns]: [usize; 2],
        zero_row: Option<usize>,
        device: &Device,
    ) -> Param<Tensor<2>> {
        let initializer = self.clone();
        // Lazy, so that a checkpoint can be loaded without drawing values first.
        Param::uninitialized(
            ParamId::new(),
            move |device, require_grad| {
                // Parameters outlive the steps whose buffers the device's memory pool reuses.
                device.memory_persistent_allocations((), |()| {
                    let table = initializer.sample([rows, columns], device);
                    // After the draw, so that the other rows are the same with and without it.
                    let table = match zero_row {
                        Some(row) => {
                            let zeros = Tensor::zeros([1, columns], (device, table.dtype()));
                            table.slice_assign([row..row + 1, 0..columns], zeros)
                        }
                        None => table,
                    };
                    if require_grad { table.require_grad() } else { table }
                })
            },
            device.clone(),
            true,
            [rows, columns].into(),
        )
    }

    /// Draws of the device's default float dtype.
    pub(crate) fn sample(&self, shape: [usize; 2], device: &Device) -> Tensor<2> {
        match *self {
            Self::Normal { std } => Tensor::random(shape, Distribution::Normal(0.0, std), device),
            Self::TruncatedNormal { std, bound } => {
                // Inverse transform: with u uniform in (−c, c) and c = erf(bound/√2) the probability inside
                // the bound, √2·erf⁻¹(u) is a standard normal restricted to ±bound. In f32 whatever the
                // parameter's dtype, because f16 has 2048 different uniforms.
                let inside = f64::from(libm::erf(bound / std::f64::consts::SQRT_2) as f32);
                let uniform = Distribution::Uniform(-inside, inside);
                let draws = Tensor::<2>::random(shape, uniform, (device, DType::F32));
                let limit = bound * std;
                erf_inv(draws)
                    .mul_scalar(std::f64::consts::SQRT_2 * std)
                    // Rounding in f32 may step past the bound.
                    .clamp(-limit, limit)
                    .cast(device.settings().float_dtype)
            }
        }
    }
}

/// erf⁻¹ on (−1, 1), elementwise: M. Giles, "Approximating the erfinv function", GPU Computing Gems Jade (2011),
/// the single-precision polynomials (relative error below 4e-7).
fn erf_inv(x: Tensor<2>) -> Tensor<2> {
    const CENTRE: [f32; 9] = [
        2.810_226_4e-8,
        3.432_739_4e-7,
        -3.523_387_7e-6,
        -4.391_506_5e-6,
        0.000_218_580_87,
        -0.001_253_725,
        -0.004_177_681_6,
        0.246_640_73,
        1.501_409_4,
    ];
    const TAIL: [f32; 9] = [
        -0.000_200_214_26,
        0.000_100_950_56,
        0.001_349_343_2,
        -0.003_673_428_4,
        0.005_739_507_7,
        -0.007_622_461_3,
        0.009_438_870_5,
        1.001_674,
        2.832_976_8,
    ];
    // The polynomials of the paper, highest power first.
    let horner = |w: Tensor<2>, coefficients: [f32; 9]| {
        coefficients[1..]
            .iter()
            .fold(w.zeros_like().add_scalar(coefficients[0]), |p, &c| p.mul(w.clone()).add_scalar(c))
    };
    let w = x.clone().square().neg().add_scalar(1.0).log().neg();
    let tail = w.clone().greater_equal_scalar(5.0);
    let centre = horner(w.clone().sub_scalar(2.5), CENTRE);
    let outer = horner(w.sqrt().sub_scalar(3.0), TAIL);
    // Both are computed everywhere, and each value takes that of its range.
    centre.mask_where(tail, outer).mul(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_inv_undoes_erf() {
        let x: Vec<f64> = (1..=34).map(|i| f64::from(i) * 0.1).collect();
        let y: Vec<f64> = x.iter().map(|&x| libm::erf(x)).collect();
        let y = Tensor::<1>::from_data(y.as_slice(), &Device::default()).unsqueeze::<2>();
        let found: Vec<f32> = erf_inv(y).into_data().try_into_vec().unwrap();
        for (found, expected) in found.into_iter().zip(x) {
            // Rounding y to f32 moves x by ε/erf′(x); 4e-7 is the polynomial's own error.
            let slope = std::f64::consts::FRAC_2_SQRT_PI * (-expected * expected).exp();
            let tolerance = 4e-7 * expected + 1.2e-7 / slope;
            assert!((f64::from(found) - expected).abs() < tolerance, "{found} is not {expected}");
        }
    }
}
