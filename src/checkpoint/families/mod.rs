//! How each family is stored: the names of its classes, fields and keys, and what is refused.

mod table;

use super::MODEL_PREFIX;
use crate::family::{Biases, Family, NormPlace, PositionEmbeddingType};
use Field::{Also, Named, Old};
use burn_fused::Activation;
use serde_json::{Map, Value};
pub(super) use table::FAMILIES;

/// How a family's models are stored: the names of its classes, fields and keys, and the defaults of fields.
pub(crate) struct FamilySpec {
    pub(crate) family: Family,
    /// The prefix of its Python classes: `Bert` in `BertForMaskedLM`.
    pub(crate) class: &'static str,
    /// The prefix of its keys in a model with a head: `bert` in `bert.embeddings.…`.
    pub(crate) base: &'static str,
    /// Another one, of files that transformers did not write.
    pub(crate) old_base: Option<&'static str>,
    /// BERT's fields that this family's `config.json` has under another name or not at all.
    pub(crate) fields: &'static [(&'static str, Field)],
    pub(crate) unsupported: &'static [Unsupported],
    // The values of fields that a `config.json` lacks: those of the family's config class in transformers 5.23.0.
    pub(crate) vocab_size: usize,
    pub(crate) type_vocab_size: usize,
    pub(crate) pad_token_id: usize,
    pub(crate) hidden_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) dropout: f64,
    pub(crate) attention_dropout: f64,
    pub(crate) hidden_act: Activation,
    pub(crate) max_position_embeddings: usize,
    pub(crate) layer_norm_eps: f64,
    /// `initializer_cutoff_factor`, of a family whose initial values are truncated.
    pub(crate) initializer_bound: Option<f64>,
    /// θ of rotary positions in the layers that attend to all tokens.
    pub(crate) rope_theta: f64,
    // Keys, of which those are used whose parameters a model has. Those of encoder and pooler follow the model's prefix.
    /// The word embeddings, below `embeddings.`, and their LayerNorm, with it where it is there.
    pub(crate) word: &'static str,
    pub(crate) embeddings_norm: &'static str,
    /// Whether a bias that a module lacks is stored as zeros, as the class in Python always has one.
    pub(crate) zero_biases: bool,
    /// What comes before a layer's number.
    pub(crate) layer: &'static str,
    /// Of the attention. Neighbours of one name, here and below, are one tensor, one below the other.
    pub(crate) query_key_value: [&'static str; 3],
    pub(crate) attention_output: &'static str,
    /// The first linear layer, the gate if there is one, and the last.
    pub(crate) feed_forward: &'static [&'static str],
    /// Whether the gate is above the feed-forward network's first where both are one tensor.
    pub(crate) gate_is_first: bool,
    /// That of the attention, and that of the feed-forward network.
    pub(crate) norms: [&'static str; 2],
    pub(crate) final_norm: Option<&'static str>,
    /// Relative positions by query and key.
    pub(crate) distances: &'static str,
    pub(crate) projection: Option<&'static str>,
    pub(crate) relative_attention_bias: Option<&'static str>,
    /// Vectors of distances and their norm, and in a layer the projections to their keys and queries.
    pub(crate) disentangled: Option<[&'static str; 4]>,
    pub(crate) pooler: &'static str,
    /// Classifiers that read its linear layer and norm have them under the same keys.
    pub(crate) masked_lm: HeadKeys,
    /// Other names of the same head.
    pub(crate) other_masked_lm: Option<HeadKeys>,
    /// The linear layer that scores answers.
    pub(crate) answers: &'static str,
    /// The two linear layers of a classifier of sequences that does not read the pooler.
    pub(crate) sequence_head: Option<[&'static str; 2]>,
    /// The fields in `config.json` for the dropout of the heads, by what they classify.
    pub(crate) head_dropout: [Option<&'static str>; 3],
}

/// What has become of a field of BERT's `config.json`.
pub(crate) enum Field {
    /// It has this name, and BERT's is ignored.
    Named(&'static str),
    /// It has this name beside BERT's, which counts if a config has both.
    Also(&'static str),
    /// Files that transformers did not write have this name, which counts if they lack BERT's.
    Old(&'static str),
    /// There is none: the architecture has one value.
    Always,
}

/// A field of `config.json` that changes the model.
pub(crate) enum Unsupported {
    /// What the model does if the field has this value.
    Flag(&'static str, bool, &'static str),
    /// What a field means that must have one value, if it is not null.
    OtherThan(&'static str, f64, &'static str),
    /// What a field means that must have one name.
    OtherName(&'static str, &'static str, &'static str),
    /// What a field means that must be `hidden_size`.
    OtherWidth(&'static str, &'static str),
}

pub(crate) struct HeadKeys {
    pub(crate) prefix: &'static str,
    pub(crate) transform: &'static str,
    pub(crate) layer_norm: &'static str,
    /// The first of these names that a file has.
    pub(crate) bias: &'static [&'static str],
    /// A copy of the word embeddings if the head is tied and the file's format does not share tensors.
    pub(crate) decoder: &'static str,
}

const _: () = {
    let mut i = 0;
    while i < FAMILIES.len() {
        let spec = &FAMILIES[i];
        assert!(spec.family as usize == i, "the entries are in the order of the variants");
        let own = spec.family.architecture();
        assert!(own.has_relative_attention_bias == spec.relative_attention_bias.is_some());
        let is_disentangled = matches!(own.positions, PositionEmbeddingType::Disentangled);
        assert!(is_disentangled == spec.disentangled.is_some());
        let has_all = matches!(own.biases, Biases { of_layers: true, of_inner: true, of_others: true });
        assert!(has_all || !spec.zero_biases);
        assert!(matches!(own.norm, NormPlace::Pre) == spec.final_norm.is_some());
        assert!(spec.feed_forward.len() == if own.is_gated { 3 } else { 2 });
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

    /// The first family whose embedding layers have this prefix below a model's, and this key of word embeddings.
    pub(crate) fn of_prefix(prefix: &str, word: &str) -> Option<&'static Self> {
        let base = prefix.strip_suffix(MODEL_PREFIX)?.strip_suffix('.')?;
        let is_of = |spec: &&FamilySpec| spec.base == base || spec.old_base == Some(base);
        FAMILIES.iter().filter(|spec| spec.word == word).find(is_of)
    }

    pub(crate) fn supported() -> String {
        let names: Vec<_> = FAMILIES.iter().map(|spec| spec.family.model_type()).collect();
        format!("model types that can be read are {}", names.join(", "))
    }

    /// Fields with BERT's names under those of this family, without those that it does not have.
    pub(crate) fn named(&self, mut fields: Map<String, Value>) -> Map<String, Value> {
        for (field, name) in self.fields.iter().filter(|(_, name)| !matches!(name, Old(_))) {
            // One of `Always` is left out: the family's config class has no such field.
            if let (Some(value), Named(name) | Also(name)) = (fields.remove(*field), name) {
                fields.insert(name.to_string(), value);
            }
        }
        fields
    }
}
