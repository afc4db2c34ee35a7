//! The table of families: one entry each.
#![cfg_attr(not(feature = "checkpoint"), allow(dead_code))]

use super::family::{
    ClassifierDropout, Defaults, Family, FamilyKeys, FamilySpec, Field, HeadActivation, HeadKeys, LayerKeys,
    PositionEmbeddingType, Projection, SequenceHead, Unsupported,
};
use crate::operator::Activation;
use Field::{Also, Always, Named};
use PositionEmbeddingType::{Absolute, AfterPadding};
#[cfg(feature = "checkpoint")]
use serde_json::{Map, Value};

const BERT_LAYER: LayerKeys = LayerKeys {
    prefix: "encoder.layer.",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    distances: Some("attention.self.distance_embedding.weight"),
    attention_output: "attention.output.dense",
    attention_layer_norm: "attention.output.LayerNorm",
    intermediate: "intermediate.dense",
    output: "output.dense",
    output_layer_norm: "output.LayerNorm",
};

const BERT_KEYS: FamilyKeys = FamilyKeys {
    layer: BERT_LAYER,
    projection: None,
    relative_attention_bias: None,
    pooler: Some("pooler.dense"),
    masked_lm: HeadKeys {
        prefix: "cls.predictions.",
        transform: "cls.predictions.transform.dense",
        layer_norm: "cls.predictions.transform.LayerNorm",
        bias: &["cls.predictions.bias", "cls.predictions.decoder.bias"],
        decoder: "cls.predictions.decoder.weight",
        has_activation_of_layers: true,
    },
    classifier: SequenceHead::Pooled,
    classifier_dropout: [dropout("classifier_dropout", None), dropout("classifier_dropout", None), NEVER],
};

const ROBERTA_KEYS: FamilyKeys = FamilyKeys {
    masked_lm: HeadKeys {
        prefix: "lm_head.",
        transform: "lm_head.dense",
        layer_norm: "lm_head.layer_norm",
        bias: &["lm_head.bias", "lm_head.decoder.bias"],
        decoder: "lm_head.decoder.weight",
        has_activation_of_layers: false,
    },
    classifier: SequenceHead::Dense {
        dense: "classifier.dense",
        out_proj: "classifier.out_proj",
        activation: HeadActivation::Tanh,
        drops_input: true,
    },
    ..BERT_KEYS
};

const fn dropout(field: &'static str, default: Option<f64>) -> ClassifierDropout {
    ClassifierDropout { field: Some(field), default }
}

/// That of the layers.
const OF_LAYERS: ClassifierDropout = ClassifierDropout { field: None, default: None };

const NEVER: ClassifierDropout = ClassifierDropout { field: None, default: Some(0.0) };

const BERT_DEFAULTS: Defaults = Defaults {
    vocab_size: 30522,
    type_vocab_size: 2,
    pad_token_id: 0,
    embedding_size: 128,
    hidden_size: 768,
    num_hidden_layers: 12,
    num_attention_heads: 12,
    intermediate_size: 3072,
    dropout: 0.1,
    hidden_act: Activation::Gelu,
};

const BERT: FamilySpec = FamilySpec {
    family: Family::Bert,
    model_type: "bert",
    class: "Bert",
    base: "bert",
    positions: Absolute,
    defaults: BERT_DEFAULTS,
    fields: &[],
    unsupported: &[],
    projection: Projection::Never,
    shares_layers: false,
    output_dropout: [true; 2],
    keys: Some(BERT_KEYS),
};

/// Of the config classes that transformers derived from RoBERTa's: the vocabulary is BERT's.
const ROBERTA_DEFAULTS: Defaults = Defaults { pad_token_id: 1, ..BERT_DEFAULTS };

const ROBERTA: FamilySpec = FamilySpec {
    family: Family::Roberta,
    model_type: "roberta",
    class: "Roberta",
    base: "roberta",
    positions: AfterPadding,
    defaults: Defaults { vocab_size: 50265, ..ROBERTA_DEFAULTS },
    keys: Some(ROBERTA_KEYS),
    ..BERT
};

const DISTILBERT: FamilySpec = FamilySpec {
    family: Family::DistilBert,
    model_type: "distilbert",
    class: "DistilBert",
    base: "distilbert",
    defaults: Defaults { type_vocab_size: 0, num_hidden_layers: 6, ..BERT_DEFAULTS },
    fields: &[
        ("hidden_size", Also("dim")),
        ("num_hidden_layers", Also("n_layers")),
        ("num_attention_heads", Also("n_heads")),
        ("intermediate_size", Named("hidden_dim")),
        ("hidden_dropout_prob", Named("dropout")),
        ("attention_probs_dropout_prob", Named("attention_dropout")),
        ("hidden_act", Named("activation")),
        ("type_vocab_size", Always(0.0)),
        ("layer_norm_eps", Always(1e-12)),
    ],
    output_dropout: [false, true],
    keys: Some(FamilyKeys {
        layer: LayerKeys {
            prefix: "transformer.layer.",
            query: "attention.q_lin",
            key: "attention.k_lin",
            value: "attention.v_lin",
            distances: None,
            attention_output: "attention.out_lin",
            attention_layer_norm: "sa_layer_norm",
            intermediate: "ffn.lin1",
            output: "ffn.lin2",
            output_layer_norm: "output_layer_norm",
        },
        pooler: None,
        masked_lm: HeadKeys {
            prefix: "vocab_",
            transform: "vocab_transform",
            layer_norm: "vocab_layer_norm",
            bias: &["vocab_projector.bias"],
            decoder: "vocab_projector.weight",
            has_activation_of_layers: true,
        },
        classifier: SequenceHead::Dense {
            dense: "pre_classifier",
            out_proj: "classifier",
            activation: HeadActivation::Relu,
            drops_input: false,
        },
        classifier_dropout: [
            dropout("seq_classif_dropout", Some(0.2)),
            OF_LAYERS,
            dropout("qa_dropout", Some(0.1)),
        ],
        ..BERT_KEYS
    }),
    ..BERT
};

const ELECTRA: FamilySpec = FamilySpec {
    family: Family::Electra,
    model_type: "electra",
    class: "Electra",
    base: "electra",
    defaults: Defaults { hidden_size: 256, num_attention_heads: 4, intermediate_size: 1024, ..BERT_DEFAULTS },
    projection: Projection::IfOther,
    keys: Some(FamilyKeys {
        projection: Some("embeddings_project"),
        pooler: None,
        masked_lm: HeadKeys {
            prefix: "generator_",
            transform: "generator_predictions.dense",
            layer_norm: "generator_predictions.LayerNorm",
            bias: &["generator_lm_head.bias"],
            decoder: "generator_lm_head.weight",
            has_activation_of_layers: false,
        },
        classifier: SequenceHead::Dense {
            dense: "classifier.dense",
            out_proj: "classifier.out_proj",
            activation: HeadActivation::Gelu,
            drops_input: true,
        },
        ..BERT_KEYS
    }),
    ..BERT
};

const MPNET: FamilySpec = FamilySpec {
    family: Family::MpNet,
    model_type: "mpnet",
    class: "MPNet",
    base: "mpnet",
    defaults: Defaults { vocab_size: 30527, type_vocab_size: 0, ..ROBERTA_DEFAULTS },
    fields: &[("type_vocab_size", Always(0.0))],
    // transformers' class computes with these values whatever a config says.
    unsupported: &[
        Unsupported::OtherThan("relative_attention_num_buckets", 32, "other buckets of relative positions"),
        Unsupported::OtherThan("pad_token_id", 1, "another padding id"),
    ],
    keys: Some(FamilyKeys {
        layer: LayerKeys {
            query: "attention.attn.q",
            key: "attention.attn.k",
            value: "attention.attn.v",
            distances: None,
            attention_output: "attention.attn.o",
            attention_layer_norm: "attention.LayerNorm",
            ..BERT_LAYER
        },
        relative_attention_bias: Some("encoder.relative_attention_bias.weight"),
        classifier_dropout: [OF_LAYERS, OF_LAYERS, NEVER],
        ..ROBERTA_KEYS
    }),
    ..ROBERTA
};

const ALBERT: FamilySpec = FamilySpec {
    family: Family::Albert,
    model_type: "albert",
    class: "Albert",
    base: "albert",
    defaults: Defaults {
        vocab_size: 30000,
        hidden_size: 4096,
        num_attention_heads: 64,
        intermediate_size: 16384,
        dropout: 0.0,
        hidden_act: Activation::GeluTanh,
        ..BERT_DEFAULTS
    },
    unsupported: &[
        Unsupported::OtherThan("num_hidden_groups", 1, "several groups of layers"),
        Unsupported::OtherThan("inner_group_num", 1, "several layers in a group"),
    ],
    projection: Projection::Always,
    shares_layers: true,
    output_dropout: [true, false],
    keys: Some(FamilyKeys {
        layer: LayerKeys {
            prefix: "encoder.albert_layer_groups.0.albert_layers.",
            query: "attention.query",
            key: "attention.key",
            value: "attention.value",
            distances: Some("attention.distance_embedding.weight"),
            attention_output: "attention.dense",
            attention_layer_norm: "attention.LayerNorm",
            intermediate: "ffn",
            output: "ffn_output",
            output_layer_norm: "full_layer_layer_norm",
        },
        projection: Some("encoder.embedding_hidden_mapping_in"),
        pooler: Some("pooler"),
        masked_lm: HeadKeys {
            prefix: "predictions.",
            transform: "predictions.dense",
            layer_norm: "predictions.LayerNorm",
            bias: &["predictions.bias", "predictions.decoder.bias"],
            decoder: "predictions.decoder.weight",
            has_activation_of_layers: true,
        },
        classifier_dropout: [
            dropout("classifier_dropout_prob", Some(0.1)),
            dropout("classifier_dropout_prob", Some(0.1)),
            NEVER,
        ],
        ..BERT_KEYS
    }),
    ..BERT
};

/// One entry for each [`Family`], in the order of its variants.
pub(crate) static FAMILIES: [FamilySpec; 15] = [
    BERT,
    DISTILBERT,
    ELECTRA,
    MPNET,
    ALBERT,
    FamilySpec {
        family: Family::Ernie,
        model_type: "ernie",
        class: "Ernie",
        base: "ernie",
        unsupported: &[Unsupported::Flag("use_task_id", "adds task embeddings")],
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
        defaults: ROBERTA_DEFAULTS,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Camembert,
        model_type: "camembert",
        class: "Camembert",
        defaults: ROBERTA_DEFAULTS,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Xmod,
        model_type: "xmod",
        class: "Xmod",
        defaults: ROBERTA_DEFAULTS,
        keys: None,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Data2VecText,
        model_type: "data2vec-text",
        class: "Data2VecText",
        base: "data2vec_text",
        defaults: ROBERTA_DEFAULTS,
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
        defaults: ROBERTA_DEFAULTS,
        keys: None,
        ..ROBERTA
    },
    FamilySpec {
        family: Family::Luke,
        model_type: "luke",
        class: "Luke",
        base: "luke",
        defaults: Defaults { vocab_size: 50267, ..ROBERTA_DEFAULTS },
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

    /// Whether its input layer has a table of token types.
    pub(crate) fn has_token_types(self) -> bool {
        self.spec().defaults.type_vocab_size > 0
    }

    /// The first family whose keys start with `base`.
    pub(crate) fn of_base(base: &str) -> Option<Self> {
        FAMILIES.iter().find(|spec| spec.base == base).map(|spec| spec.family)
    }

    /// What a message says of the families that can be read.
    pub(crate) fn supported() -> String {
        let list = |is_whole: bool| {
            let listed = FAMILIES.iter().filter(|spec| spec.keys.is_some() == is_whole);
            listed.map(|spec| spec.model_type).collect::<Vec<_>>().join(", ")
        };
        format!(
            "BertModel and its heads read {}; BertEmbeddings reads also the input layer of {}",
            list(true),
            list(false)
        )
    }
}

impl FamilySpec {
    /// Fields with BERT's names under those of this family, without those that it does not have.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn named(&self, mut fields: Map<String, Value>) -> Map<String, Value> {
        for (field, name) in self.fields {
            if let (Some(value), Named(name) | Also(name)) = (fields.remove(*field), name) {
                fields.insert(name.to_string(), value);
            }
        }
        fields
    }

    /// The name in `config.json` of a field that BERT calls `field`; `None` if this family has none.
    pub(crate) fn name_of(&self, field: &'static str) -> Option<&'static str> {
        match self.fields.iter().find(|(bert, _)| *bert == field) {
            None => Some(field),
            Some((_, Named(name) | Also(name))) => Some(name),
            Some((_, Always(_))) => None,
        }
    }
}
