//! Which key of a checkpoint holds which parameter.

use super::families::{FamilyKeys, FamilySpec};
use super::files::{
    BUFFERS, Checkpoint, GAMMA_BETA, LAYER_NORM, MODEL_PREFIX, POSITION, TOKEN_TYPE, WORD, ambiguous,
    is_known,
};
use crate::error::{Error, Result, shown};
use crate::family::Family;
use std::collections::BTreeSet;

/// Where a checkpoint has the embedding layer.
pub(crate) struct Keys {
    pub(super) prefix: String,
    /// What γ and β of every LayerNorm are called.
    pub(crate) gamma_beta: [&'static str; 2],
}

impl Keys {
    pub(crate) fn locate(checkpoint: &Checkpoint) -> Result<Self> {
        let tables = checkpoint.keys().filter_map(|key| key.strip_suffix(WORD));
        let (known, unknown): (Vec<&str>, Vec<&str>) = tables.partition(|prefix| is_known(prefix));
        let prefix = match known[..] {
            [prefix] => prefix,
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
        let styles = GAMMA_BETA.map(|gamma_beta| Self { prefix: prefix.to_string(), gamma_beta });
        let has_gamma = |style: &&Self| checkpoint.keys().any(|key| key == style.layer_norm()[0]);
        if styles.iter().all(|style| has_gamma(&style)) {
            return Err(ambiguous(checkpoint.path(), &styles.map(|style| style.layer_norm()[0].clone())));
        }
        // With neither, the error of the load names today's keys.
        Ok(styles.into_iter().find(|style| has_gamma(&style)).unwrap_or_else(|| Self::under(prefix)))
    }

    /// The layer's keys under a prefix, by the names that PyTorch uses today.
    pub(crate) fn under(prefix: &str) -> Self {
        Self { prefix: prefix.to_string(), gamma_beta: GAMMA_BETA[0] }
    }

    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn layer_norm(&self) -> [String; 2] {
        self.gamma_beta.map(|part| self.named(&format!("{LAYER_NORM}.{part}")))
    }

    /// Whether a stored tensor belongs to the layer: a save replaces it, or removes it if it is an old buffer.
    pub(crate) fn is_of_layer(&self, key: &str, has_positions: bool) -> bool {
        let Some(name) = key.strip_prefix(&self.prefix) else { return false };
        match name.split_once('.') {
            _ if name == POSITION => has_positions,
            Some((LAYER_NORM, part)) => GAMMA_BETA.as_flattened().contains(&part),
            _ => [WORD, TOKEN_TYPE].contains(&name) || BUFFERS.contains(&name),
        }
    }

    /// The prefix of the whole model's keys: `bert.` or empty; `None` for a file of the layer alone.
    pub(crate) fn model_prefix(&self) -> Option<&str> {
        self.prefix.strip_suffix(MODEL_PREFIX)
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
            let key = format!("{}0.{}.weight", family.layer.prefix, family.layer.linears[0]);
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

    /// Refuses a checkpoint with fewer than `stored` layers, before any layer is built.
    pub(crate) fn check_depth(
        &self,
        checkpoint: &Checkpoint,
        stored: usize,
        num_hidden_layers: usize,
    ) -> Result<()> {
        // The last layer: the keys of a checkpoint with fewer end before it.
        let last = stored.saturating_sub(1);
        let key = self.layer(last, &format!("{}.weight", self.family.layer.linears[0]));
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

    pub(crate) fn word(&self) -> String {
        self.embeddings.named(WORD)
    }

    /// γ and β of a LayerNorm, as this checkpoint calls them.
    pub(crate) fn norm(&self, name: &str) -> [String; 2] {
        self.embeddings.gamma_beta.map(|part| format!("{name}.{part}"))
    }
}
