//! Which key of a checkpoint holds which parameter.

use super::families::{FamilyKeys, FamilySpec};
use super::files::{
    BUFFERS, Checkpoint, LAYER_NORM, MODEL_PREFIX, POSITION, TOKEN_TYPE, WORD, ambiguous, is_known,
};
use crate::error::{Error, Result, shown};
use crate::family::Family;
use std::collections::BTreeSet;

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
                return Err(Error::missing_key(checkpoint.path(), format!("{MODEL_PREFIX}{WORD}"), hint));
            }
            _ => {
                let keys: Vec<_> = known.iter().map(|prefix| format!("{prefix}{WORD}")).collect();
                return Err(ambiguous(checkpoint.path(), &keys));
            }
        };
        let named = |name: &str| format!("{prefix}{name}");
        let has = |name: &&[&str; 2]| checkpoint.keys().any(|key| key == named(name[0]));
        let styles: Vec<&[&str; 2]> = LAYER_NORM.iter().filter(has).collect();
        match styles[..] {
            [style] => Ok(Self::named(&prefix, style)),
            // Missing: the error of the load names today's keys.
            [] => Ok(Self::under(&prefix)),
            _ => Err(ambiguous(checkpoint.path(), &LAYER_NORM.map(|style| named(style[0])))),
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
            name => BUFFERS.contains(&name) || LAYER_NORM.as_flattened().contains(&name),
        }
    }

    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// The prefix of the whole model's keys: `bert.` or empty; `None` for a file of the layer alone.
    pub(crate) fn model_prefix(&self) -> Option<&str> {
        self.prefix.strip_suffix(MODEL_PREFIX)
    }

    pub(crate) fn layer_norm(&self) -> [&'static str; 2] {
        if self.gamma.ends_with(".gamma") { ["gamma", "beta"] } else { ["weight", "bias"] }
    }

    /// The first family that uses this prefix; `None` for an empty one.
    pub(crate) fn family(&self) -> Option<Family> {
        FamilySpec::of_base(self.prefix.strip_suffix(&format!(".{MODEL_PREFIX}"))?).map(|spec| spec.family)
    }
}

/// The keys of a checkpoint that is read or written: its model's prefix and its family's names.
/// [`Stored`](crate::model::Stored) has an example.
pub struct ModelKeys {
    pub(crate) embeddings: Keys,
    /// What the keys of all but the head start with: `bert.`, or nothing.
    pub(crate) prefix: String,
    pub(crate) family: &'static FamilyKeys,
    /// The keys of the checkpoint that is read; `None` of one that is written.
    pub(crate) stored: Option<BTreeSet<String>>,
}

impl ModelKeys {
    pub(crate) fn locate(checkpoint: &Checkpoint, family: &'static FamilyKeys) -> Result<Self> {
        let embeddings = Keys::locate(checkpoint)?;
        let Some(prefix) = embeddings.model_prefix().map(String::from) else {
            let key = format!("{}0.{}.weight", family.layer.prefix, family.layer.query);
            let hint = "these are the tensors of an embedding layer alone; load them with BertEmbeddings";
            return Err(Error::missing_key(checkpoint.path(), key, hint));
        };
        // A copy, as the checkpoint is borrowed mutably while shards are opened.
        let stored = Some(checkpoint.keys().map(String::from).collect());
        Ok(Self { embeddings, prefix, family, stored })
    }

    /// The keys that transformers writes, with what the model's start with.
    pub(crate) fn written(prefix: String, family: &'static FamilyKeys) -> Self {
        Self { embeddings: Keys::under(&format!("{prefix}embeddings.")), prefix, family, stored: None }
    }

    /// Refuses a checkpoint with fewer layers than the config, before any layer is built.
    pub(crate) fn check_depth(
        &self,
        checkpoint: &Checkpoint,
        family: Family,
        num_hidden_layers: usize,
    ) -> Result<()> {
        let last = if family.architecture().shares_layers { 0 } else { num_hidden_layers.saturating_sub(1) };
        let key = self.layer(last, &format!("{}.weight", self.family.layer.query));
        if checkpoint.keys().any(|stored| stored == key) {
            return Ok(());
        }
        let hint = format!("num_hidden_layers is {num_hidden_layers}, so this layer should be there");
        Err(Error::missing_key(checkpoint.path(), key, hint))
    }

    pub(crate) fn layer(&self, index: usize, part: &str) -> String {
        format!("{}{index}.{part}", self.encoder())
    }

    pub(crate) fn encoder(&self) -> String {
        format!("{}{}", self.prefix, self.family.layer.prefix)
    }

    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// γ and β of a LayerNorm, as this checkpoint calls them.
    pub(crate) fn norm(&self, name: &str) -> [String; 2] {
        self.embeddings.layer_norm().map(|part| format!("{name}.{part}"))
    }
}
