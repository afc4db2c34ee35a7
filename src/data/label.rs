//! Labels, and the names of classes.

use crate::error::{Error, Result};
use std::collections::BTreeSet;

/// The label of a text; `LabelledTexts` reads it.
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
/// `TextColumns::with_label`.
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

/// The names of the classes, by id (transformers' `id2label`).
///
/// ```
/// use burn_bert::data::LabelNames;
///
/// let names = LabelNames::new(["negative", "positive"])?;
/// assert_eq!(names.name(1), Some("positive"));
/// # Ok::<(), burn_bert::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelNames {
    pub(super) names: Vec<String>,
}

impl LabelNames {
    /// Names in the order of their ids.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if a name occurs twice.
    pub fn new<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let mut seen = BTreeSet::new();
        match names.iter().find(|name| !seen.insert(name.as_str())) {
            Some(name) => Err(Error::data(
                format!("label name {name:?}"),
                "occurs twice, but label names must be unique",
            )),
            None => Ok(Self { names }),
        }
    }

    /// The number of classes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no class.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name of a class; `None` if there is no such class.
    pub fn name(&self, id: usize) -> Option<&str> {
        self.names.get(id).map(String::as_str)
    }

    /// All names, in the order of their ids.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}
