//! The names of the layer's tensors, their prefixes, and those that a wrapper around the model gives to all of its keys.

use super::families::FamilySpec;

pub(super) const WORD: &str = "word_embeddings.weight";
pub(super) const POSITION: &str = "position_embeddings.weight";
pub(super) const TOKEN_TYPE: &str = "token_type_embeddings.weight";
/// γ and β, as PyTorch has named them since 2019 and as files converted from TensorFlow name them.
pub(super) const LAYER_NORM: [[&str; 2]; 2] =
    [["LayerNorm.weight", "LayerNorm.bias"], ["LayerNorm.gamma", "LayerNorm.beta"]];
/// A buffer of older files: 0, 1, 2, ….
pub(super) const BUFFERS: [&str; 2] = ["position_ids", "token_type_ids"];

/// The prefix of the layer's keys in a file of the model alone.
pub(super) const MODEL_PREFIX: &str = "embeddings.";

/// Whether a supported family's keys have this prefix: none, the layer's name, or the model's and the layer's.
pub(super) fn is_known(prefix: &str) -> bool {
    prefix.is_empty()
        || prefix == MODEL_PREFIX
        || prefix
            .strip_suffix(&format!(".{MODEL_PREFIX}"))
            .is_some_and(|base| FamilySpec::of_base(base).is_some())
}

/// The prefixes of DataParallel and `torch.compile`, and those of trainers such as Lightning.
const WRAPPERS: [&str; 4] = ["module.", "_orig_mod.", "state_dict.", "model."];

/// The prefixes before the keys of the models that these keys belong to, each once; an empty one stands for a model
/// without a wrapper.
pub(super) fn wrappers<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = keys.filter_map(wrapper).map(String::from).collect();
    found.dedup();
    found
}

/// The prefix before the model's own key, if the key is that of a word table.
fn wrapper(key: &str) -> Option<&str> {
    let prefix = key.strip_suffix(WORD)?;
    let mut rest = prefix;
    while !is_known(rest) {
        rest = WRAPPERS.iter().find_map(|wrapper| rest.strip_prefix(wrapper))?;
    }
    Some(&prefix[..prefix.len() - rest.len()])
}
