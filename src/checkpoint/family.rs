//! The model families whose input layer is this one.

use crate::embeddings::PositionEmbeddingType::{self, Absolute, AfterPadding};

/// One `model_type` of Hugging Face and the defaults of its config class (transformers 5.23.0).
///
/// A family is listed if its embeddings class, given the same weights, returns what `BertEmbeddings` or
/// `RobertaEmbeddings` return. Others look alike and are not: ALBERT's table is narrower than its model,
/// MPNet and DistilBERT have no token types, MegatronBERT has no LayerNorm here, BigBird drops out before it.
pub(crate) struct Family {
    pub(crate) model_type: &'static str,
    /// The prefix of its Python classes: `Bert` in `BertForMaskedLM`.
    pub(crate) class: &'static str,
    /// The prefix of its keys in a model with a head: `bert` in `bert.embeddings.…`.
    pub(crate) base: &'static str,
    pub(super) positions: PositionEmbeddingType,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) pad_token_id: usize,
    /// How its masked-language-model head is stored; `None` if encoder or head are not BERT's.
    pub(crate) head: Option<HeadKeys>,
}

/// The keys of a masked-language-model head.
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

pub(crate) const BERT: Family = Family {
    model_type: "bert",
    class: "Bert",
    base: "bert",
    positions: Absolute,
    vocab_size: 30522,
    hidden_size: 768,
    pad_token_id: 0,
    head: Some(BERT_HEAD),
};

pub(crate) const ROBERTA: Family = Family {
    model_type: "roberta",
    class: "Roberta",
    base: "roberta",
    positions: AfterPadding,
    vocab_size: 50265,
    hidden_size: 768,
    pad_token_id: 1,
    head: Some(ROBERTA_HEAD),
};

pub(crate) const FAMILIES: [Family; 12] = [
    BERT,
    // ELECTRA-base's and -large's tables are as wide as the model; -small's are not and are refused by size.
    Family { model_type: "electra", class: "Electra", base: "electra", hidden_size: 256, head: None, ..BERT },
    Family { model_type: "ernie", class: "Ernie", base: "ernie", ..BERT },
    Family { model_type: "splinter", class: "Splinter", base: "splinter", head: None, ..BERT },
    ROBERTA,
    Family { model_type: "xlm-roberta", class: "XLMRoberta", vocab_size: 30522, ..ROBERTA },
    Family { model_type: "camembert", class: "Camembert", vocab_size: 30522, ..ROBERTA },
    Family { model_type: "xmod", class: "Xmod", vocab_size: 30522, head: None, ..ROBERTA },
    Family {
        model_type: "data2vec-text",
        class: "Data2VecText",
        base: "data2vec_text",
        vocab_size: 30522,
        ..ROBERTA
    },
    Family {
        model_type: "roberta-prelayernorm",
        class: "RobertaPreLayerNorm",
        base: "roberta_prelayernorm",
        head: None,
        ..ROBERTA
    },
    Family {
        model_type: "longformer",
        class: "Longformer",
        base: "longformer",
        vocab_size: 30522,
        head: None,
        ..ROBERTA
    },
    Family { model_type: "luke", class: "Luke", base: "luke", vocab_size: 50267, head: None, ..ROBERTA },
];

impl Family {
    /// The default family for a position scheme.
    pub(crate) fn by_positions(positions: PositionEmbeddingType) -> &'static Family {
        match positions {
            AfterPadding => &ROBERTA,
            _ => &BERT,
        }
    }

    pub(super) fn of_model_type(model_type: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.model_type == model_type)
    }

    /// The family of a Python class such as `BertForMaskedLM`, `BertModel` or `BertLMHeadModel`.
    pub(super) fn of_class(class: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| {
            class
                .strip_prefix(family.class)
                .is_some_and(|rest| ["Model", "For", "LMHead"].iter().any(|head| rest.starts_with(head)))
        })
    }

    /// The families that a message lists as supported.
    pub(crate) fn list(is_supported: impl Fn(&Family) -> bool) -> String {
        let supported = FAMILIES.iter().filter(|family| is_supported(family));
        supported.map(|family| family.model_type).collect::<Vec<_>>().join(", ")
    }
}
