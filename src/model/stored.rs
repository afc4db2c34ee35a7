//! How a model maps to a checkpoint: its config's fields, its parameters and their keys, and what it must be to be saved.

use super::bert::BertModel;
#[cfg(feature = "train")]
use crate::checkpoint::merged_fields;
use crate::checkpoint::{Fields, ModelKeys, StoredParam, check_stored, stored_params};
use crate::encoder::BertLayer;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::family::Keys;
use crate::layers::{LayerNorm, VocabularyResize, ensure};
#[cfg(feature = "tokenizers")]
use crate::text::BertTokenizer;
use burn::prelude::*;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How a model maps to a checkpoint. A model that implements it is a [`PretrainedModel`](super::PretrainedModel).
///
#[cfg_attr(feature = "train", doc = include_str!("custom_head.md"))]
pub trait Stored: Module {
    /// The model's config.
    type Config: burn::config::Config;

    /// The end of the name of transformers' class: `ForMaskedLM` of `BertForMaskedLM`; `None` of `BertModel`.
    const CLASS: Option<&'static str>;

    /// The config that the fields of a `config.json` describe. By default its field `bert` is the model's, and the file has its
    /// other fields under their names; [`Error::Json`](crate::Error::Json) if it lacks one.
    fn config_of(fields: &Fields) -> Result<Self::Config> {
        fields.config_around("bert", &BertModelConfig::from_fields(fields)?)
    }

    /// A newly initialised model.
    fn build(config: &Self::Config, device: &Device) -> Result<Self>;

    /// The config that builds a model of this shape.
    fn stored_config(&self) -> Self::Config;

    /// The model below the head.
    fn bert(&self) -> &BertModel;

    /// The model below the head.
    fn bert_mut(&mut self) -> &mut BertModel;

    /// The fields of `config.json` that the head decides; by default those of its config besides `bert`, or none without such a
    /// field.
    fn head_fields(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self.stored_config()) else {
            return Map::new();
        };
        if fields.remove("bert").is_some() { fields } else { Map::new() }
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
    fn module_folders(&self, _dir: &Path) -> Result<Vec<PathBuf>> {
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

/// Refuses a model that [`PretrainedModel::save_pretrained`](super::PretrainedModel::save_pretrained) would refuse, whatever the
/// directory holds, or for a file there that it would change; writes nothing.
#[cfg(feature = "train")]
pub(crate) fn check_savable<M: Stored>(model: &M, dir: &Path) -> Result<()> {
    let model = &model.clone().materialize();
    let keys = ModelKeys::written("", model.bert().embeddings.family());
    merged_fields(&model.bert().embeddings.config(), None)?;
    let (params, _) = params_of(model, &keys);
    check_built_by_config(model, &params, &keys)?;
    params.iter().try_for_each(|param| param.writer(dir).map(drop))?;
    model.files_beside(dir).map(drop)
}

/// The config must build this very model, or the directory could not be read again.
pub(super) fn check_built_by_config<M: Stored>(
    model: &M,
    params: &[StoredParam],
    keys: &ModelKeys,
) -> Result<()> {
    let bert = model.bert();
    // Models to compare with are built there, but never initialised.
    let device = bert.embeddings.word_embeddings.weight.lazy_device();
    let built = M::build(&model.stored_config(), &device)?;
    for (i, (layer, built)) in bert.encoder.layers.iter().zip(&built.bert().encoder.layers).enumerate() {
        for ((field, found), (_, stated)) in settings(layer).into_iter().zip(settings(built)) {
            ensure(found == stated, field, || {
                format!(
                    "is {found} in layer {i} and {stated} in the config; a config.json holds one value for all layers"
                )
            })?;
        }
    }
    check_stored(params, &params_of(&built, keys).0)?;
    let stored = bert.embeddings.config().layer_norm_eps;
    let mut norms = bert.encoder.norms().chain(model.head_norms());
    let Some(norm) = norms.find(|norm| norm.epsilon() != stored) else { return Ok(()) };
    let key = params.iter().find(|param| param.holds(norm.gamma.id)).map_or("", |param| &param.key);
    let problem = format!(
        "belongs to a LayerNorm with ε {:e} and not {stored:e}; a config.json states one ε of all, that of the embeddings",
        norm.epsilon()
    );
    Err(Error::data(key, problem))
}

/// The settings that a `config.json` states once for all layers.
fn settings(layer: &BertLayer) -> [(&'static str, String); 4] {
    [
        ("hidden_act", format!("{:?}", layer.hidden_act())),
        ("hidden_dropout_prob", layer.dropout.prob.to_string()),
        ("attention_probs_dropout_prob", layer.attention.dropout.prob.to_string()),
        ("num_attention_heads", layer.attention.num_attention_heads().to_string()),
    ]
}
