//! The fields of a `config.json` that several heads have: names of labels, and dropout.

use super::labels::numbered;
use crate::checkpoint::{FamilySpec, Fields};
use crate::encoder::config::BertModelConfig;
use crate::error::Result;
use crate::family::{Classified, HeadDropout};
use serde_json::{Map, Value, json};

/// More labels than this would take gigabytes of names.
const MAX_LABELS: usize = 1 << 20;

/// The names of a `config.json`: of `id2label`, or `num_labels` names without one, or two.
pub(super) fn names_of(fields: &Fields) -> Result<Vec<String>> {
    let Some(names) = fields.object("id2label")? else {
        let count = fields.size("num_labels", 2)?;
        // A number costs a file a few bytes, and us a name each.
        if count > MAX_LABELS {
            let problem =
                format!("is {count}, but at most {MAX_LABELS} labels can be without names in id2label");
            return Err(fields.invalid("num_labels", problem));
        }
        return Ok(numbered(count));
    };
    let name = |id: usize| match names.get(&id.to_string()) {
        Some(Value::String(name)) => Ok(name.clone()),
        Some(_) => Err(fields.invalid("id2label", format!("has a name of {id} that is not text"))),
        None => Err(fields.invalid("id2label", format!("has {} labels, but none of id {id}", names.len()))),
    };
    (0..names.len()).map(name).collect()
}

/// `id2label` and `label2id` of a `config.json`.
pub(super) fn name_fields(id2label: &[String]) -> Vec<(&'static str, Value)> {
    let names = id2label.iter().enumerate();
    let by_id: Map<_, _> = names.clone().map(|(id, name)| (id.to_string(), name.as_str().into())).collect();
    let by_name: Map<_, _> = names.map(|(id, name)| (name.clone(), id.into())).collect();
    vec![("id2label", by_id.into()), ("label2id", by_name.into())]
}

/// The dropout of a head that a `config.json` states; `None` where it is the family's default.
pub(super) fn classifier_dropout(fields: &Fields, of: Classified) -> Result<Option<f64>> {
    let spec = fields.spec();
    match spec.keys.head_dropout[of as usize] {
        Some(field) if !fields.is_null(field) => {
            let prob = fields.number(field, 0.0)?;
            let is_default = spec.architecture().head_dropout(of) == HeadDropout::Stated(Some(prob));
            Ok((!is_default).then_some(prob))
        }
        _ => Ok(None),
    }
}

/// The dropout of a head as a `config.json` states it, if the family's does.
pub(super) fn dropout_field(
    bert: &BertModelConfig,
    of: Classified,
    stated: Option<f64>,
) -> Option<(&'static str, Value)> {
    let spec = FamilySpec::of(bert.embeddings.family);
    let field = spec.keys.head_dropout[of as usize]?;
    let default = match spec.architecture().head_dropout(of) {
        HeadDropout::Stated(default) => default,
        HeadDropout::OfLayers | HeadDropout::Never => None,
    };
    Some((field, json!(stated.or(default))))
}
