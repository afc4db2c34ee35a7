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

#[cfg(feature = "checkpoint")]
mod stored {
    use super::*;
    use crate::checkpoint::read_json;
    use crate::regular_file;
    use serde_json::{Map, Value, json};
    use std::path::{Path, PathBuf};

    /// The JSON object in a file beside `config.json`.
    pub(in crate::model) struct SideConfig {
        pub(in crate::model) path: PathBuf,
        /// Empty if there is no such file, or it is another kind of model's.
        pub(in crate::model) fields: Map<String, Value>,
    }

    impl SideConfig {
        pub(in crate::model) fn at(path: PathBuf) -> Result<Self> {
            Ok(Self { fields: read_json(&path)?, path })
        }

        pub(in crate::model) fn if_there(path: PathBuf) -> Result<Self> {
            if regular_file::exists(&path) { Self::at(path) } else { Ok(Self { path, fields: Map::new() }) }
        }

        /// sentence-transformers' file of what is not of one module, in a directory, for a model of one kind:
        /// `SentenceTransformer`, which files without a kind are of, or `CrossEncoder`.
        pub(in crate::model) fn of_kind(dir: &Path, kind: &str) -> Result<Self> {
            let mut own = Self::if_there(dir.join("config_sentence_transformers.json"))?;
            if own.fields.get("model_type").map_or("SentenceTransformer", |kind| kind.as_str().unwrap_or(""))
                != kind
            {
                own.fields = Map::new();
            }
            Ok(own)
        }

        pub(in crate::model) fn invalid(&self, field: &'static str, problem: String) -> Error {
            Error::ConfigFile { path: self.path.clone(), field, problem }
        }

        /// A field that is neither missing nor null.
        pub(in crate::model) fn get(&self, field: &str) -> Option<&Value> {
            self.fields.get(field).filter(|value| !value.is_null())
        }

        pub(in crate::model) fn value<T>(
            &self,
            field: &'static str,
            wanted: &str,
            parse: impl FnOnce(&Value) -> Option<T>,
        ) -> Result<Option<T>> {
            let Some(value) = self.get(field) else { return Ok(None) };
            let error = || self.invalid(field, format!("is {value}, but must be {wanted}"));
            parse(value).map(Some).ok_or_else(error)
        }

        pub(in crate::model) fn size(&self, field: &'static str) -> Result<Option<usize>> {
            self.value(field, "a whole number above 0", |value| {
                value.as_u64().filter(|&size| size > 0).and_then(|size| size.try_into().ok())
            })
        }

        pub(in crate::model) fn flag(&self, field: &'static str) -> Result<Option<bool>> {
            self.value(field, "true or false", Value::as_bool)
        }

        pub(in crate::model) fn prompts(&self) -> Result<Prompts> {
            let wrong = || self.invalid("prompts", "must be an object of texts".into());
            let text = |value: &Value| match value {
                Value::Null => Some(String::new()),
                value => value.as_str().map(String::from),
            };
            let mut prompts = Prompts::new();
            for (name, value) in self
                .get("prompts")
                .map_or(Ok(&Map::new()), |prompts| prompts.as_object().ok_or_else(wrong))?
            {
                prompts.texts.insert(name.clone(), text(value).ok_or_else(wrong)?);
            }
            prompts.default = self.value("default_prompt_name", "a text or null", text)?;
            prompts.validate().map_err(|error| match error {
                Error::Config { field, problem } => self.invalid(field, problem),
                other => other,
            })?;
            Ok(prompts)
        }

        pub(in crate::model) fn set_prompts(&mut self, prompts: &Prompts) {
            self.fields.insert("prompts".into(), json!(prompts.texts));
            self.fields.insert("default_prompt_name".into(), json!(prompts.default));
        }
    }
}
#[cfg(feature = "checkpoint")]
pub(super) use stored::SideConfig;
