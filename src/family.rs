//! Model families, and what the models of each are made of. How they are stored is up to `checkpoint`.

use FamilyDropout::{Never, OfLayers, Stated};
use PositionEmbeddingType::{Absolute, AfterPadding, Disentangled, Rotary};
use burn::config::Config;
use burn_fused::Activation;

/// An enum of families, each with Hugging Face's name and what its models are made of.
macro_rules! families {
    ($(#[$about:meta])* $($family:ident: $model_type:literal, $architecture:ident;)*) => {
        $(#[$about])*
        #[derive(Config, Debug, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Family {
            $(#[doc = concat!("`", $model_type, "`")] $family,)*
        }

        impl Family {
            /// Hugging Face's name: the `model_type` of a `config.json`.
            pub fn model_type(self) -> &'static str {
                match self { $(Self::$family => $model_type,)* }
            }

            pub(crate) const fn architecture(self) -> &'static Architecture {
                match self { $(Self::$family => &$architecture,)* }
            }
        }
    };
}

families! {
    /// The family of a model, Hugging Face's `model_type`: how it differs from BERT, and how it is stored.
    /// DeBERTa-v3 is `DebertaV2` too.
    ///
    /// ```
    /// use burn_bert::{BertEmbeddingsConfig, Family, PositionEmbeddingType};
    ///
    /// let config = BertEmbeddingsConfig::roberta_base();
    /// assert_eq!(config.family, Family::Roberta);
    /// assert_eq!(config.position_embedding_type, PositionEmbeddingType::AfterPadding);
    /// ```
    Bert: "bert", BERT;
    DistilBert: "distilbert", DISTILBERT;
    Electra: "electra", ELECTRA;
    MpNet: "mpnet", MPNET;
    Albert: "albert", ALBERT;
    Ernie: "ernie", BERT;
    Roberta: "roberta", ROBERTA;
    XlmRoberta: "xlm-roberta", ROBERTA;
    Camembert: "camembert", ROBERTA;
    Data2VecText: "data2vec-text", ROBERTA;
    ModernBert: "modernbert", MODERN_BERT;
    NomicBert: "nomic_bert", NOMIC_BERT;
    Gte: "gte", GTE;
    JinaEmbeddingsV3: "jina_embeddings_v3", JINA_EMBEDDINGS_V3;
    DebertaV2: "deberta-v2", DEBERTA_V2;
}

/// How a model represents positions; a field of [`BertEmbeddingsConfig`](crate::BertEmbeddingsConfig). Position embeddings are
/// those of [`Absolute`](Self::Absolute) and [`AfterPadding`](Self::AfterPadding) alone.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PositionEmbeddingType {
    /// Positions K, K+1, … are looked up in a learned table (BERT). K is `past_key_values_length`.
    Absolute,
    /// Relative positions in the attention (Shaw et al. 2018).
    RelativeKey,
    /// Relative positions in the attention (Huang et al. 2020, method 4).
    RelativeKeyQuery,
    /// Positions count the tokens that are not padding, from `pad_token_id + 1` on; padding has position
    /// `pad_token_id`, whose row gets no gradient (RoBERTa and other models from fairseq).
    AfterPadding,
    /// Queries and keys of the attention are turned by angles that grow with the position (Su et al. 2021).
    Rotary,
    /// Distances have vectors of their own, which queries and keys of the attention are multiplied with (He et al. 2021;
    /// DeBERTa-v3). With [`Absolute`](Self::Absolute) DeBERTa has both.
    Disentangled,
}

impl PositionEmbeddingType {
    /// Whether the embedding layer has position embeddings.
    pub fn has_table(self) -> bool {
        matches!(self, Self::Absolute | Self::AfterPadding)
    }

    /// Whether the attention has a vector for each distance, by query or key.
    pub(crate) fn is_relative(self) -> bool {
        matches!(self, Self::RelativeKey | Self::RelativeKeyQuery)
    }
}

/// What a model is made of, sizes aside.
///
/// A family is supported if these are all its differences from transformers' BERT. Some only look alike: MegatronBERT has no
/// LayerNorm in its embeddings, BigBird drops out before it.
pub(crate) struct Architecture {
    // The embedding layer: the sum of word, position and token-type embeddings, LayerNorm, dropout.
    /// The positions of a config that does not state relative ones.
    pub(crate) positions: PositionEmbeddingType,
    /// Without them `type_vocab_size` is 0.
    pub(crate) token_types: Presence,
    /// ε of every LayerNorm, if no config can state another.
    pub(crate) layer_norm_eps: Option<f64>,
    /// The linear layer from the width of the embeddings to that of the encoder. Without it `embedding_size` is `hidden_size`.
    pub(crate) projection: Presence,
    // The encoder.
    pub(crate) norm: NormPlace,
    pub(crate) biases: Biases,
    /// Whether the feed-forward network is `(f(x·U) ∘ (x·G))·D`, and not `f(x·U)·D`.
    pub(crate) is_gated: bool,
    /// Of what D reads. Where `mlp_dropout` states it, the attention's output has the dropout of its weights.
    pub(crate) inner_dropout: FamilyDropout,
    /// Whether one layer is run again and again.
    pub(crate) shares_layers: bool,
    /// Whether the outputs of attention and of the feed-forward network have dropout.
    pub(crate) output_dropout: [bool; 2],
    /// What relative positions by query and key add to the attention logits, if a config can ask for them.
    pub(crate) relative_scores: Option<RelativeScores>,
    /// Whether all layers add a bias by the distance of query and key.
    pub(crate) has_relative_attention_bias: bool,
    /// Whether layers with rotary positions can have a window, and another θ with it.
    pub(crate) has_windows: bool,
    // Heads.
    /// Whether the model without a head has a pooler. In every family a head that reads its output has one.
    pub(crate) has_pooler: bool,
    /// Whether the activation of the masked-language-model head is that of the layers, and not always the exact GELU.
    pub(crate) masked_lm_activation_of_layers: bool,
    /// Whether classifiers read `LayerNorm(GELU(x·P))`, the transform of the masked-language-model head, and not x.
    pub(crate) classifiers_have_transform: bool,
    pub(crate) sequence_head: SequenceHead,
    /// By what they classify, see [`Classified`].
    pub(crate) head_dropout: [FamilyDropout; 3],
}

impl Architecture {
    /// Whether a config states the dropout of what D reads.
    pub(crate) fn has_mlp_dropout(&self) -> bool {
        matches!(self.inner_dropout, Stated(_))
    }
}

/// Which linear layers and norms have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Biases {
    /// The linear layers of the attention, and D.
    pub(crate) of_layers: bool,
    /// U and G.
    pub(crate) of_inner: bool,
    /// All norms, and the linear layers of the pooler and of heads.
    pub(crate) of_others: bool,
}

/// Whether the models of a family have a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Never,
    /// If a config states its size.
    IfStated,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormPlace {
    /// `LayerNorm(x + f(x))`.
    Post,
    /// `x + f(LayerNorm(x))`. The first layer's attention reads the embeddings, which are normalised, and a last norm follows
    /// the layers.
    Pre,
}

/// What relative positions R add to `Q·Kᵀ / √d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelativeScores {
    /// `R / √d`.
    Scaled,
    /// `R`.
    Unscaled,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SequenceHead {
    /// A linear layer that reads the pooler's output.
    Pooled,
    /// Two linear layers that read the vector at position 0.
    Dense { activation: Activation, drops_input: bool },
    /// The same with GELU, and a dropout of its own before the first layer.
    ContextPooler,
    /// A linear layer after the classifiers' transform, of the vector at position 0 or of the mean over tokens.
    Transformed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Classified {
    Sequences,
    Tokens,
    Answers,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FamilyDropout {
    /// What a config states, and this otherwise; `None` is the dropout of the layers.
    Stated(Option<f64>),
    /// That of the layers' outputs.
    OfLayers,
    Never,
}

const BERT: Architecture = Architecture {
    positions: Absolute,
    token_types: Presence::Always,
    layer_norm_eps: None,
    projection: Presence::Never,
    norm: NormPlace::Post,
    biases: Biases { of_layers: true, of_inner: true, of_others: true },
    is_gated: false,
    inner_dropout: Never,
    shares_layers: false,
    output_dropout: [true; 2],
    relative_scores: Some(RelativeScores::Scaled),
    has_relative_attention_bias: false,
    has_windows: false,
    has_pooler: true,
    masked_lm_activation_of_layers: true,
    classifiers_have_transform: false,
    sequence_head: SequenceHead::Pooled,
    head_dropout: [Stated(None), Stated(None), Never],
};

const ROBERTA: Architecture = Architecture {
    positions: AfterPadding,
    // `RobertaLMHead` computes GELU whatever `hidden_act` is.
    masked_lm_activation_of_layers: false,
    sequence_head: SequenceHead::Dense { activation: Activation::Tanh, drops_input: true },
    ..BERT
};

const DISTILBERT: Architecture = Architecture {
    token_types: Presence::Never,
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
    projection: Presence::IfStated,
    has_pooler: false,
    // As `ElectraGeneratorPredictions`.
    masked_lm_activation_of_layers: false,
    sequence_head: SequenceHead::Dense { activation: Activation::Gelu, drops_input: true },
    ..BERT
};

// fairseq's, as RoBERTa: positions count from the padding id.
const MPNET: Architecture = Architecture {
    token_types: Presence::Never,
    relative_scores: None,
    has_relative_attention_bias: true,
    head_dropout: [OfLayers, OfLayers, Never],
    ..ROBERTA
};

const ALBERT: Architecture = Architecture {
    projection: Presence::Always,
    shares_layers: true,
    output_dropout: [true, false],
    relative_scores: Some(RelativeScores::Unscaled),
    head_dropout: [Stated(Some(0.1)), Stated(Some(0.1)), Never],
    ..BERT
};

const MODERN_BERT: Architecture = Architecture {
    positions: Rotary,
    token_types: Presence::Never,
    norm: NormPlace::Pre,
    biases: Biases { of_layers: false, of_inner: false, of_others: false },
    is_gated: true,
    inner_dropout: Stated(Some(0.0)),
    relative_scores: None,
    has_windows: true,
    has_pooler: false,
    masked_lm_activation_of_layers: false,
    classifiers_have_transform: true,
    sequence_head: SequenceHead::Transformed,
    head_dropout: [Stated(Some(0.0)); 3],
    ..BERT
};

const NOMIC_BERT: Architecture = Architecture {
    positions: Rotary,
    biases: Biases { of_layers: false, of_inner: false, of_others: true },
    is_gated: true,
    relative_scores: None,
    has_pooler: false,
    ..BERT
};

const GTE: Architecture = Architecture {
    token_types: Presence::IfStated,
    biases: Biases { of_layers: true, ..NOMIC_BERT.biases },
    inner_dropout: OfLayers,
    // `GteLMHead` computes GELU whatever `hidden_act` is.
    masked_lm_activation_of_layers: false,
    ..NOMIC_BERT
};

const JINA_EMBEDDINGS_V3: Architecture = Architecture { positions: Rotary, relative_scores: None, ..ROBERTA };

const DEBERTA_V2: Architecture = Architecture {
    positions: Disentangled,
    token_types: Presence::IfStated,
    relative_scores: None,
    has_pooler: false,
    sequence_head: SequenceHead::ContextPooler,
    head_dropout: [Stated(None), OfLayers, Never],
    ..BERT
};
