//! The table of families by what names them: `model_type`, classes and keys.

use super::families::*;
use super::family_spec::{FamilySpec, Unsupported};
use super::rotary_families::{GTE, JINA_EMBEDDINGS_V3, NOMIC_BERT};
use crate::family::{Architecture, Biases, Family, NormPlace, Pooler};

/// One entry for each [`Family`], in the order of its variants.
pub(crate) static FAMILIES: [FamilySpec; 15] = [
    BERT,
    DISTILBERT,
    ELECTRA,
    MPNET,
    ALBERT,
    FamilySpec {
        family: Family::Ernie,
        class: "Ernie",
        base: "ernie",
        unsupported: &[Unsupported::Flag("use_task_id", "adds task embeddings")],
        ..BERT
    },
    ROBERTA,
    FamilySpec { family: Family::XlmRoberta, class: "XLMRoberta", defaults: ROBERTA_DEFAULTS, ..ROBERTA },
    FamilySpec { family: Family::Camembert, class: "Camembert", defaults: ROBERTA_DEFAULTS, ..ROBERTA },
    FamilySpec {
        family: Family::Data2VecText,
        class: "Data2VecText",
        base: "data2vec_text",
        defaults: ROBERTA_DEFAULTS,
        ..ROBERTA
    },
    MODERN_BERT,
    NOMIC_BERT,
    GTE,
    JINA_EMBEDDINGS_V3,
    DEBERTA_V2,
];

const _: () = {
    let mut i = 0;
    while i < FAMILIES.len() {
        let FamilySpec { family, keys, .. } = &FAMILIES[i];
        assert!(*family as usize == i, "the entries are in the order of the variants");
        let Architecture { encoder, heads, .. } = family.architecture();
        assert!(matches!(heads.pooler, Pooler::Never) == keys.pooler.is_none());
        assert!(encoder.has_relative_attention_bias == keys.relative_attention_bias.is_some());
        assert!(encoder.is_disentangled == keys.disentangled.is_some());
        assert!(encoder.relative_scores.is_some() == keys.distances.is_some());
        let has_all = matches!(encoder.biases, Biases { of_layers: true, of_inner: true, of_others: true });
        assert!(has_all || !keys.zero_biases);
        assert!(heads.classifiers_have_transform == keys.transform.is_some());
        assert!(matches!(encoder.norm, NormPlace::Pre) == keys.final_norm.is_some());
        assert!(keys.linears.len() == if encoder.is_gated { 7 } else { 6 });
        i += 1;
    }
};

impl FamilySpec {
    pub(crate) fn of(family: Family) -> &'static Self {
        &FAMILIES[family as usize]
    }

    pub(crate) fn of_model_type(model_type: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|spec| spec.family.model_type() == model_type)
    }

    /// The family of a Python class such as `BertForMaskedLM`, `BertModel` or `BertLMHeadModel`.
    pub(crate) fn of_class(class: &str) -> Option<&'static Self> {
        let is_of = |spec: &&FamilySpec| {
            let rest = class.strip_prefix(spec.class);
            // What follows is checked too: `BertGenerationEncoder` is no BERT.
            rest.is_some_and(|rest| ["Model", "For", "LMHead"].iter().any(|head| rest.starts_with(head)))
        };
        FAMILIES.iter().find(is_of)
    }

    /// The first family whose models have this prefix and this key of word embeddings.
    pub(crate) fn of_base(base: &str, word: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|spec| spec.base == base && spec.keys.word == word)
    }

    pub(crate) fn supported() -> String {
        let names: Vec<_> = FAMILIES.iter().map(|spec| spec.family.model_type()).collect();
        format!("model types that can be read are {}", names.join(", "))
    }
}
