//! Which key of a checkpoint holds which parameter.

use super::families::FamilySpec;
use super::files::Checkpoint;
use super::names::{BUFFERS, LAYER_NORM, MODEL_PREFIX, POSITION, TOKEN_TYPE, WORD, is_known};
use crate::error::{Error, Result, shown};
use crate::family::Family;

/// The keys of the layer's parameters in one checkpoint.
pub(crate) struct Keys {
    pub(super) prefix: String,
    pub(super) word: String,
    pub(super) position: String,
    pub(super) token_type: String,
    pub(super) gamma: String,
    pub(super) beta: String,
}

impl Keys {
    pub(crate) fn locate(checkpoint: &Checkpoint) -> Result<Self> {
        let tables = checkpoint.keys().filter_map(|key| key.strip_suffix(WORD));
        let (known, unknown): (Vec<&str>, Vec<&str>) = tables.partition(|prefix| is_known(prefix));
        let prefix = match known[..] {
            [prefix] => prefix.to_string(),
            [] => {
                let hint = match unknown.first() {
                    Some(prefix) => {
                        format!("there is {}{WORD}, but that prefix is of no supported family", shown(prefix))
                    }
                    None => "is this a BERT or RoBERTa checkpoint?".into(),
                };
                let path = checkpoint.path().to_path_buf();
                return Err(Error::MissingKey { path, key: format!("{MODEL_PREFIX}{WORD}"), hint });
            }
            _ => return Err(ambiguous(checkpoint, known.iter().map(|prefix| format!("{prefix}{WORD}")))),
        };
        let named = |name: &str| format!("{prefix}{name}");
        let has = |name: &&[&str; 2]| checkpoint.keys().any(|key| key == named(name[0]));
        let styles: Vec<&[&str; 2]> = LAYER_NORM.iter().filter(has).collect();
        match styles[..] {
            [style] => Ok(Self::named(&prefix, style)),
            [] => Ok(Self::under(&prefix)),
            _ => Err(ambiguous(checkpoint, LAYER_NORM.iter().map(|style| named(style[0])))),
        }
    }

    /// The layer's keys under a prefix, by the names that PyTorch uses today.
    pub(crate) fn under(prefix: &str) -> Self {
        Self::named(prefix, &LAYER_NORM[0])
    }

    fn named(prefix: &str, [gamma, beta]: &[&str; 2]) -> Self {
        let named = |name: &str| format!("{prefix}{name}");
        Self {
            prefix: prefix.to_string(),
            word: named(WORD),
            position: named(POSITION),
            token_type: named(TOKEN_TYPE),
            gamma: named(gamma),
            beta: named(beta),
        }
    }

    /// Whether a stored tensor belongs to the layer: a save replaces it, or removes it if it is an old buffer.
    pub(crate) fn is_of_layer(&self, key: &str, has_positions: bool) -> bool {
        let Some(name) = key.strip_prefix(&self.prefix) else { return false };
        match name {
            POSITION => has_positions,
            WORD | TOKEN_TYPE => true,
            name => is_buffer(name) || LAYER_NORM.as_flattened().contains(&name),
        }
    }

    /// The key of the word table.
    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// The prefix of the whole model's keys: `bert.` or empty; `None` for a file of the layer alone.
    pub(crate) fn model_prefix(&self) -> Option<&str> {
        self.prefix.strip_suffix(MODEL_PREFIX)
    }

    /// The names of γ and β in this file: PyTorch's, or those of files converted from TensorFlow.
    pub(crate) fn layer_norm(&self) -> [&'static str; 2] {
        if self.gamma.ends_with(".gamma") { ["gamma", "beta"] } else { ["weight", "bias"] }
    }

    /// The first family that uses this prefix; `None` for an empty one.
    pub(crate) fn family(&self) -> Option<Family> {
        FamilySpec::of_base(self.prefix.strip_suffix(&format!(".{MODEL_PREFIX}"))?).map(|spec| spec.family)
    }
}

/// Whether a tensor of the layer is a buffer and not a parameter.
fn is_buffer(name: &str) -> bool {
    BUFFERS.contains(&name)
}

fn ambiguous(checkpoint: &Checkpoint, keys: impl Iterator<Item = String>) -> Error {
    super::files::ambiguous(checkpoint.path(), &keys.collect::<Vec<_>>())
}
