//! How a model maps to a checkpoint: its config's fields, its parameters and their keys.

use super::bert::BertModel;
use crate::checkpoint::{Fields, ModelKeys, StoredParam};
use crate::encoder::config::BertModelConfig;
use crate::error::Result;
use crate::layers::VocabularyResize;
#[cfg(feature = "tokenizers")]
use crate::text::BertTokenizer;
use burn::module::Param;
use burn::nn::Linear;
use burn::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// How a model maps to a checkpoint. A model that implements it is a [`PretrainedModel`](super::PretrainedModel).
///
#[cfg_attr(feature = "train", doc = include_str!("custom_head.md"))]
pub trait Stored: Module {
    /// The model's config.
    type Config;

    /// What the name of transformers' class ends in: `ForMaskedLM` of `BertForMaskedLM`; `None` of `BertModel`.
    const CLASS: Option<&'static str>;

    /// The config that the fields of a `config.json` describe.
    fn config_of(fields: &Fields) -> Result<Self::Config>;

    /// The config of the model below the head.
    fn bert_config(config: &Self::Config) -> &BertModelConfig;

    /// A newly initialised model.
    fn build(config: &Self::Config, device: &Device) -> Result<Self>;

    /// The config that builds a model of this shape.
    fn stored_config(&self) -> Self::Config;

    /// The model below the head.
    fn bert(&self) -> &BertModel;

    /// The model below the head.
    fn bert_mut(&mut self) -> &mut BertModel;

    /// The parts above the encoder, each of which is in a checkpoint completely or not at all.
    fn parts<'a>(&'a self, keys: &ModelKeys) -> Vec<Part<'a>>;

    /// The fields of `config.json` that the head decides.
    fn head_fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// JSON files that are written into the directory besides config and weights.
    fn files_beside(&self, _dir: &Path) -> Result<Vec<(PathBuf, Value)>> {
        Ok(Vec::new())
    }

    /// The parts that have their own folder and weights file, and the folder's name.
    fn parts_beside(&self) -> Vec<(String, Part<'_>)> {
        Vec::new()
    }

    /// The folders of [`parts_beside`](Self::parts_beside) in a directory that is read; empty if it has none.
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

/// What [`Stored`] asks of a model that is, or whose module and config each have in their field `bert`, a [`BertModel`].
macro_rules! stored_head {
    ($config:ident, $class:expr $(, $bert:ident)?) => {
        type Config = $config;
        const CLASS: Option<&'static str> = $class;

        fn bert_config(config: &$config) -> &$crate::model::BertModelConfig {
            &(*config)$(.$bert)?
        }

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
    };
}
pub(super) use stored_head;

/// A group of parameters that a checkpoint has completely or not at all. [`Stored`] has an example.
pub struct Part<'a> {
    /// What their keys, and those of what they replace, start with.
    pub(super) namespace: String,
    pub(super) params: Vec<StoredParam<'a>>,
    /// Keys whose values must be equal where a checkpoint has both.
    pub(super) equal: Vec<[String; 2]>,
    /// Keys that hold nothing but copies of parameters where they are not read.
    pub(super) copies: Vec<String>,
}

impl<'a> Part<'a> {
    /// A linear layer: `name.weight`, stored as [outputs, inputs], and `name.bias`.
    pub fn linear(name: &str, linear: &'a Linear) -> Self {
        Self::new(format!("{name}."), StoredParam::linear(name, linear))
    }

    /// A table under a key of its own.
    pub fn table(key: &str, table: &'a Param<Tensor<2>>) -> Self {
        Self::new(key, [StoredParam::new(key, table)])
    }

    /// Linear layers of which a checkpoint has all or none.
    pub(super) fn linears<const N: usize>(namespace: &str, linears: [(&str, &'a Linear); N]) -> Self {
        let params = linears.map(|(name, linear)| StoredParam::linear(name, linear));
        Self::new(namespace, params.into_iter().flatten().collect::<Vec<_>>())
    }

    pub(super) fn new(namespace: impl Into<String>, params: impl Into<Vec<StoredParam<'a>>>) -> Self {
        Self { namespace: namespace.into(), params: params.into(), equal: Vec::new(), copies: Vec::new() }
    }
}

impl BertModel {
    pub(super) fn body_params(&self, keys: &ModelKeys) -> Vec<StoredParam<'_>> {
        let (encoder, names) = (&self.encoder, keys.family);
        let of_norm = |name: &str, norm| StoredParam::norm(keys.norm(name), norm);
        let mut params = self.embeddings.stored_params(keys);
        if let (Some(linear), Some(name)) = (&encoder.embeddings_projection, names.projection) {
            params.extend(StoredParam::linear(&keys.named(name), linear));
        }
        if let (Some(bias), Some(name)) = (&encoder.relative_attention_bias, names.relative_attention_bias) {
            params.push(StoredParam::new(keys.named(name), &bias.table.weight));
        }
        if let (Some(distances), Some([table, norm, ..])) = (&encoder.distances, names.disentangled) {
            params.push(StoredParam::new(keys.named(&format!("{table}.weight")), &distances.table.weight));
            params.extend(distances.layer_norm.iter().flat_map(|own| of_norm(&keys.named(norm), own)));
        }
        // In the order of a layer's own.
        let linear_names =
            [&names.query_key_value[..], &[names.attention_output], names.feed_forward].concat();
        // ALBERT's one layer is stored once, whatever the number of rounds.
        for (i, layer) in encoder.layers.iter().enumerate() {
            let name = |part: &str| keys.layer(i, part);
            let mut linears: Vec<_> = linear_names.iter().copied().zip(layer.linears()).collect();
            // U and G, which a layer has in this order.
            if names.gate_is_first {
                linears.swap(4, 5);
            }
            // Neighbours under one key are one tensor of the file.
            for stack in linears.chunk_by(|(left, _), (right, _)| left == right) {
                let linears: Vec<_> = stack.iter().map(|(_, (_, linear))| *linear).collect();
                params.extend(StoredParam::linears(&name(stack[0].0), &linears));
            }
            for (part, (_, norm)) in names.norms.into_iter().zip(layer.norms()) {
                params.extend(norm.into_iter().flat_map(|norm| of_norm(&name(part), norm)));
            }
            if let (Some(own), Some([.., key, query])) = (&layer.attention.disentangled, names.disentangled) {
                for (part, (_, linear)) in [key, query].into_iter().zip(own.linears()) {
                    let linear = linear.into_iter();
                    params.extend(linear.flat_map(|linear| StoredParam::linear(&name(part), linear)));
                }
            }
            if let Some(positions) = &layer.attention.relative_positions {
                params.push(StoredParam::new(name(names.distances), &positions.distance_embedding.weight));
            }
        }
        if let (Some(norm), Some(name)) = (&encoder.final_norm, names.final_norm) {
            params.extend(of_norm(&keys.named(name), norm));
        }
        keys.stored_of(params)
    }

    /// The pooler, if there is one, for the [parts](Stored::parts) of a head that reads its output.
    pub fn pooler_part(&self, keys: &ModelKeys) -> Option<Part<'_>> {
        let pooler = self.pooler.as_ref()?;
        Some(Part::linear(&keys.named(keys.family.pooler), &pooler.dense))
    }
}

impl Stored for BertModel {
    stored_head!(BertModelConfig, None);

    fn config_of(fields: &Fields) -> Result<BertModelConfig> {
        BertModelConfig::from_fields(fields)
    }

    fn parts<'a>(&'a self, keys: &ModelKeys) -> Vec<Part<'a>> {
        self.pooler_part(keys).into_iter().collect()
    }
}
