//! Under which keys a checkpoint holds a whole model.

use crate::checkpoint::{Checkpoint, Family, HeadKeys, Keys};
use crate::error::{Error, Result};
use std::path::Path;

/// The keys of embeddings, encoder, pooler and head.
pub struct ModelKeys {
    pub(super) embeddings: Keys,
    /// What the keys of all but the head start with: `bert.`, or nothing.
    pub(super) prefix: String,
    pub(super) masked_lm: &'static HeadKeys,
    /// Under which names the checkpoint that is read has the biases of a tied and of an untied
    /// masked-language-model head; `None` of a checkpoint that is written.
    pub(super) masked_lm_biases: Option<[&'static str; 2]>,
}

impl ModelKeys {
    /// The keys in a checkpoint of a family.
    pub(super) fn locate(checkpoint: &Checkpoint, masked_lm: &'static HeadKeys) -> Result<Self> {
        let embeddings = Keys::locate(checkpoint)?;
        let Some(prefix) = embeddings.model_prefix().map(String::from) else {
            return Err(Error::MissingKey {
                path: checkpoint.path().to_path_buf(),
                key: "encoder.layer.0.attention.self.query.weight".into(),
                hint: "these are the tensors of an embedding layer alone; load them with BertEmbeddings"
                    .into(),
            });
        };
        let [first, second] = masked_lm.bias;
        let has = |name: &str| checkpoint.keys().any(|key| key == name);
        let tied = if has(second) && !has(first) { second } else { first };
        let untied = if has(second) { second } else { first };
        Ok(Self { embeddings, prefix, masked_lm, masked_lm_biases: Some([tied, untied]) })
    }

    /// The keys that transformers writes, with what the model's start with.
    pub(super) fn written(prefix: String, masked_lm: &'static HeadKeys) -> Self {
        Self {
            embeddings: Keys::under(&format!("{prefix}embeddings.")),
            prefix,
            masked_lm,
            masked_lm_biases: None,
        }
    }

    /// Refuses a checkpoint with fewer layers than the config, before any layer is built.
    pub(super) fn check_depth(&self, checkpoint: &Checkpoint, num_hidden_layers: usize) -> Result<()> {
        let key = self.layer(num_hidden_layers.saturating_sub(1), "attention.self.query.weight");
        if checkpoint.keys().any(|stored| stored == key) {
            return Ok(());
        }
        Err(Error::MissingKey {
            path: checkpoint.path().to_path_buf(),
            key,
            hint: format!("num_hidden_layers is {num_hidden_layers}, so this layer should be there"),
        })
    }

    pub(super) fn layer(&self, index: usize, part: &str) -> String {
        format!("{}{index}.{part}", self.encoder())
    }

    pub(super) fn encoder(&self) -> String {
        format!("{}encoder.layer.", self.prefix)
    }

    pub(super) fn pooler(&self) -> String {
        format!("{}pooler.", self.prefix)
    }

    /// γ and β of a LayerNorm, as this checkpoint calls them.
    pub(super) fn norm(&self, name: &str) -> [String; 2] {
        self.embeddings.layer_norm().map(|part| format!("{name}.{part}"))
    }
}

/// How a family's masked-language-model head is stored; an error for a family whose encoder is not BERT's.
pub(super) fn masked_lm_head_of(family: &'static Family, config_path: &Path) -> Result<&'static HeadKeys> {
    family.head.as_ref().ok_or_else(|| Error::UnsupportedModel {
        path: config_path.to_path_buf(),
        model_type: family.model_type.into(),
        problem: format!(
            "its encoder or its masked-language-model head is not BERT's; supported: {} (BertEmbeddings loads \
             its input layer)",
            Family::list(|family| family.head.is_some())
        ),
    })
}
