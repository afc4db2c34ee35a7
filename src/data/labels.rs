use crate::error::{Error, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The largest number of a [`SequenceClassificationBatch`](crate::model::SequenceClassificationBatch): squares of larger ones overflow.
const MAX_VALUE: f32 = 1e15;

/// The label of a text; [`Examples`](super::Examples) has an example.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// One class of several, by its id: the index of its name.
    Class(usize),
    /// Any number of classes, by their ids.
    Classes(Vec<usize>),
    /// A number, for regression.
    Value(f32),
    /// How relevant the second text is for the first, a query, in [0, 1]: for reranking by a cross-encoder.
    Relevance(f32),
}

impl Label {
    pub(super) fn ids(&self) -> &[usize] {
        match self {
            Self::Class(id) => std::slice::from_ref(id),
            Self::Classes(ids) => ids,
            Self::Value(_) | Self::Relevance(_) => &[],
        }
    }

    pub(super) fn kind(&self) -> LabelKind {
        match self {
            Self::Class(_) => LabelKind::Class,
            Self::Classes(_) => LabelKind::Classes,
            Self::Value(_) => LabelKind::Value,
            Self::Relevance(_) => LabelKind::Relevance,
        }
    }

    pub(super) fn number(&self) -> Option<f32> {
        match *self {
            Self::Value(value) | Self::Relevance(value) => Some(value),
            Self::Class(_) | Self::Classes(_) => None,
        }
    }

    /// The target of the loss: a number as it is, classes as zeros and ones.
    pub(super) fn targets(&self, num_labels: usize) -> Result<Vec<f64>> {
        if let Some(number) = self.number() {
            return Ok(vec![number.into()]);
        }
        let mut targets = vec![0.0; num_labels];
        for &id in self.ids() {
            let problem = || format!("is out of range: the model has {num_labels} labels");
            let target = targets.get_mut(id);
            *target.ok_or_else(|| Error::data(format!("label {id}"), problem()))? = 1.0;
        }
        Ok(targets)
    }

    pub(super) fn rename(&mut self, ids: &[usize]) {
        match self {
            Self::Class(id) => *id = ids[*id],
            Self::Classes(classes) => {
                classes.iter_mut().for_each(|id| *id = ids[*id]);
                // One order for each set of classes, whatever the file's.
                classes.sort_unstable();
            }
            Self::Value(_) | Self::Relevance(_) => {}
        }
    }
}

/// How the labels of a file are read; transformers' `problem_type`. An argument of
/// [`Columns::with_kind`](super::Columns::with_kind), read by [`LabelledTexts`](super::LabelledTexts); [`Examples`](super::Examples)
/// has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelKind {
    /// One class per text: a name or an id.
    #[default]
    Class,
    /// Several classes per text: a JSON list, or names separated by commas; or a zero or one for each class, in such a list or in
    /// [a column for each](super::Columns::with_labels). `[1, 0, 1]`, which as ids would name class 1 twice, is the classes 0 and 2.
    Classes,
    /// One number per text.
    Value,
    /// One number in [0, 1] per pair of a query and a text.
    Relevance,
}

impl LabelKind {
    /// A number as a label; what it must be, if it is not. NaN is in no range.
    pub(super) fn number(self, value: Option<f32>) -> Result<Label, &'static str> {
        match (self, value) {
            (Self::Relevance, Some(value)) if (0.0..=1.0).contains(&value) => Ok(Label::Relevance(value)),
            (Self::Relevance, _) => Err("a relevance in [0, 1]"),
            (_, Some(value)) if value.abs() <= MAX_VALUE => Ok(Label::Value(value)),
            _ => Err("a number in [-1e15, 1e15]"),
        }
    }
}

/// The classes of a file: those of given names, or those that it has, collected as it is read.
pub(super) struct Classes<'a> {
    kind: LabelKind,
    given: Option<&'a [String]>,
    /// The id of each label; without given names, in the order in which they were found.
    ids: BTreeMap<String, usize>,
    /// The class of each zero or one of a row, if labels are written so.
    multi_hot: Option<Vec<usize>>,
}

impl<'a> Classes<'a> {
    pub(super) fn new(kind: LabelKind, given: Option<&'a [String]>) -> Self {
        let names = given.unwrap_or_default();
        Self { kind, given, ids: names.iter().cloned().zip(0..).collect(), multi_hot: None }
    }

    /// Reads labels as a zero or one for each of these classes.
    pub(super) fn set_multi_hot(&mut self, names: &[String]) -> Result<(), String> {
        self.multi_hot = Some(names.iter().map(|name| self.id(name, false)).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// The id of a class that is written as a name or as an id.
    pub(super) fn id(&mut self, label: &str, is_json_integer: bool) -> Result<usize, String> {
        let label = label.trim();
        if label.is_empty() {
            return Err("has no label".into());
        }
        let Some(names) = self.given else {
            let next = self.ids.len();
            return Ok(*self.ids.entry(label.to_string()).or_insert(next));
        };
        if is_json_integer && let Some(name) = names.iter().find(|name| is_number(name)) {
            return Err(format!(
                "has the label {label}, which is an id or a name, as {name:?} is one; write names as strings"
            ));
        }
        if let Some(&id) = self.ids.get(label) {
            return Ok(id);
        }
        // "1" names class 1 only where it is `LABEL_1`, so that a wrong file of names is not taken for ids.
        let is_id = |&id: &usize| names.get(id).is_some_and(|name| is_json_integer || *name == numbered(id));
        let id = plain_id(label).filter(is_id);
        id.ok_or_else(|| format!("has the label {label:?}, but the labels are {names:?}"))
    }

    pub(super) fn in_field(&mut self, field: &str) -> Result<Label, String> {
        let field = field.trim();
        let is_list = field.starts_with('[');
        // A field of a table may hold a JSON list, of any kind that JSON lines hold.
        if is_list && let Ok(list) = serde_json::from_str(field) {
            return self.in_json(&list);
        }
        let unfit = |wanted| format!("has the label {field:?}, which is not {wanted}");
        match self.kind {
            LabelKind::Class => self.id(field, false).map(Label::Class),
            LabelKind::Classes if is_list => Err(unfit("a JSON list")),
            LabelKind::Classes => self.classes(&elements(&field.into())),
            LabelKind::Value | LabelKind::Relevance => self.kind.number(field.parse().ok()).map_err(unfit),
        }
    }

    pub(super) fn in_json(&mut self, value: &Value) -> Result<Label, String> {
        let unfit = |wanted| format!("has the label {value}, which is not {wanted}");
        match self.kind {
            LabelKind::Class => self.class(value).map(Label::Class),
            LabelKind::Classes => self.classes(value.as_array().ok_or_else(|| unfit("a list"))?),
            LabelKind::Value | LabelKind::Relevance => {
                // As models compute with it; beyond its range it is infinite, and refused.
                let number = value.as_f64().map(|number| number as f32);
                self.kind.number(number.or_else(|| value.as_str()?.trim().parse().ok())).map_err(unfit)
            }
        }
    }

    /// The classes that a list names, or has a one for.
    pub(super) fn classes(&mut self, list: &[Value]) -> Result<Label, String> {
        let shown = || Value::from(list);
        if let Some(ids) = &self.multi_hot {
            let bits: Option<Vec<bool>> = list.iter().map(bit).collect();
            let problem = || format!("has the label {}, which is not {} zeros and ones", shown(), ids.len());
            let bits = bits.filter(|bits| bits.len() == ids.len()).ok_or_else(problem)?;
            let ones = ids.iter().zip(bits).filter(|(_, is_one)| *is_one);
            return Ok(Label::Classes(ones.map(|(&id, _)| id).collect()));
        }
        let ids = list.iter().map(|value| self.class(value)).collect::<Result<Vec<_>, _>>()?;
        let mut seen = BTreeSet::new();
        match ids.iter().position(|id| !seen.insert(id)) {
            Some(index) => Err(format!("has the label {}, which names {} twice", shown(), list[index])),
            None => Ok(Label::Classes(ids)),
        }
    }

    /// The class that a JSON value names, or gives the id of.
    pub(super) fn class(&mut self, value: &Value) -> Result<usize, String> {
        let id = match value {
            Value::String(name) => return self.id(name, false),
            Value::Bool(id) => Some(u64::from(*id)), // as in Python, where false is 0
            other => other.as_u64(),
        };
        let id = id.ok_or_else(|| format!("has the label {value}, which is not a name or an id"))?;
        self.id(&id.to_string(), true)
    }

    /// The names, sorted as in transformers' example scripts, and the final id of each id that labels were given before. If
    /// a label is a number, all must be ids, and the names are transformers' default ones: `LABEL_0`, `LABEL_1`, …
    pub(super) fn finish(self, path: &Path) -> Result<(Vec<String>, Vec<usize>)> {
        if let Some(names) = self.given {
            return Ok((names.to_vec(), (0..names.len()).collect()));
        }
        let count = self.ids.len();
        let numbers = self.ids.keys().filter(|label| is_number(label)).count();
        let has_ids = numbers > 0;
        // A `0` for the `O` of tags is the one that is wrong, and not the names.
        if let Some(label) =
            self.ids.keys().find(|label| is_number(label)).filter(|_| numbers < count && 2 * numbers <= count)
        {
            let problem = "is a number, but the other labels are names; correct it, or name all classes with open_with_names";
            return Err(Error::data(format!("the label {label:?} of {}", path.display()), problem));
        }
        let mut ids = vec![0; count];
        for (sorted, (label, &found)) in self.ids.iter().enumerate() {
            ids[found] = match plain_id(label).filter(|&id| id < count) {
                _ if !has_ids => sorted,
                // As many different ids as labels, all below their number: none is missing.
                Some(id) => id,
                None => {
                    let what = format!("the label {label:?} of {}", path.display());
                    let problem = format!(
                        "is not one of the ids 0 to {}, but labels with a number among them must be; name the classes in \
                         the order of their ids with open_with_names",
                        count - 1
                    );
                    return Err(Error::data(what, problem));
                }
            };
        }
        // Keys of the map, which are sorted.
        let names = if has_ids { (0..count).map(numbered).collect() } else { self.ids.into_keys().collect() };
        Ok((names, ids))
    }
}

/// The elements of a list in JSON, or of names between commas in a table.
fn elements(label: &Value) -> Vec<Value> {
    match label {
        Value::Array(list) => list.clone(),
        Value::String(field) => serde_json::from_str(field).unwrap_or_else(|_| {
            field.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Value::from).collect()
        }),
        _ => Vec::new(),
    }
}

/// A zero or a one in any notation.
fn bit(value: &Value) -> Option<bool> {
    let number = match value {
        Value::Bool(bit) => f64::from(*bit),
        // As Python writes them.
        Value::String(text) => text.trim().replace("True", "1").replace("False", "0").parse().ok()?,
        number => number.as_f64()?,
    };
    [0.0, 1.0].contains(&number).then_some(number == 1.0)
}

/// The length of a list that can only be a zero or one for each class: its numbers are no ids, or would name one twice.
pub(super) fn multi_hot_len(label: &Value) -> Option<usize> {
    let list = elements(label);
    let bits: Vec<bool> = list.iter().map(bit).collect::<Option<_>>()?;
    let is_fraction = |value: &Value| value.as_f64().is_some() && !value.is_u64();
    let shows = bits.len() > 2 || bits.len() == 2 && bits[0] == bits[1] || list.iter().any(is_fraction);
    shows.then_some(bits.len())
}

/// The id of a class as models take it.
pub(super) fn class_id(id: usize) -> i64 {
    // Not wrapped: a negative one may be that of a token without a label. A batch refuses what does not fit into 32 bits.
    i64::try_from(id).unwrap_or(i64::MAX)
}

/// transformers' name of a class without one.
fn numbered(id: usize) -> String {
    format!("LABEL_{id}")
}

/// An id as it is written: digits without sign and leading zeros.
fn plain_id(label: &str) -> Option<usize> {
    label.parse().ok().filter(|id: &usize| id.to_string() == label)
}

/// Whether a label is a number in any notation. "nan" and "inf", which parse as numbers, are words.
fn is_number(label: &str) -> bool {
    label.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && label.parse::<f64>().is_ok()
}
