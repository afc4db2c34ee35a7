//! The model families whose input layer is this one.

use crate::config::PositionEmbeddingType::{self, Absolute, AfterPadding};

/// One `model_type` of Hugging Face and the defaults of its config class (transformers 5.23.0).
///
/// A family is listed if its embeddings class, given the same weights, returns what `BertEmbeddings` or
/// `RobertaEmbeddings` return. Others look alike and are not: ALBERT's table is narrower than its model,
/// MPNet and DistilBERT have no token types, MegatronBERT has no LayerNorm here, BigBird drops out before it.
pub(super) struct Family {
    pub(super) model_type: &'static str,
    /// What its Python classes start with: `Bert` of `BertForMaskedLM`.
    pub(super) class: &'static str,
    /// What its keys start with when a head sits on the model: `bert` of `bert.embeddings.…`.
    pub(super) base: &'static str,
    pub(super) positions: PositionEmbeddingType,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) pad_token_id: usize,
}

pub(super) const BERT: Family = Family {
    model_type: "bert",
    class: "Bert",
    base: "bert",
    positions: Absolute,
    vocab_size: 30522,
    hidden_size: 768,
    pad_token_id: 0,
};

pub(super) const ROBERTA: Family = Family {
    model_type: "roberta",
    class: "Roberta",
    base: "roberta",
    positions: AfterPadding,
    vocab_size: 50265,
    hidden_size: 768,
    pad_token_id: 1,
};

pub(super) const FAMILIES: [Family; 12] = [
    BERT,
    // ELECTRA-base's and -large's tables are as wide as the model; -small's are not and are refused by size.
    Family { model_type: "electra", class: "Electra", base: "electra", hidden_size: 256, ..BERT },
    Family { model_type: "ernie", class: "Ernie", base: "ernie", ..BERT },
    Family { model_type: "splinter", class: "Splinter", base: "splinter", ..BERT },
    ROBERTA,
    Family { model_type: "xlm-roberta", class: "XLMRoberta", vocab_size: 30522, ..ROBERTA },
    Family { model_type: "camembert", class: "Camembert", vocab_size: 30522, ..ROBERTA },
    Family { model_type: "xmod", class: "Xmod", vocab_size: 30522, ..ROBERTA },
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
        ..ROBERTA
    },
    Family {
        model_type: "longformer",
        class: "Longformer",
        base: "longformer",
        vocab_size: 30522,
        ..ROBERTA
    },
    Family { model_type: "luke", class: "Luke", base: "luke", vocab_size: 50267, ..ROBERTA },
];

impl Family {
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

    /// The families that a list of supported ones names, in words.
    pub(super) fn list() -> String {
        FAMILIES.map(|family| family.model_type).join(", ")
    }
}
