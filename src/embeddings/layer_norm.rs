//! LayerNorm, and its ε.

use crate::error::{Error, Result};
use crate::operator::dtype::computed_in;
use crate::operator::functional::Norm;
use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};

/// `(x − mean) / √(variance + ε) · γ + β` over the last axis.
///
/// Parameter paths are those of Burn's `LayerNorm`. ε comes from the config of the model and cannot be changed, so
/// that a saved model computes with the ε in its config.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::BertEmbeddingsConfig;
///
/// let config = BertEmbeddingsConfig::new().with_vocab_size(9).with_hidden_size(4).with_layer_norm_eps(1e-5);
/// let norm = config.init(&Device::default()).layer_norm;
/// assert_eq!(norm.epsilon(), 1e-5);
/// assert_eq!(norm.forward(Tensor::<2>::ones([3, 4], &Device::default())).dims(), [3, 4]);
/// ```
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// γ, `[H]`.
    pub gamma: Param<Tensor<1>>,
    /// β, `[H]`; `None` is zero.
    pub beta: Option<Param<Tensor<1>>>,
    epsilon: f64,
}

impl LayerNorm {
    /// For vectors of length `hidden`, with γ = 1 and β = 0.
    pub(crate) fn new(hidden: usize, epsilon: f64, device: &Device) -> Self {
        Self {
            gamma: Initializer::Ones.init([hidden], device),
            beta: Some(Initializer::Zeros.init([hidden], device)),
            epsilon,
        }
    }

    /// ε.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The parameters as the operators take them.
    pub(crate) fn norm(&self) -> Norm {
        let beta = self.beta.as_ref().map(|beta| beta.val());
        Norm { gamma: self.gamma.val(), beta, epsilon: self.epsilon }
    }

    /// LayerNorm of `x`, computed in f32 for 16 bits.
    ///
    /// # Shapes
    ///
    /// - `x`, output: [.., H]
    ///
    /// # Panics
    ///
    /// If the last axis is not of length H.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let [dtype, wide] = [x.dtype(), computed_in(x.dtype())].map(FloatDType::from);
        let Norm { gamma, beta, epsilon } = self.norm();
        let beta = beta.map(|beta| beta.cast(wide));
        burn::tensor::module::layer_norm(x.cast(wide), gamma.cast(wide), beta, epsilon).cast(dtype)
    }
}

/// Whether ε is above 0 in the dtype that the statistics over tables of `dtype` are computed in.
///
/// Were it 0, a constant row would be divided by 0.
pub(crate) fn check_epsilon(epsilon: f64, dtype: DType) -> Result<()> {
    let invalid = |problem| Err(Error::Config { field: "layer_norm_eps", problem });
    if !(epsilon.is_finite() && epsilon > 0.0) {
        return invalid(format!("is {epsilon}, but must be finite and above 0"));
    }
    let statistics = computed_in(dtype);
    if statistics == DType::F32 && epsilon < f64::from(f32::MIN_POSITIVE) {
        let smallest = f32::MIN_POSITIVE;
        return invalid(format!(
            "is {epsilon:e}, but statistics are computed in {statistics:?}, whose smallest normal number is \
             {smallest:.1e}"
        ));
    }
    Ok(())
}
