//! The fields of a `config.json` that are written.

use super::fields::{Fields, RELATIVE};
use crate::embeddings::{BertEmbeddingsConfig, NUMBERS};
use crate::error::{Error, Result};
use crate::family::{Family, PositionEmbeddingType, Presence};
use burn::config::Config;
use serde_json::{Map, Value, json};

/// The fields of `config.json`: the layer's, and the others of the old file.
pub(crate) fn merged_fields(
    config: &BertEmbeddingsConfig,
    old: Option<Fields>,
) -> Result<Map<String, Value>> {
    let scheme = config.position_embedding_type;
    let own = config.family.architecture().positions;
    let relative = RELATIVE.into_iter().find(|(positions, _)| *positions == scheme);
    // The family's own need no word, and transformers 5 would not read it. DeBERTa's absolute ones have a field of their own.
    let is_own = scheme == own
        || [scheme, own] == [PositionEmbeddingType::Absolute, PositionEmbeddingType::Disentangled];
    if relative.is_none() && !is_own {
        let problem = format!(
            "is {scheme:?}, which a config.json of {} cannot say; set family to one with such positions",
            config.family.model_type()
        );
        return Err(Error::config("position_embedding_type", problem));
    }
    let mut fields = layer_fields(config);
    // Only a new directory needs fields for the rest of a model: an old file has its own.
    let Some(old) = old else {
        // Heads of size 64 and a feed-forward network four times as wide, as in every published BERT.
        let hidden_size = config.hidden_size;
        let heads = if hidden_size.is_multiple_of(64) { hidden_size / 64 } else { 1 };
        let class = format!("{}Model", config.family.spec().class);
        fields.insert("model_type".into(), config.family.model_type().into());
        fields.insert("architectures".into(), json!([class]));
        fields.insert("num_attention_heads".into(), heads.into());
        fields.insert("intermediate_size".into(), (4 * hidden_size).into());
        if let Some((_, word)) = relative {
            fields.insert("position_embedding_type".into(), word.into());
        }
        return Ok(fields);
    };
    let was = old.config()?;
    let width = |config: &BertEmbeddingsConfig| config.width().to_string();
    for (field, was, is) in [
        ("model_type", was.family.model_type().into(), config.family.model_type().into()),
        ("position_embedding_type", format!("{:?}", was.position_embedding_type), format!("{scheme:?}")),
        ("hidden_size", was.hidden_size.to_string(), config.hidden_size.to_string()),
        ("embedding_size", width(&was), width(config)),
    ] {
        old.ensure(was == is, field, || {
            format!("is {was}, but the module's is {is}; save into another directory")
        })?;
    }
    let mut merged = old.fields;
    // A number that means the same may be written otherwise, and fields may be left to defaults.
    replace_changed(&mut merged, fields, &layer_fields(&was));
    Ok(merged)
}

/// Replaces the fields whose values changed. The others are written back as they were read, or stay away.
pub(crate) fn replace_changed(
    fields: &mut Map<String, Value>,
    new: Map<String, Value>,
    old: &Map<String, Value>,
) {
    fields.extend(new.into_iter().filter(|(field, value)| old.get(field) != Some(value)));
}

/// Fields of a config by name, as numbers.
pub(crate) fn number_fields<'a>(config: &impl Config, fields: &[&'a str]) -> Vec<(&'a str, Value)> {
    let json = serde_json::to_value(config).expect("plain data");
    fields.iter().map(|&field| (field, json[field].clone())).collect()
}

fn layer_fields(config: &BertEmbeddingsConfig) -> Map<String, Value> {
    let architecture = config.family.architecture();
    let is_disentangled = architecture.positions == PositionEmbeddingType::Disentangled;
    let is_biased = config.position_embedding_type == PositionEmbeddingType::Absolute;
    number_fields(config, &NUMBERS)
        .into_iter()
        .chain([
            ("pad_token_id", json!(config.pad_token_id)),
            // No field has a word for another distribution than the normal one.
            ("initializer_range", json!(config.initializer.std())),
        ])
        .chain(is_disentangled.then(|| ("position_biased_input", json!(is_biased))))
        .chain(
            (config.family == Family::Ernie).then(|| ("use_task_id", json!(config.task_type_vocab_size > 0))),
        )
        .chain(
            (config.task_type_vocab_size > 0)
                .then(|| ("task_type_vocab_size", json!(config.task_type_vocab_size))),
        )
        .chain(
            (architecture.projection != Presence::Never).then(|| ("embedding_size", json!(config.width()))),
        )
        .map(|(field, value)| (field.to_string(), value))
        .collect()
}
