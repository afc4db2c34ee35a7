use crate::encoder::Activation;
use crate::error::Result;
use crate::layers::{LayerNorm, active_prob, check_dropout, ensure, linear, linear_activation};
use crate::model::sentence::similarity::normalized;
use crate::model::sentence_transformers::check_activation;
use burn::module::Param;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn_fused::drop_out;
use serde::{Deserialize, Serialize};

/// Configuration of a [`SentenceModule`].
///
/// ```
/// use burn_bert::model::*;
///
/// let modules = vec![SentenceModuleConfig::LayerNorm, SentenceDenseConfig::new(256).into()];
/// let bert = BertModelConfig::bert_base_uncased();
/// BertForSentenceEmbeddingConfig::new(bert).with_modules(modules).validate()?;
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SentenceModuleConfig {
    /// A [`SentenceDense`].
    Dense(SentenceDenseConfig),
    /// LayerNorm with ε = 1e-5.
    LayerNorm,
    /// Dropout with this probability, active in training.
    Dropout(f64),
    /// A [`SentenceNormalize`].
    Normalize,
}

impl From<SentenceDenseConfig> for SentenceModuleConfig {
    fn from(dense: SentenceDenseConfig) -> Self {
        Self::Dense(dense)
    }
}

impl SentenceModuleConfig {
    pub(super) fn validate(&self) -> Result<()> {
        match self {
            Self::Dense(SentenceDenseConfig { out_features, activation, .. }) => {
                ensure(*out_features > 0, "modules", || {
                    "has 0 out_features, but must have at least 1".into()
                })?;
                check_activation("modules", *activation)
            }
            Self::Dropout(prob) => check_dropout("modules", *prob),
            Self::LayerNorm | Self::Normalize => Ok(()),
        }
    }

    /// The width of what it makes of vectors of length `width`.
    pub(super) fn width_after(&self, width: usize) -> usize {
        if let Self::Dense(dense) = self { dense.out_features } else { width }
    }

    pub(super) fn build(&self, width: usize, device: &Device) -> SentenceModule {
        match *self {
            Self::Dense(SentenceDenseConfig { out_features, bias, activation, use_residual }) => {
                // Burn's own initialiser, which is PyTorch's.
                let linear = |bias| LinearConfig::new(width, out_features).with_bias(bias).init(device);
                let residual = (use_residual && out_features != width).then(|| linear(false));
                SentenceModule::Dense(SentenceDense {
                    linear: linear(bias),
                    residual,
                    activation,
                    use_residual,
                })
            }
            Self::LayerNorm => SentenceModule::LayerNorm(LayerNorm::new(width, 1e-5, [true, false], device)),
            Self::Dropout(prob) => SentenceModule::Dropout(DropoutConfig::new(prob).init()),
            Self::Normalize => SentenceModule::Normalize(SentenceNormalize),
        }
    }

    /// The name of the class, which is that of the variant of [`SentenceModule`], too.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Dense(_) => "Dense",
            Self::LayerNorm => "LayerNorm",
            Self::Dropout(_) => "Dropout",
            Self::Normalize => "Normalize",
        }
    }
}

/// A step from the pooled vectors to the sentences' vectors, [B, I] → [B, O], of a [`SentenceModuleConfig`].
///
/// Source: the modules of sentence-transformers 6.2 of the same names.
#[derive(Module, Debug)]
pub enum SentenceModule {
    /// A linear layer with an activation.
    Dense(SentenceDense),
    /// LayerNorm with ε = 1e-5.
    LayerNorm(LayerNorm),
    /// Dropout, active in training.
    Dropout(Dropout),
    /// The vectors scaled to length 1.
    Normalize(SentenceNormalize),
}

impl SentenceModule {
    /// The config that builds a module of this shape.
    pub fn config(&self) -> SentenceModuleConfig {
        match self {
            Self::Dense(dense) => dense.config().into(),
            Self::LayerNorm(_) => SentenceModuleConfig::LayerNorm,
            Self::Dropout(dropout) => SentenceModuleConfig::Dropout(dropout.prob),
            Self::Normalize(_) => SentenceModuleConfig::Normalize,
        }
    }

    /// What the module makes of vectors; dropout is active beside `words` as [`active_prob`] says.
    pub(super) fn forward(&self, x: Tensor<2>, words: &Param<Tensor<2>>) -> Tensor<2> {
        match self {
            Self::Dense(SentenceDense { linear: layer, residual, activation, use_residual }) => {
                let y = linear_activation(layer, x.clone(), *activation);
                match residual {
                    Some(residual) => y + linear(residual, x),
                    None if *use_residual => y + x,
                    None => y,
                }
            }
            Self::LayerNorm(norm) => norm.forward(x),
            // Not Burn's, which mini-batches could not compute again.
            Self::Dropout(dropout) => drop_out(x, active_prob(dropout, words)),
            Self::Normalize(_) => normalized(x),
        }
    }
}

/// Vectors of length 1: x / max(‖x‖, 1e-12), of a [`SentenceModuleConfig`].
#[derive(Module, Debug, Default)]
pub struct SentenceNormalize;

/// Configuration of a [`SentenceDense`], for a [`SentenceModuleConfig`].
#[derive(Config, Debug, PartialEq)]
pub struct SentenceDenseConfig {
    /// Length of the vectors that it gives.
    pub out_features: usize,
    /// Whether there is a bias.
    #[config(default = true)]
    pub bias: bool,
    /// Activation after the linear layer.
    #[config(default = "Activation::Tanh")]
    pub activation: Activation,
    /// Whether the vectors that it reads are added, by a linear layer of their own where their length is another.
    #[config(default = false)]
    pub use_residual: bool,
}

/// `f(x·W + b)` of the vectors of sentences, plus `x` or `x·R` with a residual, of a [`SentenceModuleConfig`]. Source: `Dense`
/// of sentence-transformers 6.2.
#[derive(Module, Debug)]
pub struct SentenceDense {
    /// W, and b if there is one.
    pub linear: Linear,
    /// R of a residual, if vectors change their length; without a bias.
    pub residual: Option<Linear>,
    #[module(skip)]
    activation: Activation,
    use_residual: bool,
}

impl SentenceDense {
    /// The config that builds a layer of this shape.
    pub fn config(&self) -> SentenceDenseConfig {
        SentenceDenseConfig {
            out_features: self.linear.weight.lazy_shape()[1],
            bias: self.linear.bias.is_some(),
            activation: self.activation,
            use_residual: self.use_residual,
        }
    }
}
