//! What the models of a family are made of.

use super::{ClassifierPooling, PositionEmbeddingType};
use FamilyDropout::Stated;
use burn_fused::Activation;

/// What a model is made of, sizes aside.
///
/// A family is supported if these are all its differences from transformers' BERT. Some only look alike: MegatronBERT has no
/// LayerNorm in its embeddings, BigBird drops out before it.
pub(crate) struct Architecture {
    // The embedding layer: the sum of word, position and token-type embeddings, LayerNorm, dropout.
    /// The positions of a config that does not state relative ones.
    pub(crate) positions: PositionEmbeddingType,
    /// Whether there are token-type embeddings; without them `type_vocab_size` is 0.
    pub(crate) token_types: Presence,
    /// Whether norm and dropout follow the sum. Without them the layer is the word embeddings alone.
    pub(crate) embeddings_have_norm: bool,
    /// Whether every norm is an RMSNorm, which has neither mean nor β.
    pub(crate) has_rms_norm: bool,
    /// ε of every LayerNorm, if no config can state another.
    pub(crate) layer_norm_eps: Option<f64>,
    /// The linear layer from the width of the embeddings to that of the encoder. Without it `embedding_size` is `hidden_size`.
    pub(crate) projection: Presence,
    // The encoder.
    pub(crate) norm: NormPlace,
    pub(crate) biases: Biases,
    /// Whether a config can state fewer heads of keys and values than of queries.
    pub(crate) has_grouped_keys: bool,
    /// Whether the feed-forward network is `(f(x·U) ∘ (x·G))·D`, and not `f(x·U)·D`.
    pub(crate) is_gated: bool,
    /// The dropout of the input of D. Where `mlp_dropout` states it, the attention's output has the dropout of its weights.
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
    /// Whether the masked-language-model head has layers before the decoder, and a bias.
    pub(crate) masked_lm_has_transform: bool,
    /// Whether the activation of the masked-language-model head is that of the layers, and not always the exact GELU.
    pub(crate) masked_lm_activation_of_layers: bool,
    /// Whether classifiers read `LayerNorm(GELU(x·P))`, the transform of the masked-language-model head, and not x.
    pub(crate) classifiers_have_transform: bool,
    pub(crate) sequence_head: SequenceHead,
    /// What a classifier of sequences can pool, by the names in `config.json`, the default first; empty for position 0 alone.
    pub(crate) sequence_poolings: &'static [(ClassifierPooling, &'static str)],
    /// The dropout of heads, by what they classify ([`Classified`]).
    pub(crate) head_dropout: [FamilyDropout; 3],
}

impl Architecture {
    /// Whether the norms have β.
    pub(crate) fn norms_have_bias(&self) -> bool {
        self.biases.of_others && !self.has_rms_norm
    }

    /// Whether a config states the dropout of what D reads.
    pub(crate) fn has_mlp_dropout(&self) -> bool {
        matches!(self.inner_dropout, Stated(_))
    }
}

/// Which linear layers and norms have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Biases {
    /// Whether the linear layers of the attention, and D, have biases.
    pub(crate) of_layers: bool,
    /// Whether U and G have biases.
    pub(crate) of_inner: bool,
    /// Whether all LayerNorms, and the linear layers of the pooler and of heads, have biases.
    pub(crate) of_others: bool,
}

/// Whether the models of a family have a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Never,
    /// The models whose config states its size have it.
    IfStated,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormPlace {
    /// `LayerNorm(x + f(x))`.
    Post,
    /// `x + f(LayerNorm(x))`. The first layer's attention reads embeddings that are normalised as they are, and a last norm
    /// follows the layers.
    Pre,
}

/// The term that relative positions R add to `Q·Kᵀ / √d`.
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
    /// Two linear layers that read the vector at position 0, or what is pooled.
    Dense { activation: Activation, drops_input: bool },
    /// Two linear layers with GELU between them, and a separate dropout before the first.
    ContextPooler,
    /// A linear layer after the classifiers' transform.
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
    /// The value that a config states, or else this one; `None` stands for the dropout of the layers.
    Stated(Option<f64>),
    /// The dropout of the layers' outputs.
    OfLayers,
    Never,
}
