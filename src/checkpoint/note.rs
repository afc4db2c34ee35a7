//! A note in saved weights of the config that belongs to them.
//!
//! A save replaces two files, and a crash or a reader can come between the two renames. The weights are replaced
//! first, and their metadata holds the fields of the new config that shapes do not determine. A reader compares
//! them with the config that it has read. A pair with equal fields and shapes is consistent in all that affects the
//! output. Weights by other writers have no note and are not compared.

use super::files::Checkpoint;
use super::hf_config::Fields;
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// Fields that affect the output and that the weights' shapes do not determine.
const FIELDS: [&str; 11] = [
    "model_type",
    "position_embedding_type",
    "pad_token_id",
    "layer_norm_eps",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "tie_word_embeddings",
    "is_decoder",
    "problem_type",
    "id2label",
];

/// The note of a save with this config.
pub(super) fn note(config: &Map<String, Value>) -> String {
    let stated = FIELDS.iter().filter_map(|&field| Some((field.to_string(), config.get(field)?.clone())));
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
        if !is_same(&found, saved) {
            let problem = format!(
                "is {}, but {} was saved with {}: the save of one of the two was interrupted, or it was replaced; \
                 save again, correct the field, or give a config to from_pretrained_with",
                shown(&found),
                checkpoint.path().display(),
                shown(saved)
            );
            return Err(fields.invalid(field, problem));
        }
    }
    Ok(())
}

/// Whether two values are equal, numbers by value and not by notation.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 60 { "another value".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_more_than_sixty_characters_is_not_shown() {
        let quoted = |count: usize| Value::from("é".repeat(count - 2));
        assert_eq!(shown(&quoted(60)), quoted(60).to_string());
        assert_eq!(shown(&quoted(61)), "another value");
    }
}
