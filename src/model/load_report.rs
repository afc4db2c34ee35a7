use crate::error::shown;
use std::fmt;
use std::path::PathBuf;

/// The differences between a checkpoint and the model that was read from it. An empty report prints nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a newly initialised head predicts nothing before it is trained"]
pub struct LoadReport {
    /// Keys that the model needs and the checkpoint does not have. These parameters are newly initialised or, after
    /// [`load`](super::PretrainedModel::load), unchanged. The pooler and the modules of a head are each missing as a whole.
    pub missing: Vec<String>,
    /// Keys of the checkpoint that the model has no use for, such as those of other heads.
    pub unused: Vec<String>,
    /// The class that `architectures` of `config.json` names, if the model has a head and is of another class.
    pub other_class: Option<String>,
    /// The `adapter_config.json` of the PEFT adapter that was read with the weights, if there is one.
    pub adapter: Option<PathBuf>,
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
        if let Some(adapter) = &self.adapter {
            writeln!(f, "with the adapter of {}", shown(&adapter.display().to_string()))?;
        }
        let [missing, unused] = ["not in the checkpoint, not loaded", "in the checkpoint, not used"];
        for (what, keys) in [(missing, &self.missing), (unused, &self.unused)] {
            // Keys come from a file, which may hold what a terminal would obey.
            let keys: Vec<String> = keys.iter().map(|key| shown(key)).collect();
            if !keys.is_empty() {
                writeln!(f, "{what}: {}", keys.join(", "))?;
            }
        }
        Ok(())
    }
}
