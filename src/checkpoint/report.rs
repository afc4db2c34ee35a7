//! What a checkpoint and a model do not have in common.

use crate::error::shown;
use std::fmt;

/// The differences between a checkpoint and the model that was read from it.
///
/// It prints them in words; an empty report prints nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a newly initialised head predicts nothing before it is trained"]
pub struct LoadReport {
    /// Keys that the model needs and the checkpoint does not have. These parameters are newly initialised or, after
    /// [`load`](crate::model::PretrainedModel::load), unchanged. A head or the pooler is only ever missing as a whole.
    pub missing: Vec<String>,
    /// Keys of the checkpoint that the model has no use for, such as those of other heads.
    pub unused: Vec<String>,
    /// The class that `architectures` of `config.json` names, if it is not that of the model, such as another head's. The bare
    /// model is of none.
    pub other_class: Option<String>,
}

impl LoadReport {
    /// Whether every parameter of the model came from the checkpoint.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(class) = &self.other_class {
            writeln!(f, "config.json names another class: {}", shown(class))?;
        }
        if !self.missing.is_empty() {
            writeln!(f, "not in the checkpoint, not loaded: {}", listed(&self.missing))?;
        }
        if !self.unused.is_empty() {
            writeln!(f, "in the checkpoint, not used: {}", listed(&self.unused))?;
        }
        Ok(())
    }
}

/// Keys come from a file, which may hold what a terminal would obey.
fn listed(keys: &[String]) -> String {
    keys.iter().map(|key| shown(key)).collect::<Vec<_>>().join(", ")
}
