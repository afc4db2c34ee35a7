//! The model families, and what each of them means.
#![cfg_attr(not(feature = "checkpoint"), allow(dead_code))]

use PositionEmbeddingType::{Absolute, AfterPadding};
use burn::config::Config;

/// The family of a model: Hugging Face's `model_type`.
///
/// It determines the keys and the class under which a model is stored, the defaults of a `config.json`, the layout of
/// the classifier of sequences, and what absolute positions are (see [`PositionEmbeddingType`]).
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
    /// `electra`; the input layer only
    Electra,
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
/// `RobertaEmbeddings` return. Others look alike and are not: ALBERT's table is narrower than its model,
/// MPNet and DistilBERT have no token types, MegatronBERT has no LayerNorm here, BigBird drops out before it.
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
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) pad_token_id: usize,
    /// What some of its configs say and this crate does not compute.
    pub(crate) unsupported: Option<Unsupported>,
    /// Whether the classifier of sequences has a dense layer of its own in the place of the pooler.
    pub(crate) has_dense_classifier: bool,
    /// The keys above the input layer; `None` if the encoder is not BERT's.
    pub(crate) keys: Option<FamilyKeys>,
}

/// A field of `config.json` that changes the input layer.
#[derive(Debug)]
pub(crate) enum Unsupported {
    /// Tables of another width than the model's: the field, and the width where it is not stated.
    Width(&'static str, usize),
    /// What the model does if the field is true.
    Flag(&'static str, &'static str),
}

/// The keys of a family above its input layer; those of encoder and pooler follow the model's prefix.
#[derive(Debug)]
pub(crate) struct FamilyKeys {
    pub(crate) layer: LayerKeys,
    pub(crate) pooler: &'static str,
    pub(crate) masked_lm: HeadKeys,
}

/// The keys of an encoder's layers.
#[derive(Debug)]
pub(crate) struct LayerKeys {
    /// What comes before a layer's number.
    pub(crate) prefix: &'static str,
    pub(crate) query: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) distances: &'static str,
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
    pub(crate) bias: [&'static str; 2],
    /// The decoder's weight. A tied head's is the word table again, in files whose format does not share tensors.
    pub(crate) decoder: &'static str,
}

const BERT_LAYER: LayerKeys = LayerKeys {
    prefix: "encoder.layer.",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    distances: "attention.self.distance_embedding.weight",
    attention_output: "attention.output.dense",
    attention_layer_norm: "attention.output.LayerNorm",
    intermediate: "intermediate.dense",
    output: "output.dense",
    output_layer_norm: "output.LayerNorm",
};

const BERT_HEAD: HeadKeys = HeadKeys {
    prefix: "cls.predictions.",
    transform: "cls.predictions.transform.dense",
    layer_norm: "cls.predictions.transform.LayerNorm",
    bias: ["cls.predictions.bias", "cls.predictions.decoder.bias"],
    decoder: "cls.predictions.decoder.weight",
};

const ROBERTA_HEAD: HeadKeys = HeadKeys {
    prefix: "lm_head.",
    transform: "lm_head.dense",
    layer_norm: "lm_head.layer_norm",
    bias: ["lm_head.bias", "lm_head.decoder.bias"],
    decoder: "lm_head.decoder.weight",
};

const BERT: FamilySpec = FamilySpec {
    family: Family::Bert,
    model_type: "bert",
    class: "Bert",
    base: "bert",
    positions: Absolute,
    vocab_size: 30522,
    hidden_size: 768,
    pad_token_id: 0,
    unsupported: None,
    has_dense_classifier: false,
    keys: Some(FamilyKeys { layer: BERT_LAYER, pooler: "pooler.", masked_lm: BERT_HEAD }),
};

const ROBERTA: FamilySpec = FamilySpec {
    family: Family::Roberta,
    model_type: "roberta",
    class: "Roberta",
    base: "roberta",
    positions: AfterPadding,
    vocab_size: 50265,
    pad_token_id: 1,
    has_dense_classifier: true,
    keys: Some(FamilyKeys { layer: BERT_LAYER, pooler: "pooler.", masked_lm: ROBERTA_HEAD }),
    ..BERT
};

/// One entry for each [`Family`], in the order of its variants.
pub(crate) static FAMILIES: [FamilySpec; 12] = [
    BERT,
    FamilySpec {
        family: Family::Electra,
        model_type: "electra",
        class: "Electra",
        base: "electra",
        hidden_size: 256,
        // ELECTRA-base's and -large's tables are as wide as the model; -small's are not.
        unsupported: Some(Unsupported::Width("embedding_size", 128)),
        keys: None,
        ..BERT
    },
    FamilySpec {
        family: Family::Ernie,
        model_type: "ernie",
        class: "Ernie",
        base: "ernie",
        unsupported: Some(Unsupported::Flag("use_task_id", "adds task embeddings")),
        ..BERT
    },
    FamilySpec {
        family: Family::Splinter,
        model_type: "splinter",
        class: "Splinter",
        base: "splinter",
        keys: None,
        ..BERT
    },
    ROBERTA,
    FamilySpec {
        family: Family::XlmRoberta,
        model_type: "xlm-roberta",
        class: "XLMRoberta",
        vocab_size: 30522,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Camembert,
        model_type: "camembert",
        class: "Camembert",
        vocab_size: 30522,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Xmod,
        model_type: "xmod",
        class: "Xmod",
        vocab_size: 30522,
        keys: None,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Data2VecText,
        model_type: "data2vec-text",
        class: "Data2VecText",
        base: "data2vec_text",
        vocab_size: 30522,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::RobertaPreLayerNorm,
        model_type: "roberta-prelayernorm",
        class: "RobertaPreLayerNorm",
        base: "roberta_prelayernorm",
        keys: None,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Longformer,
        model_type: "longformer",
        class: "Longformer",
        base: "longformer",
        vocab_size: 30522,
        keys: None,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Luke,
        model_type: "luke",
        class: "Luke",
        base: "luke",
        vocab_size: 50267,
        keys: None,
        ..ROBERTA
    },
];

const _: () = {
    let mut i = 0;
    while i < FAMILIES.len() {
        assert!(FAMILIES[i].family as usize == i, "the entries are in the order of the variants");
        i += 1;
    }
};

impl Family {
    /// Hugging Face's name: the `model_type` of a `config.json`.
    pub fn model_type(self) -> &'static str {
        self.spec().model_type
    }

    pub(crate) fn spec(self) -> &'static FamilySpec {
        &FAMILIES[self as usize]
    }

    pub(crate) fn of_model_type(model_type: &str) -> Option<Self> {
        FAMILIES.iter().find(|spec| spec.model_type == model_type).map(|spec| spec.family)
    }

    /// The family of a Python class such as `BertForMaskedLM`, `BertModel` or `BertLMHeadModel`.
    pub(crate) fn of_class(class: &str) -> Option<Self> {
        let is_of = |spec: &&FamilySpec| {
            let rest = class.strip_prefix(spec.class);
            rest.is_some_and(|rest| ["Model", "For", "LMHead"].iter().any(|head| rest.starts_with(head)))
        };
        FAMILIES.iter().find(is_of).map(|spec| spec.family)
    }

    /// The first family whose keys start with `base`.
    pub(crate) fn of_base(base: &str) -> Option<Self> {
        FAMILIES.iter().find(|spec| spec.base == base).map(|spec| spec.family)
    }

    /// The families that a message lists as supported.
    pub(crate) fn list(is_supported: impl Fn(&FamilySpec) -> bool) -> String {
        let supported = FAMILIES.iter().filter(|spec| is_supported(spec));
        supported.map(|spec| spec.model_type).collect::<Vec<_>>().join(", ")
    }
}
