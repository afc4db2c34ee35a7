//! How a model maps to a checkpoint: its config's fields, its parameters and their keys.

use super::bert::BertModel;
use crate::checkpoint::{Fields, ModelKeys, StoredParam, stored_params};
use crate::encoder::config::BertModelConfig;
use crate::error::Result;
use crate::family::Keys;
use crate::layers::{LayerNorm, VocabularyResize};
#[cfg(feature = "tokenizers")]
use crate::text::BertTokenizer;
use burn::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// How a model maps to a checkpoint. A model that implements it is a [`PretrainedModel`](super::PretrainedModel).
///
#[cfg_attr(feature = "train", doc = include_str!("custom_head.md"))]
pub trait Stored: Module {
    /// The model's config.
    type Config;

    /// The end of the name of transformers' class: `ForMaskedLM` of `BertForMaskedLM`; `None` of `BertModel`.
    const CLASS: Option<&'static str>;

    /// The config that the fields of a `config.json` describe.
    fn config_of(fields: &Fields) -> Result<Self::Config>;

    /// A newly initialised model.
    fn build(config: &Self::Config, device: &Device) -> Result<Self>;

    /// The config that builds a model of this shape.
    fn stored_config(&self) -> Self::Config;

    /// The model below the head.
    fn bert(&self) -> &BertModel;

    /// The model below the head.
    fn bert_mut(&mut self) -> &mut BertModel;

    /// The fields of `config.json` that the head decides.
    fn head_fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// JSON files that are written into the directory besides config and weights.
    fn files_beside(&self, _dir: &Path) -> Result<Vec<(PathBuf, Value)>> {
        Ok(Vec::new())
    }

    /// The keys of the head's parameters that are not their paths.
    #[doc(hidden)]
    fn head_keys(&self, _keys: &ModelKeys) -> Keys {
        &[]
    }

    /// Changes where the head's parameters are stored beyond what [`head_keys`](Self::head_keys) says, and returns other keys
    /// that a file can have of the same values.
    #[doc(hidden)]
    fn adapt_params(&self, _keys: &ModelKeys, _params: &mut Vec<StoredParam>) -> Copies {
        Copies::default()
    }

    /// The norms of the head.
    #[doc(hidden)]
    fn head_norms(&self) -> Vec<&LayerNorm> {
        Vec::new()
    }

    /// The folders of the modules that have a weights file of their own, in a directory that is read; empty if it has none.
    #[doc(hidden)]
    fn folders_beside(&self, _dir: &Path) -> Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    /// Resizes the head's parts that have one row per word, after the word embeddings.
    fn resize_head(&mut self, _resize: &VocabularyResize) -> Result<()> {
        Ok(())
    }

    /// What [`limit_tokenizer`](super::PretrainedModel::limit_tokenizer) does before it applies the limits of the
    /// embedding layer: a head's own maximum length, for example.
    #[cfg(feature = "tokenizers")]
    fn prepare_tokenizer(&self, tokenizer: BertTokenizer) -> BertTokenizer {
        tokenizer
    }
}

/// What [`Stored`] asks of a model that is, or whose module and config each have in their field `bert`, a [`BertModel`]. With
/// `heads` the family says which keys the head has.
macro_rules! stored_head {
    ($config:ident, $class:expr $(, $bert:ident $(, $heads:ident)?)?) => {
        type Config = $config;
        const CLASS: Option<&'static str> = $class;

        fn build(config: &$config, device: &burn::prelude::Device) -> $crate::error::Result<Self> {
            config.try_init(device)
        }

        fn stored_config(&self) -> $config {
            self.config()
        }

        fn bert(&self) -> &$crate::model::BertModel {
            &(*self)$(.$bert)?
        }

        fn bert_mut(&mut self) -> &mut $crate::model::BertModel {
            &mut (*self)$(.$bert)?
        }

        $($(fn head_keys(&self, keys: &$crate::checkpoint::ModelKeys) -> $crate::family::Keys {
            keys.family.$heads
        })?)?
    };
}
pub(super) use stored_head;

/// Keys that a file can have of values that a model has once.
#[derive(Default)]
pub struct Copies {
    /// Keys whose values must be equal where a checkpoint has both.
    pub(super) equal: Option<[String; 2]>,
    /// A key whose values do not count where a checkpoint has the second with others.
    pub(super) replaced: Option<[String; 2]>,
    /// Keys that hold nothing but copies of parameters where they are not read.
    pub(super) keys: Vec<String>,
}

/// The tensors that hold a model's parameters, and what else a file can have of them.
pub(super) fn params_of<M: Stored>(model: &M, keys: &ModelKeys) -> (Vec<StoredParam>, Copies) {
    let words = model.bert().embeddings.word_embeddings.weight.id;
    let mut params = stored_params(model, words, keys, model.head_keys(keys));
    let copies = model.adapt_params(keys, &mut params);
    (params, copies)
}

impl Stored for BertModel {
    stored_head!(BertModelConfig, None);

    fn config_of(fields: &Fields) -> Result<BertModelConfig> {
        BertModelConfig::from_fields(fields)
    }
}
