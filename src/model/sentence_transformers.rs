//! What sentence-transformers' files say beside `config.json`: prompts, activations, and settings in JSON.

use crate::encoder::Activation;
use crate::error::{Error, Result};
use crate::files::{SENTENCE_NAMES, read_json, regular_file};
use crate::layers::ensure;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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

    /// The prompt of this name, or without a name the default; empty if there is none. Returns [`Error::Config`] if there is no
    /// prompt of the name.
    pub fn text(&self, name: Option<&str>) -> Result<&str> {
        let Some(name) = name.or(self.default.as_deref()) else { return Ok("") };
        self.texts.get(name).map(String::as_str).ok_or_else(|| {
            let names: Vec<_> = self.texts.keys().map(|name| format!("{name:?}")).collect();
            let problem = match names[..] {
                [] => format!("are asked for {name:?}, but there are none"),
                _ => format!("have no {name:?}; there are {}", names.join(", ")),
            };
            Error::config("prompts", problem)
        })
    }

    /// The names of those that are not empty.
    #[cfg(feature = "train")]
    pub(crate) fn names(&self) -> Vec<&str> {
        self.texts.iter().filter(|(_, text)| !text.is_empty()).map(|(name, _)| name.as_str()).collect()
    }

    pub(super) fn validate(&self) -> Result<()> {
        // The default alone can name a prompt that is not there.
        self.text(None).map(drop)
    }
}

/// PyTorch's classes of activations, by which the files name them.
const CLASSES: [(Activation, &str); 5] = [
    (Activation::Identity, "torch.nn.modules.linear.Identity"),
    (Activation::Tanh, "torch.nn.modules.activation.Tanh"),
    (Activation::Relu, "torch.nn.modules.activation.ReLU"),
    (Activation::Gelu, "torch.nn.modules.activation.GELU"),
    (Activation::Sigmoid, "torch.nn.modules.activation.Sigmoid"),
];

/// The class of an activation; `None` for the approximations of GELU, which are GELU's with an argument.
pub(super) fn torch_class(activation: Activation) -> Option<&'static str> {
    CLASSES.into_iter().find(|(known, _)| *known == activation).map(|(_, class)| class)
}

pub(super) fn check_activation(field: &'static str, activation: Activation) -> Result<()> {
    ensure(torch_class(activation).is_some(), field, || {
        format!("has the activation {activation:?}, but files can state {} only", torch_classes())
    })
}

/// The activation of a class, also under a shorter path such as `torch.nn.Tanh`.
pub(super) fn torch_activation(class: &Value) -> Option<Activation> {
    let name = class.as_str()?.strip_prefix("torch.nn.")?.rsplit('.').next();
    let known = CLASSES.into_iter().find(|(_, known)| known.rsplit('.').next() == name);
    known.map(|(activation, _)| activation)
}

pub(super) fn torch_classes() -> String {
    CLASSES.map(|(_, class)| class).join(", ")
}

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
    pub(super) fn read_kind(dir: &Path, kind: &str) -> Result<Self> {
        let own = Self::if_there(dir.join(SENTENCE_NAMES[1]))?;
        let is_kind = own.fields.get("model_type").map_or(kind == "SentenceTransformer", |own| *own == *kind);
        Ok(if is_kind { own } else { Self { fields: Map::new(), ..own } })
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
        // A prompt of null is none.
        let texts = |value: &Value| BTreeMap::<String, Option<String>>::deserialize(value).ok();
        let texts = self.value("prompts", "an object of texts", texts)?.unwrap_or_default();
        let texts = texts.into_iter().map(|(name, text)| (name, text.unwrap_or_default())).collect();
        let text = |value: &Value| value.as_str().map(String::from);
        let prompts = Prompts { texts, default: self.value("default_prompt_name", "a text or null", text)? };
        // In the file's name, which a config built by hand has not.
        if let Err(Error::Config { field, problem }) = prompts.validate() {
            return Err(self.invalid(field, problem));
        }
        Ok(prompts)
    }

    pub(super) fn set_prompts(&mut self, prompts: &Prompts) {
        self.fields.insert("prompts".into(), json!(prompts.texts));
        self.fields.insert("default_prompt_name".into(), json!(prompts.default));
    }
}
