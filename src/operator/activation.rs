//! Activations of a feed-forward network.

use burn::config::Config;

/// The activation of a feed-forward network: `hidden_act` of a `config.json`.
///
/// ```
/// use burn_bert::BertEmbeddingsConfig;
/// use burn_bert::encoder::Activation;
/// use burn_bert::model::BertModelConfig;
///
/// let config = BertModelConfig::new(BertEmbeddingsConfig::new()).with_hidden_act(Activation::Relu);
/// assert_eq!(BertModelConfig::bert_base_uncased().hidden_act, Activation::Gelu);
/// # let _ = config;
/// ```
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// The exact GELU, `z · Φ(z)`: `gelu`.
    Gelu,
    /// GELU's approximation `z / 2 · (1 + tanh(√(2/π) · (z + 0.044715 z³)))`: `gelu_new` and `gelu_pytorch_tanh`.
    GeluTanh,
    /// `max(z, 0)`: `relu`.
    Relu,
}

impl Activation {
    /// Those of which there is an operator.
    #[cfg(any(feature = "checkpoint", feature = "remote"))]
    const ALL: [Self; 3] = [Self::Gelu, Self::GeluTanh, Self::Relu];

    /// transformers' names; the first is the one that is written.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Gelu => &["gelu", "gelu_python"],
            Self::GeluTanh => {
                &["gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"]
            }
            Self::Relu => &["relu"],
        }
    }

    /// The activation that transformers calls `name`.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|activation| activation.names().contains(&name))
    }

    /// All names, for a message.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn all_names() -> String {
        Self::ALL.map(Self::names).concat().join(", ")
    }
}

#[cfg(feature = "remote")]
impl super::wire::Plain for Activation {
    fn put(&self, to: &mut Vec<super::wire::Number>) {
        (*self as usize).put(to);
    }

    fn take(from: &mut super::wire::Numbers) -> Self {
        let index = usize::take(from);
        *Self::ALL.get(index).unwrap_or_else(|| panic!("{}", super::wire::OTHER_CLIENT))
    }
}
