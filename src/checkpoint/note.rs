//! A note in saved weights of the config that belongs to them.
//!
//! A save replaces two files, and a crash or a reader can come between the two renames. The weights are replaced
//! first, and their metadata holds the fields of the new config that shapes do not determine. A reader compares
//! them with the config that it has read. A pair with equal fields and shapes is consistent in all that affects the
//! output. Weights by other writers have no note and are not compared.
//!
//! Names of labels and the kind of problem are the user's to edit: of the labels only the number is compared.

use super::files::Checkpoint;
use super::hf_config::Fields;
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// Fields that affect the output and that the weights' shapes do not determine.
const FIELDS: [&str; 10] = [
    "model_type",
    "position_embedding_type",
    "pad_token_id",
    "layer_norm_eps",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "tie_word_embeddings",
    "is_decoder",
    LABELS,
];

const LABELS: &str = "id2label";

/// The note of a save with this config.
pub(super) fn note(config: &Map<String, Value>) -> String {
    let stated =
        FIELDS.iter().filter_map(|&field| Some((field.to_string(), compared(field, config.get(field)?))));
    Value::Object(stated.collect()).to_string()
}

/// Refuses a config of another save than the weights'.
///
/// A field that one of the two does not state is compared by its default if it has one, else not at all.
///
/// # Errors
///
/// [`Error::ConfigFile`] by the first field that differs.
pub(crate) fn check_pair(fields: &Fields, checkpoint: &Checkpoint) -> Result<()> {
    let Some(note) = checkpoint.note() else { return Ok(()) };
    let corrupt = |source: serde_json::Error| Error::CorruptCheckpoint {
        path: checkpoint.path().to_path_buf(),
        source: source.into(),
    };
    let saved: Map<String, Value> = serde_json::from_str(note).map_err(corrupt)?;
    for field in FIELDS {
        let Some(saved) = saved.get(field) else { continue };
        let Some(found) = fields.stated_or_default(field)? else { continue };
        let (found, saved) = (compared(field, &found), compared(field, saved));
        if !is_same(&found, &saved) {
            let problem = format!(
                "is {}, but {} was saved with {}: the save of one of the two was interrupted, or it was replaced; \
                 save again, correct the field, or give a config to from_pretrained_with",
                shown(field, &found),
                checkpoint.path().display(),
                shown(field, &saved)
            );
            return Err(fields.invalid(field, problem));
        }
    }
    Ok(())
}

/// What is compared of a field's value: of names of labels, their number.
fn compared(field: &str, value: &Value) -> Value {
    match value {
        Value::Object(names) if field == LABELS => names.len().into(),
        value => value.clone(),
    }
}

/// Whether two values are equal, numbers by value and not by notation.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn shown(field: &str, value: &Value) -> String {
    let text = value.to_string();
    match field {
        LABELS if value.is_number() => format!("a list of {text} labels"),
        _ if text.chars().count() > 60 => "another value".into(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_more_than_sixty_characters_is_not_shown() {
        let quoted = |count: usize| Value::from("é".repeat(count - 2));
        assert_eq!(shown("hidden_act", &quoted(60)), quoted(60).to_string());
        assert_eq!(shown("hidden_act", &quoted(61)), "another value");
    }

    #[test]
    fn of_labels_the_number_is_noted_and_compared() {
        let names = serde_json::json!({"0": "negative", "1": "positive"});
        let config = Map::from_iter([(LABELS.to_string(), names.clone())]);
        assert_eq!(note(&config), r#"{"id2label":2}"#);
        // A note may also have the names themselves.
        assert_eq!(compared(LABELS, &names), compared(LABELS, &2.into()));
        assert_eq!(shown(LABELS, &2.into()), "a list of 2 labels");
    }
}
