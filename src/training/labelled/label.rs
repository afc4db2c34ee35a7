//! Labels of texts, and their names.

use super::super::label_names::LabelNames;
use serde_json::Value;
use std::collections::BTreeMap;

/// The label of a text; [`LabelledTexts`](super::LabelledTexts) reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// One class of several, by its id.
    Class(usize),
    /// Any number of classes, by their ids.
    Classes(Vec<usize>),
    /// A number, for regression.
    Value(f32),
}

/// How the labels of a file are read; transformers' `problem_type`. An argument of
/// [`TextColumns::with_label`](super::TextColumns::with_label).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelKind {
    /// One class per text: a name or an id.
    #[default]
    Class,
    /// Several classes per text: a JSON list, or names separated by commas.
    Classes,
    /// One number per text.
    Value,
}

/// The largest integer that is taken for the id of a class.
const MAX_ID: usize = 100_000;

/// The classes of a file: those of given names, or those that it has, collected as it is read.
pub(super) struct Classes<'a> {
    given: Option<&'a LabelNames>,
    /// The id of each name; without given names, in the order in which they were found.
    ids: BTreeMap<String, usize>,
}

impl<'a> Classes<'a> {
    pub(super) fn new(given: Option<&'a LabelNames>) -> Self {
        let names = given.map_or(&[] as &[String], LabelNames::names);
        Self { given, ids: names.iter().cloned().zip(0..).collect() }
    }

    /// The id of a class that is written as a name, or as an id where the names are transformers' default ones. An
    /// integer of JSON is always an id.
    pub(super) fn id(&mut self, label: &str, is_integer: bool) -> Result<usize, String> {
        if label.trim().is_empty() {
            return Err("has no label".into());
        }
        if let Some(&id) = self.ids.get(label) {
            return Ok(id);
        }
        let Some(names) = self.given else {
            let id = self.ids.len();
            self.ids.insert(label.to_string(), id);
            return Ok(id);
        };
        let is_id = |&id: &usize| names.name(id).is_some_and(|name| is_integer || name == numbered(id));
        let id = label.parse().ok().filter(is_id);
        id.ok_or_else(|| format!("has the label {label:?}, but the labels are {:?}", names.names()))
    }

    /// The label in a field of a table.
    pub(super) fn in_field(&mut self, field: &str, kind: LabelKind) -> Result<Label, String> {
        let field = field.trim();
        let is_list = field.starts_with('[');
        if is_list && let Ok(list) = serde_json::from_str(field) {
            return self.in_json(&list, kind);
        }
        let unfit = |wanted| format!("has the label {field:?}, which is not {wanted}");
        match kind {
            LabelKind::Class => self.id(field, false).map(Label::Class),
            LabelKind::Classes if is_list => Err(unfit("a JSON list")),
            LabelKind::Classes => {
                let names = field.split(',').map(str::trim).filter(|name| !name.is_empty());
                names.map(|name| self.id(name, false)).collect::<Result<_, _>>().map(Label::Classes)
            }
            LabelKind::Value => {
                let value = field.parse().ok().filter(|value: &f32| value.is_finite());
                value.map(Label::Value).ok_or_else(|| unfit("a finite number"))
            }
        }
    }

    /// The label in a JSON value.
    pub(super) fn in_json(&mut self, value: &Value, kind: LabelKind) -> Result<Label, String> {
        let unfit = |wanted| format!("has the label {value}, which is not {wanted}");
        match kind {
            LabelKind::Class => self.class(value).map(Label::Class),
            LabelKind::Classes => {
                let list = value.as_array().ok_or_else(|| unfit("a list"))?;
                list.iter().map(|value| self.class(value)).collect::<Result<_, _>>().map(Label::Classes)
            }
            LabelKind::Value => {
                let number = value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
                number.map(Label::Value).ok_or_else(|| unfit("a finite number"))
            }
        }
    }

    /// The class that a JSON value names, or gives the id of.
    pub(super) fn class(&mut self, value: &Value) -> Result<usize, String> {
        let id = match value {
            Value::String(name) => return self.id(name, false),
            Value::Bool(id) => Some(u64::from(*id)),
            other => other.as_u64(),
        };
        let id = id.ok_or_else(|| format!("has the label {value}, which is not a name or an id"))?;
        self.id(&id.to_string(), true)
    }

    /// The names, and what becomes of the ids that labels were given while the file was read.
    ///
    /// Found names are sorted, as in transformers' example scripts. If all are integers, they are the ids, and the
    /// names are transformers' default ones: `LABEL_0`, `LABEL_1`, …
    pub(super) fn finish(self) -> (LabelNames, Vec<usize>) {
        if let Some(names) = self.given {
            return (names.clone(), (0..names.len()).collect());
        }
        let mut ids = vec![0; self.ids.len()];
        let integers = self.ids.keys().map(|name| name.parse().ok().filter(|&id| id <= MAX_ID));
        let integers: Option<Vec<usize>> = integers.collect();
        let largest = integers.as_ref().and_then(|integers| integers.iter().max().copied());
        let final_ids = integers.unwrap_or_else(|| (0..ids.len()).collect());
        self.ids.values().zip(final_ids).for_each(|(&found, id)| ids[found] = id);
        let names = match largest {
            Some(largest) => (0..=largest).map(numbered).collect(),
            None => self.ids.into_keys().collect(),
        };
        (LabelNames { names }, ids)
    }
}

/// transformers' name of a class without one.
fn numbered(id: usize) -> String {
    format!("LABEL_{id}")
}
