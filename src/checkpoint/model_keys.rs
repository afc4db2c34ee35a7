//! Under which keys a checkpoint holds a whole model.

use super::families::FamilyKeys;
use super::files::Checkpoint;
use super::keys::Keys;
use crate::error::{Error, Result};
use crate::family::Family;
use std::collections::BTreeSet;

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
    /// The keys in a checkpoint of a family.
    pub(crate) fn locate(checkpoint: &Checkpoint, family: &'static FamilyKeys) -> Result<Self> {
        let embeddings = Keys::locate(checkpoint)?;
        let Some(prefix) = embeddings.model_prefix().map(String::from) else {
            return Err(Error::MissingKey {
                path: checkpoint.path().to_path_buf(),
                key: format!("{}0.{}.weight", family.layer.prefix, family.layer.query),
                hint: "these are the tensors of an embedding layer alone; load them with BertEmbeddings"
                    .into(),
            });
        };
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
        Err(Error::MissingKey {
            path: checkpoint.path().to_path_buf(),
            key,
            hint: format!("num_hidden_layers is {num_hidden_layers}, so this layer should be there"),
        })
    }

    pub(crate) fn layer(&self, index: usize, part: &str) -> String {
        format!("{}{index}.{part}", self.encoder())
    }

    pub(crate) fn encoder(&self) -> String {
        format!("{}{}", self.prefix, self.family.layer.prefix)
    }

    /// A name of the family's beside the layers, such as the pooler's.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// γ and β of a LayerNorm, as this checkpoint calls them.
    pub(crate) fn norm(&self, name: &str) -> [String; 2] {
        self.embeddings.layer_norm().map(|part| format!("{name}.{part}"))
    }
}
