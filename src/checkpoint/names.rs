//! The names of the layer's tensors, and their prefixes.

use crate::embeddings::Family;

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
            .is_some_and(|base| Family::of_base(base).is_some())
}
