//! How a family is stored: the names of its classes, fields and keys, and what is refused.

use super::Family;
use super::architecture::Architecture;
use Field::{Also, Named, Old};
use burn_fused::Activation;
use serde_json::{Map, Value};

/// What the models of a family are, and how they are stored: the names of classes, fields and keys, and the defaults of fields.
pub(crate) struct FamilySpec {
    pub(crate) family: Family,
    /// Hugging Face's name of the family, `model_type` of a `config.json`.
    pub(crate) model_type: &'static str,
    /// The prefix of its Python classes: `Bert` in `BertForMaskedLM`.
    pub(crate) class: &'static str,
    /// The prefix of its keys in a model with a head: `bert` in `bert.embeddings.…`.
    pub(crate) base: &'static str,
    /// Another prefix of its keys, in files that transformers did not write, whose `model_type` it is too.
    pub(crate) old_base: Option<&'static str>,
    pub(crate) architecture: Architecture,
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
    /// Whether the decoder is tied to the word embeddings.
    pub(crate) tie_word_embeddings: bool,
    /// θ of rotary positions in the layers that attend to all tokens.
    pub(crate) rope_theta: f64,
    // Keys. Those of the model follow its prefix, those of heads have none.
    /// The keys of embeddings, encoder and pooler.
    pub(crate) keys: Keys,
    /// Keys that differ from the `keys` taken over from another family.
    pub(crate) more_keys: Keys,
    /// Whether a bias that a module lacks is stored as zeros, as the class in Python always has one.
    pub(crate) zero_biases: bool,
    /// The keys of the masked-language-model head.
    pub(crate) masked_lm: Keys,
    /// Other keys of the masked-language-model head.
    pub(crate) other_masked_lm: Option<Keys>,
    /// The keys of the other heads.
    pub(crate) heads: Keys,
    /// The fields in `config.json` for the dropout of the heads, by what they classify.
    pub(crate) head_dropout: [Option<&'static str>; 3],
}

/// How a family names a field of BERT's `config.json`.
pub(crate) enum Field {
    /// The field has this name, and BERT's is ignored.
    Named(&'static str),
    /// The field has this name too, and BERT's counts if a config has both.
    Also(&'static str),
    /// Files that transformers did not write have this name, which counts if they lack BERT's.
    Old(&'static str),
    /// The family has no such field: the architecture has one value.
    Always,
}

/// A field of `config.json` that changes the model.
pub(crate) enum Unsupported {
    /// A flag, the value that is refused, and what the model does then.
    Flag(&'static str, bool, &'static str),
    /// A number, the only value that is supported (or null), and what another one means.
    OtherThan(&'static str, f64, &'static str),
    /// A text, the only one that is supported, and what another one means.
    OtherName(&'static str, &'static str, &'static str),
    /// A size that must be `hidden_size`, and what another one means.
    OtherWidth(&'static str, &'static str),
}

/// Paths of modules and the keys of their parameters, where they differ. `*` is a layer's number; modules between `+` are one
/// tensor, the first of them at its top. The first line that is of a path counts.
pub(crate) type Keys = &'static [(&'static str, &'static str)];

/// The prefix of the embedding layer's keys in a file without a head.
pub(crate) const EMBEDDINGS_PREFIX: &str = "embeddings.";

/// The path of the word embeddings below a model.
pub(crate) const WORD_EMBEDDINGS: &str = "embeddings.word_embeddings.weight";

impl FamilySpec {
    /// The keys of the model below a head: first those that differ from another family's.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        self.more_keys.iter().chain(self.keys)
    }

    /// The key of a parameter or module below a head, without the model's prefix.
    pub(crate) fn name(&self, path: &str) -> String {
        renamed(path, self.lines()).map_or_else(|| path.into(), |renamed| renamed.key)
    }

    /// Whether a key of this family that has no prefix is of the model and not of a head.
    pub(crate) fn is_of_model(&self, key: &str) -> bool {
        let first = |name: &'static str| name.split('.').next().unwrap_or(name);
        let mut parts = self.lines().map(|(_, name)| first(name)).chain(["embeddings", "pooler"]);
        parts.any(|part| key.strip_prefix(part).is_some_and(|rest| rest.starts_with('.')))
    }

    /// The prefix of the embedding layer's keys below the model's, `embeddings.` or nothing, and the word embeddings below it.
    pub(crate) fn word(&self) -> [&'static str; 2] {
        let own = self.lines().find(|(path, _)| *path == WORD_EMBEDDINGS);
        let name = own.map_or(WORD_EMBEDDINGS, |(_, name)| name);
        name.strip_prefix(EMBEDDINGS_PREFIX).map_or(["", name], |word| [EMBEDDINGS_PREFIX, word])
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

/// The first of these lines that is of the path of a parameter or module.
pub(crate) fn renamed<'a>(
    path: &str,
    mut lines: impl Iterator<Item = &'a (&'static str, &'static str)>,
) -> Option<Renamed> {
    lines.find_map(|&(modules, name)| {
        let (mut rest, mut layer, mut index, mut count) = (path.split('.'), "", 0, 1);
        for module in modules.split('.') {
            let found = rest.next()?;
            if module == "*" {
                layer = found;
            } else if module.contains('+') {
                index = module.split('+').position(|name| name == found)?;
                count = module.split('+').count();
            } else if module != found {
                return None;
            }
        }
        let key = rest.fold(name.replace('*', layer), |key, part| format!("{key}.{part}"));
        let module = match name.split_once('*') {
            Some((layers, _)) => layers.into(),
            None if key == name => key.clone(),
            None => format!("{name}."),
        };
        Some(Renamed { key, module, index, count })
    })
}

/// The key of a path.
pub(crate) fn key_of(path: &str, lines: Keys) -> String {
    renamed(path, lines.iter()).map_or_else(|| path.into(), |renamed| renamed.key)
}

/// The key that a line of [`Keys`] gives a path.
pub(crate) struct Renamed {
    pub(crate) key: String,
    /// The prefix of the module's keys in all layers.
    pub(crate) module: String,
    /// Which of the modules of one tensor it is, and how many they are.
    pub(crate) index: usize,
    pub(crate) count: usize,
}
