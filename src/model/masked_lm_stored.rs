//! How `BertForMaskedLm` is stored.

use super::bert::BertModel;
use super::config::BertModelConfig;
use super::keys::ModelKeys;
use super::masked_lm::{BertForMaskedLm, BertForMaskedLmConfig};
use super::stored::{Part, Stored};
use crate::checkpoint::{Fields, StoredParam};
use crate::error::Result;
use burn::prelude::*;

impl BertForMaskedLmConfig {
    pub(super) fn from_fields(fields: &Fields) -> Result<Self> {
        if fields.flag("tie_word_embeddings")? == Some(false) {
            let problem = "is false, but the head reads the word table and has none of its own";
            return Err(fields.invalid("tie_word_embeddings", problem.into()));
        }
        BertModelConfig::from_fields(fields).map(Self::new)
    }
}

impl Stored for BertForMaskedLm {
    type Config = BertForMaskedLmConfig;
    const CLASS: Option<&'static str> = Some("ForMaskedLM");

    fn config_of(fields: &Fields) -> Result<BertForMaskedLmConfig> {
        BertForMaskedLmConfig::from_fields(fields)
    }

    fn bert_config(config: &BertForMaskedLmConfig) -> &BertModelConfig {
        &config.bert
    }

    fn build(config: &BertForMaskedLmConfig, device: &Device) -> Result<Self> {
        config.try_init(device)
    }

    fn stored_config(&self) -> BertForMaskedLmConfig {
        self.config()
    }

    fn bert(&self) -> &BertModel {
        &self.bert
    }

    fn parts<'a>(&'a self, keys: &ModelKeys) -> Vec<Part<'a>> {
        let names = keys.masked_lm;
        let mut params = Vec::from(StoredParam::linear(names.transform, &self.head.transform));
        params.extend(StoredParam::norm(keys.norm(names.layer_norm), &self.head.layer_norm));
        params.push(StoredParam::vector(keys.masked_lm_bias, &self.head.bias));
        vec![Part { namespace: names.prefix.into(), params }]
    }

    fn is_copy(keys: &ModelKeys, key: &str) -> bool {
        key == keys.masked_lm.tied || keys.masked_lm.bias.contains(&key)
    }
}
