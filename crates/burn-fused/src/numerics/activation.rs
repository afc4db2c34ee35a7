//! Activations, under Hugging Face's names.

use burn::config::Config;
use std::f64::consts::PI;

/// An activation: `hidden_act` and the like of a `config.json`.
///
/// ```
/// use burn_fused::Activation;
///
/// assert_eq!(Activation::of_name("gelu_new"), Some(Activation::GeluTanh));
/// assert_eq!(Activation::GeluTanh.names()[0], "gelu_new");
/// ```
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// z: `linear`.
    Identity,
    /// The exact GELU, `z · Φ(z)`: `gelu`.
    Gelu,
    /// GELU's approximation `z / 2 · (1 + tanh(√(2/π) · (z + 0.044715 z³)))`: `gelu_new` and `gelu_pytorch_tanh`.
    GeluTanh,
    /// The same with 0.7978845608 for √(2/π), as transformers' `gelu_fast` has it.
    GeluFast,
    /// `max(z, 0)`: `relu`.
    Relu,
    /// tanh z: `tanh`.
    Tanh,
    /// `1 / (1 + exp(−z))`: `sigmoid`.
    Sigmoid,
}

impl Activation {
    /// All there are.
    pub const ALL: [Self; 7] =
        [Self::Identity, Self::Gelu, Self::GeluTanh, Self::GeluFast, Self::Relu, Self::Tanh, Self::Sigmoid];

    /// transformers' names; the first is the one that is written.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Identity => &["linear"],
            Self::Gelu => &["gelu", "gelu_python"],
            Self::GeluTanh => &["gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"],
            Self::GeluFast => &["gelu_fast"],
            Self::Relu => &["relu"],
            Self::Tanh => &["tanh"],
            Self::Sigmoid => &["sigmoid"],
        }
    }

    /// The activation that transformers calls `name`.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|activation| activation.names().contains(&name))
    }

    /// All names, for a message.
    pub fn all_names() -> String {
        Self::ALL.map(Self::names).concat().join(", ")
    }

    /// What the approximations of GELU have for √(2/π).
    pub(crate) fn slope(self) -> f64 {
        match self {
            Self::GeluFast => 0.797_884_560_8,
            _ => (2.0 / PI).sqrt(),
        }
    }
}
