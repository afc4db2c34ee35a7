//! Model families: the architecture of each. How it is stored is up to `checkpoint`.

use HeadDropout::{Never, OfLayers, Stated};
use burn::config::Config;
use burn_fused::Activation;

/// The family of a model, Hugging Face's `model_type`. It determines how the architecture differs from BERT's, how absolute
/// positions count (see [`PositionEmbeddingType`]), and under which keys, fields and class the model is stored.
///
/// ```
/// use burn_bert::{BertEmbeddingsConfig, Family, PositionEmbeddingType};
///
/// let config = BertEmbeddingsConfig::roberta_base();
/// assert_eq!(config.family, Family::Roberta);
/// assert_eq!(config.position_embedding_type, PositionEmbeddingType::AfterPadding);
/// ```
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// `bert`
    Bert,
    /// `distilbert`
    DistilBert,
    /// `electra`
    Electra,
    /// `mpnet`
    MpNet,
    /// `albert`
    Albert,
    /// `ernie`
    Ernie,
    /// `roberta`
    Roberta,
    /// `xlm-roberta`
    XlmRoberta,
    /// `camembert`
    Camembert,
    /// `data2vec-text`
    Data2VecText,
}

impl Family {
    /// Hugging Face's name: the `model_type` of a `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::DistilBert => "distilbert",
            Self::Electra => "electra",
            Self::MpNet => "mpnet",
            Self::Albert => "albert",
            Self::Ernie => "ernie",
            Self::Roberta => "roberta",
            Self::XlmRoberta => "xlm-roberta",
            Self::Camembert => "camembert",
            Self::Data2VecText => "data2vec-text",
        }
    }
}

/// How positions enter the sum; a field of [`BertEmbeddingsConfig`](crate::BertEmbeddingsConfig).
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PositionEmbeddingType {
    /// Positions K, K+1, … are looked up in a learned table (BERT). K is `past_key_values_length`.
    Absolute,
    /// Relative positions in the attention (Shaw et al. 2018); the embedding layer has no position embeddings.
    RelativeKey,
    /// Relative positions in the attention (Huang et al. 2020, method 4); the embedding layer has no position embeddings.
    RelativeKeyQuery,
    /// Positions count the tokens that are not padding, from `pad_token_id + 1` on; padding has position
    /// `pad_token_id`, whose row gets no gradient (RoBERTa and other models from fairseq).
    AfterPadding,
}

impl PositionEmbeddingType {
    /// Whether the embedding layer has position embeddings.
    pub fn has_table(self) -> bool {
        matches!(self, Self::Absolute | Self::AfterPadding)
    }
}

/// Where the architectures of families differ.
///
/// A family is supported if these are all its differences from transformers' BERT. Some only look alike: MegatronBERT has
/// no LayerNorm in its embeddings, BigBird drops out before it.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// Absolute positions. Only a file leaves them to the family.
    #[cfg_attr(not(feature = "checkpoint"), expect(dead_code))]
    pub(crate) positions: PositionEmbeddingType,
    pub(crate) has_token_types: bool,
    /// LayerNorm's ε, if no config can state another.
    pub(crate) layer_norm_eps: Option<f64>,
    pub(crate) projection: Projection,
    pub(crate) shares_layers: bool,
    /// Whether the outputs of attention and of the feed-forward network have dropout.
    pub(crate) output_dropout: [bool; 2],
    pub(crate) relative_scores: Option<RelativeScores>,
    pub(crate) has_relative_attention_bias: bool,
    pub(crate) has_pooler: bool,
    /// Whether the activation of the masked-language-model head is that of the layers, and not always the exact GELU.
    pub(crate) masked_lm_activation_of_layers: bool,
    pub(crate) sequence_head: SequenceHead,
    head_dropout: [HeadDropout; 3],
}

/// Whether a linear layer projects the embeddings to the width of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Never,
    /// If `embedding_size` is not `hidden_size`.
    IfOther,
    Always,
}

/// What relative positions R add to `Q·Kᵀ / √d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelativeScores {
    /// `R / √d`.
    Scaled,
    /// `R`.
    Unscaled,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SequenceHead {
    /// By a linear layer that reads the pooler's output.
    Pooled,
    /// By two that read the vector at position 0.
    Dense { activation: Activation, drops_input: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Classified {
    Sequences,
    Tokens,
    Answers,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HeadDropout {
    /// What a config states, and this otherwise; `None` is the dropout of the layers.
    Stated(Option<f64>),
    OfLayers,
    Never,
}

const BERT: Architecture = Architecture {
    positions: PositionEmbeddingType::Absolute,
    has_token_types: true,
    layer_norm_eps: None,
    projection: Projection::Never,
    shares_layers: false,
    output_dropout: [true; 2],
    relative_scores: Some(RelativeScores::Scaled),
    has_relative_attention_bias: false,
    has_pooler: true,
    masked_lm_activation_of_layers: true,
    sequence_head: SequenceHead::Pooled,
    head_dropout: [Stated(None), Stated(None), Never],
};

const ROBERTA: Architecture = Architecture {
    positions: PositionEmbeddingType::AfterPadding,
    // `RobertaLMHead` computes GELU whatever `hidden_act` is.
    masked_lm_activation_of_layers: false,
    sequence_head: SequenceHead::Dense { activation: Activation::Tanh, drops_input: true },
    ..BERT
};

const DISTILBERT: Architecture = Architecture {
    has_token_types: false,
    // Written into the model's code and in no config.
    layer_norm_eps: Some(1e-12),
    output_dropout: [false, true],
    relative_scores: None,
    has_pooler: false,
    sequence_head: SequenceHead::Dense { activation: Activation::Relu, drops_input: false },
    head_dropout: [Stated(Some(0.2)), OfLayers, Stated(Some(0.1))],
    ..BERT
};

const ELECTRA: Architecture = Architecture {
    projection: Projection::IfOther,
    has_pooler: false,
    // As `ElectraGeneratorPredictions`.
    masked_lm_activation_of_layers: false,
    sequence_head: SequenceHead::Dense { activation: Activation::Gelu, drops_input: true },
    ..BERT
};

// fairseq's, as RoBERTa: positions count from the padding id.
const MPNET: Architecture = Architecture {
    has_token_types: false,
    relative_scores: None,
    has_relative_attention_bias: true,
    head_dropout: [OfLayers, OfLayers, Never],
    ..ROBERTA
};

const ALBERT: Architecture = Architecture {
    projection: Projection::Always,
    shares_layers: true,
    output_dropout: [true, false],
    relative_scores: Some(RelativeScores::Unscaled),
    head_dropout: [Stated(Some(0.1)), Stated(Some(0.1)), Never],
    ..BERT
};

impl Family {
    pub(crate) const fn architecture(self) -> &'static Architecture {
        match self {
            Self::Bert | Self::Ernie => &BERT,
            Self::DistilBert => &DISTILBERT,
            Self::Electra => &ELECTRA,
            Self::MpNet => &MPNET,
            Self::Albert => &ALBERT,
            Self::Roberta | Self::XlmRoberta | Self::Camembert | Self::Data2VecText => &ROBERTA,
        }
    }
}

impl Architecture {
    pub(crate) fn head_dropout(&self, of: Classified) -> HeadDropout {
        self.head_dropout[of as usize]
    }
}
