//! What is put before texts.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Texts that a model was trained to find before its input, such as `query: `, by name.
///
/// ```
/// use burn_bert::model::Prompts;
///
/// let prompts = Prompts::new().with("query", "query: ").with("passage", "passage: ").with_default("query");
/// assert_eq!(prompts.text(Some("passage"))?, "passage: ");
/// assert_eq!(prompts.text(None)?, "query: ");
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// Source: `prompts` and `default_prompt_name` of sentence-transformers 6.2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompts {
    pub(super) texts: BTreeMap<String, String>,
    pub(super) default: Option<String>,
}

impl Prompts {
    /// No prompts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a prompt.
    pub fn with(mut self, name: &str, text: &str) -> Self {
        self.texts.insert(name.into(), text.into());
        self
    }

    /// Names the prompt that is used where no other is asked for.
    pub fn with_default(self, name: &str) -> Self {
        Self { default: Some(name.into()), ..self }
    }

    /// The prompt of this name, or without a name the default; empty if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no prompt of the name.
    pub fn text(&self, name: Option<&str>) -> Result<&str> {
        let Some(name) = name.or(self.default.as_deref()) else { return Ok("") };
        self.texts.get(name).map(String::as_str).ok_or_else(|| {
            let names: Vec<_> = self.texts.keys().map(|name| format!("{name:?}")).collect();
            let problem = match names[..] {
                [] => format!("are asked for {name:?}, but there are none"),
                _ => format!("have no {name:?}; there are {}", names.join(", ")),
            };
            Error::Config { field: "prompts", problem }
        })
    }

    pub(super) fn validate(&self) -> Result<()> {
        self.text(None).map(drop)
    }
}
