//! The model families, and what is asked of each.
#![cfg_attr(not(feature = "checkpoint"), allow(dead_code))]

use crate::operator::Activation;
use burn::config::Config;

/// The family of a model: Hugging Face's `model_type`.
///
/// It determines the keys, the fields and the class under which a model is stored, the defaults of a `config.json`,
/// the layout of the heads, what absolute positions are (see [`PositionEmbeddingType`]), and what of the model is not
/// BERT's: no token types (DistilBERT, MPNet), tables of another width (ELECTRA, ALBERT), one layer for all (ALBERT),
/// relative positions beside the absolute ones (MPNet).
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
    /// `splinter`; the input layer only
    Splinter,
    /// `roberta`
    Roberta,
    /// `xlm-roberta`
    XlmRoberta,
    /// `camembert`
    Camembert,
    /// `xmod`; the input layer only
    Xmod,
    /// `data2vec-text`
    Data2VecText,
    /// `roberta-prelayernorm`; the input layer only
    RobertaPreLayerNorm,
    /// `longformer`; the input layer only
    Longformer,
    /// `luke`; the input layer only
    Luke,
}

/// How positions enter the sum; a field of
/// [`BertEmbeddingsConfig`](crate::BertEmbeddingsConfig).
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum PositionEmbeddingType {
    /// Positions K, K+1, … are looked up in a learned table (BERT). K is `past_key_values_length`.
    Absolute,
    /// Relative positions in the attention (Shaw et al. 2018); this layer adds nothing and has no position table.
    RelativeKey,
    /// Relative positions in the attention (Huang et al. 2020, method 4); this layer adds nothing and has no position
    /// table.
    RelativeKeyQuery,
    /// Positions count the tokens that are not padding, from `pad_token_id + 1` on; padding has position
    /// `pad_token_id`, whose row gets no gradient (RoBERTa and other models from fairseq).
    AfterPadding,
}

impl PositionEmbeddingType {
    /// Whether the layer has a position table.
    pub fn has_table(self) -> bool {
        matches!(self, Self::Absolute | Self::AfterPadding)
    }
}

/// What a family means. Defaults are those of its config class in transformers 5.23.0.
///
/// A family is listed if its embeddings class, given the same weights, returns what `BertEmbeddings` or
/// `RobertaEmbeddings` return, with or without token types. Others look alike and are not: MegatronBERT has no LayerNorm
/// here, BigBird drops out before it.
#[derive(Debug)]
pub(crate) struct FamilySpec {
    pub(crate) family: Family,
    pub(crate) model_type: &'static str,
    /// The prefix of its Python classes: `Bert` in `BertForMaskedLM`.
    pub(crate) class: &'static str,
    /// The prefix of its keys in a model with a head: `bert` in `bert.embeddings.…`.
    pub(crate) base: &'static str,
    /// The positions of a model whose positions are not relative.
    pub(crate) positions: PositionEmbeddingType,
    pub(crate) defaults: Defaults,
    /// Fields of BERT's `config.json` that this family's has under another name or not at all.
    pub(crate) fields: &'static [(&'static str, Field)],
    /// What some of its configs say and this crate does not compute.
    pub(crate) unsupported: &'static [Unsupported],
    /// Whether tables may be of another width than the model, whose vectors a linear layer then projects.
    pub(crate) projection: Projection,
    /// Whether all layers are one.
    pub(crate) shares_layers: bool,
    /// Whether attention and feed-forward network drop out what they add, each.
    pub(crate) output_dropout: [bool; 2],
    /// The keys above the input layer; `None` if the encoder is not BERT's.
    pub(crate) keys: Option<FamilyKeys>,
}

/// What a `config.json` of the family means where it lacks a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) vocab_size: usize,
    pub(crate) type_vocab_size: usize,
    pub(crate) pad_token_id: usize,
    pub(crate) embedding_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) intermediate_size: usize,
    /// Of hidden vectors and of attention weights.
    pub(crate) dropout: f64,
    pub(crate) hidden_act: Activation,
}

/// What has become of a field of BERT's `config.json`.
#[derive(Debug)]
pub(crate) enum Field {
    /// It has this name, and BERT's is ignored.
    Named(&'static str),
    /// It has this name beside BERT's, which counts if a config has both.
    Also(&'static str),
    /// There is none: the value is always this.
    Always(f64),
}

/// Whether the embeddings are projected to the width of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Never,
    /// If `embedding_size` is not `hidden_size`.
    IfOther,
    Always,
}

/// A field of `config.json` that changes the model.
#[derive(Debug)]
pub(crate) enum Unsupported {
    /// What the model does if the field is true.
    Flag(&'static str, &'static str),
    /// What a field means that must have one value.
    OtherThan(&'static str, usize, &'static str),
}

/// The keys of a family above its input layer, and the layout of its heads. Those of encoder and pooler follow the
/// model's prefix.
#[derive(Debug)]
pub(crate) struct FamilyKeys {
    pub(crate) layer: LayerKeys,
    /// The linear layer that projects the embeddings.
    pub(crate) projection: Option<&'static str>,
    /// A table of relative positions that all layers share.
    pub(crate) relative_attention_bias: Option<&'static str>,
    /// The pooler's linear layer; `None` in a family without a pooler.
    pub(crate) pooler: Option<&'static str>,
    pub(crate) masked_lm: HeadKeys,
    pub(crate) classifier: SequenceHead,
    /// The dropout of the classifiers of sequences and of tokens, and of answers.
    pub(crate) classifier_dropout: [ClassifierDropout; 3],
}

/// The keys of an encoder's layers.
#[derive(Debug)]
pub(crate) struct LayerKeys {
    /// What comes before a layer's number.
    pub(crate) prefix: &'static str,
    pub(crate) query: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    /// `None` in a family that has no relative positions by query and key.
    pub(crate) distances: Option<&'static str>,
    pub(crate) attention_output: &'static str,
    pub(crate) attention_layer_norm: &'static str,
    pub(crate) intermediate: &'static str,
    pub(crate) output: &'static str,
    pub(crate) output_layer_norm: &'static str,
}

/// The keys of a masked-language-model head.
#[derive(Debug)]
pub(crate) struct HeadKeys {
    /// The prefix of them all.
    pub(crate) prefix: &'static str,
    pub(crate) transform: &'static str,
    pub(crate) layer_norm: &'static str,
    /// The bias of each word's score, under the first of these names that a file has.
    pub(crate) bias: &'static [&'static str],
    /// The decoder's weight. A tied head's is the word table again, in files whose format does not share tensors.
    pub(crate) decoder: &'static str,
    /// Whether its activation is that of the layers, and not always the exact GELU.
    pub(crate) has_activation_of_layers: bool,
}

/// How sequences are classified.
#[derive(Debug)]
pub(crate) enum SequenceHead {
    /// By a linear layer that reads the pooler's output.
    Pooled,
    /// By two that read the vector at position 0, with these names.
    Dense { dense: &'static str, out_proj: &'static str, activation: HeadActivation, drops_input: bool },
}

/// Between the two linear layers of a classifier of sequences.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeadActivation {
    Tanh,
    Gelu,
    Relu,
}

/// The dropout of a classifier.
#[derive(Debug)]
pub(crate) struct ClassifierDropout {
    /// Its field in `config.json`; `None` if it is that of the layers.
    pub(crate) field: Option<&'static str>,
    /// Without the field; `None` is the dropout of the layers.
    pub(crate) default: Option<f64>,
}
