//! Labels of texts, and their names.

use super::super::label_names::LabelNames;
use serde_json::Value;
use std::collections::BTreeSet;

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

/// The names that a file has for its classes, collected as it is read.
#[derive(Debug, Default)]
pub(super) struct FoundNames {
    names: BTreeSet<String>,
}

impl FoundNames {
    pub(super) fn add(&mut self, names: &[String]) {
        for name in names {
            if !self.names.contains(name) {
                self.names.insert(name.clone());
            }
        }
    }

    /// Sorted names, as transformers' example scripts have them. If all are integers, they are the ids, and the names
    /// are transformers' default ones: `LABEL_0`, `LABEL_1`, …
    pub(super) fn finish(self) -> LabelNames {
        let ids: Option<Vec<usize>> = self.names.iter().map(|name| name.parse().ok()).collect();
        let largest = ids.and_then(|ids| ids.into_iter().max());
        // An id far above the number of classes is none.
        let names = match largest.filter(|&largest| largest <= MAX_ID) {
            Some(largest) => (0..=largest).map(|id| format!("LABEL_{id}")).collect(),
            None => self.names.into_iter().collect(),
        };
        LabelNames { names }
    }
}

/// The largest integer that is taken for the id of a class.
const MAX_ID: usize = 100_000;

/// The label of one row, not yet looked up.
#[derive(Debug)]
pub(super) enum RawLabel {
    Names(Vec<String>),
    Value(f32),
}

impl RawLabel {
    /// From a field of a table.
    pub(super) fn from_field(field: &str, kind: LabelKind) -> Result<Self, String> {
        let field = field.trim();
        match kind {
            LabelKind::Class if field.is_empty() => Err("has no label".into()),
            LabelKind::Class => Ok(Self::Names(vec![field.to_string()])),
            LabelKind::Classes => {
                let names = field.split(',').map(str::trim).filter(|name| !name.is_empty());
                Ok(Self::Names(names.map(String::from).collect()))
            }
            LabelKind::Value => field
                .parse()
                .ok()
                .filter(|value: &f32| value.is_finite())
                .map(Self::Value)
                .ok_or_else(|| format!("has the label {field:?}, which is not a finite number")),
        }
    }

    /// From a value of a JSON object.
    pub(super) fn from_json(value: &Value, kind: LabelKind) -> Result<Self, String> {
        let unfit = |wanted| format!("has the label {value}, which is not {wanted}");
        match kind {
            LabelKind::Class => {
                let name = class_name(value).ok_or_else(|| unfit("a name or an id"))?;
                Ok(Self::Names(vec![name]))
            }
            LabelKind::Classes => {
                let list = value.as_array().ok_or_else(|| unfit("a list"))?;
                let names =
                    list.iter().map(|value| class_name(value).ok_or_else(|| unfit("a list of names or ids")));
                names.collect::<Result<_, _>>().map(Self::Names)
            }
            LabelKind::Value => {
                let number = value.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
                number.map(Self::Value).ok_or_else(|| unfit("a finite number"))
            }
        }
    }

    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::Names(names) => names,
            Self::Value(_) => &[],
        }
    }

    pub(super) fn look_up(&self, kind: LabelKind, names: &LabelNames) -> Result<Label, String> {
        match (self, kind) {
            (Self::Value(value), _) => Ok(Label::Value(*value)),
            (Self::Names(found), LabelKind::Classes) => {
                let mut ids = found.iter().map(|name| names.id(name)).collect::<Result<Vec<_>, _>>()?;
                ids.sort_unstable();
                ids.dedup();
                Ok(Label::Classes(ids))
            }
            (Self::Names(found), _) => names.id(&found[0]).map(Label::Class),
        }
    }
}

/// The name of a class, or its id in digits.
pub(super) fn class_name(value: &Value) -> Option<String> {
    match value {
        Value::String(name) => Some(name.clone()),
        Value::Number(id) => id.as_u64().map(|id| id.to_string()),
        Value::Bool(id) => Some(u8::from(*id).to_string()),
        _ => None,
    }
}
