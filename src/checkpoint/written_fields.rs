//! The fields of a `config.json` that is written.

use super::families::FamilySpec;
use super::fields::Fields;
use crate::embeddings::BertEmbeddingsConfig;
use crate::error::{Error, Result};
use crate::family::{PositionEmbeddingType, Projection};
use crate::layers::EmbeddingInitializer;
use serde_json::{Map, Value, json};

/// The fields of `config.json`: the layer's, and the others of the old file.
pub(crate) fn merged_fields(
    config: &BertEmbeddingsConfig,
    old: Option<Fields>,
) -> Result<Map<String, Value>> {
    let scheme = config.position_embedding_type;
    let own = config.family.architecture().input.positions;
    let stated = match scheme {
        PositionEmbeddingType::RelativeKey => Some("relative_key"),
        PositionEmbeddingType::RelativeKeyQuery => Some("relative_key_query"),
        // The family's own need no word, and transformers 5 would not read it.
        absolute if absolute == own => None,
        // A field of its own says it.
        PositionEmbeddingType::Absolute if own == PositionEmbeddingType::Disentangled => None,
        other => {
            let problem = format!(
                "is {other:?}, which a config.json of {} cannot say; set family to one with such positions",
                config.family.model_type()
            );
            return Err(Error::config("position_embedding_type", problem));
        }
    };
    let mut fields = layer_fields(config);
    // Only a new directory needs fields for the rest of a model: an old file has its own.
    let Some(old) = old else {
        let (spec, hidden_size) = (FamilySpec::of(config.family), config.hidden_size);
        // Heads of size 64, as in every published BERT.
        let heads = if hidden_size.is_multiple_of(64) { hidden_size / 64 } else { 1 };
        let mut set = |field: &str, value: Value| fields.insert(field.to_string(), value);
        set("model_type", json!(config.family.model_type()));
        set("architectures", json!([format!("{}Model", spec.class)]));
        set("num_attention_heads", json!(heads));
        // Four times the width, as in BERT.
        set("intermediate_size", json!(4 * hidden_size));
        if let Some(word) = stated {
            set("position_embedding_type", word.into());
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
        if was != is {
            let problem = format!("is {was}, but the module's is {is}; save into another directory");
            return Err(old.invalid(field, problem));
        }
    }
    let mut merged = old.into_map();
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
    for (field, value) in new {
        if old.get(&field) != Some(&value) {
            fields.insert(field, value);
        }
    }
}

fn layer_fields(config: &BertEmbeddingsConfig) -> Map<String, Value> {
    // transformers' models are initialised from a normal distribution, and fields have no word for another.
    let (EmbeddingInitializer::Normal { std } | EmbeddingInitializer::TruncatedNormal { std, .. }) =
        config.initializer;
    let input = &config.family.architecture().input;
    let is_disentangled = input.positions == PositionEmbeddingType::Disentangled;
    let is_biased = config.position_embedding_type == PositionEmbeddingType::Absolute;
    [
        ("vocab_size", json!(config.vocab_size)),
        ("hidden_size", json!(config.hidden_size)),
        ("max_position_embeddings", json!(config.max_position_embeddings)),
        ("type_vocab_size", json!(config.type_vocab_size)),
        ("pad_token_id", json!(config.pad_token_id)),
        ("layer_norm_eps", json!(config.layer_norm_eps)),
        ("hidden_dropout_prob", json!(config.hidden_dropout_prob)),
        ("initializer_range", json!(std)),
    ]
    .into_iter()
    .chain(is_disentangled.then(|| ("position_biased_input", json!(is_biased))))
    .chain((input.projection != Projection::Never).then(|| ("embedding_size", json!(config.width()))))
    .map(|(field, value)| (field.to_string(), value))
    .collect()
}
