//! The configs beside `config.json`.

use super::prompts::Prompts;
use crate::error::{Error, Result};
use crate::files::{read_json, regular_file};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The JSON object in a file beside `config.json`.
#[derive(Default)]
pub(super) struct SideConfig {
    pub(super) path: PathBuf,
    /// Empty if there is no such file, or it is another kind of model's.
    pub(super) fields: Map<String, Value>,
}

impl SideConfig {
    pub(super) fn at(path: PathBuf) -> Result<Self> {
        Ok(Self { fields: read_json(&path)?, path })
    }

    pub(super) fn if_there(path: PathBuf) -> Result<Self> {
        if regular_file::exists(&path) { Self::at(path) } else { Ok(Self { path, fields: Map::new() }) }
    }

    /// sentence-transformers' file of what is not of one module, in a directory, for a model of one kind:
    /// `SentenceTransformer`, which files without a kind are of, or `CrossEncoder`.
    pub(super) fn of_kind(dir: &Path, kind: &str) -> Result<Self> {
        let mut own = Self::if_there(dir.join("config_sentence_transformers.json"))?;
        if own.fields.get("model_type").map_or("SentenceTransformer", |kind| kind.as_str().unwrap_or(""))
            != kind
        {
            own.fields = Map::new();
        }
        Ok(own)
    }

    pub(super) fn invalid(&self, field: &'static str, problem: String) -> Error {
        Error::ConfigFile { path: self.path.clone(), field, problem }
    }

    /// A field that is neither missing nor null.
    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn value<T>(
        &self,
        field: &'static str,
        wanted: &str,
        parse: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let error = || self.invalid(field, format!("is {value}, but must be {wanted}"));
        parse(value).map(Some).ok_or_else(error)
    }

    pub(super) fn size(&self, field: &'static str) -> Result<Option<usize>> {
        self.value(field, "a whole number above 0", |value| {
            value.as_u64().filter(|&size| size > 0).and_then(|size| size.try_into().ok())
        })
    }

    pub(super) fn flag(&self, field: &'static str) -> Result<Option<bool>> {
        self.value(field, "true or false", Value::as_bool)
    }

    pub(super) fn prompts(&self) -> Result<Prompts> {
        let wrong = || self.invalid("prompts", "must be an object of texts".into());
        let text = |value: &Value| match value {
            Value::Null => Some(String::new()),
            value => value.as_str().map(String::from),
        };
        let mut prompts = Prompts::new();
        for (name, value) in
            self.get("prompts").map_or(Ok(&Map::new()), |prompts| prompts.as_object().ok_or_else(wrong))?
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

    pub(super) fn set_prompts(&mut self, prompts: &Prompts) {
        self.fields.insert("prompts".into(), json!(prompts.texts));
        self.fields.insert("default_prompt_name".into(), json!(prompts.default));
    }
}
