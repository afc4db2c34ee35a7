//! The fields of a `config.json`, read tolerantly.

use crate::embeddings::{BertEmbeddingsConfig, EMBEDDING_SIZE, NUMBERS};
use crate::error::{Error, Result, shown};
use crate::family::{Family, PositionEmbeddingType, Presence};
use crate::family::{FamilySpec, Field, Unsupported};
use crate::files::hub::{HubFiles, directory};
use crate::files::{CONFIG_NAME, SENTENCE_NAMES, base_of, folder_of, read_json, regular_file};
use crate::layers::EmbeddingInitializer;
use burn::config::Config;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The path of a checkpoint's config: in the directory, beside the weights file, or in that of an adapter's base.
pub(super) fn config_path(path: &Path) -> Result<PathBuf> {
    Ok(folder_of(&base_of(path)?).join(CONFIG_NAME))
}

/// The fields of one `config.json`, under BERT's names. [`Stored`](crate::model::Stored) has an example.
pub struct Fields {
    path: PathBuf,
    /// The folder of the model, where an adapter's may lie elsewhere than the config.
    dir: PathBuf,
    pub(super) fields: Map<String, Value>,
    pub(crate) spec: &'static FamilySpec,
}

impl Fields {
    pub(crate) fn read(path: PathBuf) -> Result<Self> {
        // BERT's names until the file's own family is known: errors before that have to name fields too.
        let dir = folder_of(&path).to_path_buf();
        let mut read = Self { fields: read_json(&path)?, spec: Family::Bert.spec(), path, dir };
        read.spec = read.stated_spec()?;
        for (field, name) in read.spec.fields {
            // Removed even where it is not read: a stray field of BERT's means nothing in this family.
            let of_bert = read.fields.remove(*field);
            let value = match name {
                Field::Always => None,
                Field::Named(name) => read.fields.remove(*name),
                Field::Also(name) | Field::Old(name) => of_bert.or(read.fields.remove(*name)),
            };
            if let Some(value) = value {
                read.fields.insert(field.to_string(), value);
            }
        }
        Ok(read)
    }

    pub(crate) fn at(path: &Path) -> Result<Self> {
        let path = directory(path, HubFiles::Settings)?;
        if path.is_dir() { Self::beside(&path) } else { Self::read(path) }
    }

    /// Reads the `config.json` in a directory or next to a weights file. If `path` does not exist, the error
    /// names it and not the config.
    pub(crate) fn beside(path: &Path) -> Result<Self> {
        if !regular_file::exists(path) {
            regular_file::open(path)?;
        }
        let (dir, config) = (folder_of(path).to_path_buf(), config_path(path)?);
        let modules = dir.join(SENTENCE_NAMES[0]);
        if !regular_file::exists(&config) && regular_file::exists(&modules) {
            let first = read_json::<Value>(&modules)?[0]["type"].to_string();
            let problem = format!(
                "begin with {}, but must begin with a Transformer and its {CONFIG_NAME}",
                shown(&first)
            );
            return Err(Error::ConfigFile { path: modules, field: "modules", problem });
        }
        Ok(Self { dir, ..Self::read(config)? })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn stated_spec(&self) -> Result<&'static FamilySpec> {
        let classes = self.fields.get("architectures");
        let class = classes.and_then(|names| names.get(0)).and_then(Value::as_str);
        let (found, stated, problem) = match (self.text("model_type")?, class) {
            (Some(model_type), _) => {
                (FamilySpec::with_model_type(model_type), model_type, FamilySpec::reason_against(model_type))
            }
            (None, Some(class)) => {
                let problem = "the file has no model_type, and its architecture matches no family; add one: ";
                (FamilySpec::with_class(class), class, problem)
            }
            // Every JSON object would be a BERT otherwise, as all fields have defaults.
            (None, None) => {
                let problem = "is missing, and so is architectures, so this may be no model's config; if it is BERT's, \
                               add \"model_type\": \"bert\"";
                return Err(self.invalid("model_type", format!("{problem}; {}", FamilySpec::supported())));
            }
        };
        found.ok_or_else(|| Error::UnsupportedModel {
            path: self.path.clone(),
            model_type: shown(stated),
            problem: format!("{problem}{}", FamilySpec::supported()),
        })
    }

    /// The first of the file's classes, if there are some and `class` is none of them.
    pub(crate) fn other_class(&self, class: Option<&str>) -> Option<String> {
        let classes = self.fields.get("architectures")?.as_array()?;
        // A bare model is part of every class.
        let is_other = class.is_some_and(|class| classes.iter().all(|found| found != class));
        // Classes of a publisher's code have names of their own.
        let is_own = self.fields.get("model_type").is_none_or(|stated| *stated == self.spec.model_type);
        classes.first()?.as_str().filter(|_| is_other && is_own).map(String::from)
    }

    /// The config of an embedding layer alone.
    pub(super) fn config(&self) -> Result<BertEmbeddingsConfig> {
        let config = self.embeddings()?;
        self.in_file(config.validate())?;
        Ok(config)
    }

    /// The config of the embedding layer, which that of the model validates.
    pub(crate) fn embeddings(&self) -> Result<BertEmbeddingsConfig> {
        let spec = self.spec;
        // First: fields of a variant may mean something else.
        self.refuse_variants()?;
        let mut config = self.read_numbers(BertEmbeddingsConfig::default_for(spec.family), &NUMBERS)?;
        // Not read where the family has none: the field may be any.
        if spec.architecture.projection != Presence::Never {
            let size = self.size("embedding_size", EMBEDDING_SIZE)?;
            let is_own = spec.architecture.projection == Presence::IfStated && size == config.hidden_size;
            config.embedding_size = (!is_own).then_some(size);
        }
        if spec.family == Family::Ernie && self.flag("use_task_id")? == Some(true) {
            config.task_type_vocab_size = self.size("task_type_vocab_size", 3)?;
        }
        config.pad_token_id = self.pad_token_id(spec.pad_token_id)?;
        let (EmbeddingInitializer::Normal { std } | EmbeddingInitializer::TruncatedNormal { std, .. }) =
            &mut config.initializer;
        *std = self.number("initializer_range", *std)?;
        if let EmbeddingInitializer::TruncatedNormal { bound, .. } = &mut config.initializer {
            *bound = self.number("initializer_cutoff_factor", *bound)?;
        }
        config.position_embedding_type = self.positions()?;
        Ok(config)
    }

    /// A config with the numbers that the file states in these fields.
    pub(crate) fn read_numbers<C: Config>(&self, config: C, fields: &[&'static str]) -> Result<C> {
        let mut json = serde_json::to_value(config).expect("plain data");
        for field in fields {
            let default = &json[field];
            json[field] = match default.as_u64() {
                Some(size) => self.size(field, size as usize)?.into(),
                None => self.number(field, default.as_f64().unwrap_or_default())?.into(),
            };
        }
        Ok(serde_json::from_value(json).expect("a size for a size, and a number for a number"))
    }

    /// Refuses models that compute something else than their family.
    fn refuse_variants(&self) -> Result<()> {
        let refuse = |problem: String| {
            let model_type = self.spec.model_type.to_string();
            Err(Error::UnsupportedModel { path: self.path.clone(), model_type, problem })
        };
        match self.fields.get("position_embedding_type").and_then(Value::as_str) {
            Some("absolute") if self.text("model_type")? == Some("new") => {
                return refuse("position_embedding_type is \"absolute\", but must be \"rope\"".into());
            }
            Some("alibi") => return refuse("its positions are ALiBi's, as in Jina embeddings v2".into()),
            Some("rotary") if !self.is_null("lora_adaptations") => {
                return refuse("this is Jina's own layout; load jinaai/jina-embeddings-v3-hf instead".into());
            }
            _ => {}
        }
        let other = |field: &str, found: String, allowed: String, means: &str| {
            format!("{field} is {found}, but must be {allowed}; {means} would not be computed")
        };
        for unsupported in self.spec.unsupported {
            let problem = match *unsupported {
                Unsupported::Flag(field, value, does) => (self.flag(field)? == Some(value))
                    .then(|| format!("it {does} ({field} is {value}), which is not supported")),
                Unsupported::OtherThan(field, value, means) => {
                    let found = if self.is_null(field) { value } else { self.number(field, value)? };
                    (found != value).then(|| other(field, found.to_string(), value.to_string(), means))
                }
                Unsupported::OtherName(field, name, means) => self
                    .text(field)?
                    .filter(|&found| found != name)
                    .map(|found| other(field, format!("{:?}", shown(found)), format!("{name:?}"), means)),
                Unsupported::OtherWidth(field, means) => {
                    let width = self.size("hidden_size", self.spec.hidden_size)?;
                    Some(self.size(field, width)?)
                        .filter(|&found| found != width)
                        .map(|found| other(field, found.to_string(), format!("hidden_size {width}"), means))
                }
            };
            problem.map_or(Ok(()), refuse)?;
        }
        Ok(())
    }

    fn positions(&self) -> Result<PositionEmbeddingType> {
        let allowed = "\"absolute\", \"relative_key\" or \"relative_key_query\"";
        let own = self.spec.architecture.positions;
        // "absolute" are the family's own, whatever they are.
        // Of which a config cannot state others.
        if own == PositionEmbeddingType::Rotary {
            return Ok(own);
        }
        let mut all = RELATIVE.into_iter().chain([(own, "absolute")]);
        let known = |name: &str| all.find(|(_, known)| *known == name).map(|(positions, _)| positions);
        let stated = self.known("position_embedding_type", allowed, known)?.unwrap_or(own);
        let is_biased = stated == PositionEmbeddingType::Disentangled
            && self.flag("position_biased_input")?.unwrap_or(true);
        Ok(if is_biased { PositionEmbeddingType::Absolute } else { stated })
    }

    fn pad_token_id(&self, default: usize) -> Result<Option<usize>> {
        // null is not a padding row, a missing field is the family's.
        let id = |value: &Value| if value.is_null() { Some(None) } else { as_size(value).map(Some) };
        Ok(self.value("pad_token_id", "an id or null", id)?.unwrap_or(Some(default)))
    }

    /// The value of a field, which is `wanted`; `None` if it is missing.
    fn value<'a, T>(
        &'a self,
        field: &'static str,
        wanted: &str,
        parse: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        // null is a value like others here: who allows it asks before.
        let Some(found) = self.fields.get(field) else { return Ok(None) };
        let error = || self.invalid(field, format!("is {}, but must be {wanted}", shortened(found)));
        parse(found).map(Some).ok_or_else(error)
    }

    /// A whole number, or `default` if the field is missing; [`Error::ConfigFile`] if it is not one.
    pub fn size(&self, field: &'static str, default: usize) -> Result<usize> {
        Ok(self.value(field, "a whole number", as_size)?.unwrap_or(default))
    }

    /// A number, or `default` if the field is missing; [`Error::ConfigFile`] if it is not one.
    pub fn number(&self, field: &'static str, default: f64) -> Result<f64> {
        Ok(self.value(field, "a number", Value::as_f64)?.unwrap_or(default))
    }

    pub(crate) fn flag(&self, field: &'static str) -> Result<Option<bool>> {
        self.value(field, "true or false", Value::as_bool)
    }

    /// An object, or what is written as null.
    pub(crate) fn object(&self, field: &'static str) -> Result<Option<&Map<String, Value>>> {
        if self.is_null(field) { Ok(None) } else { self.value(field, "an object", Value::as_object) }
    }

    /// A list, or what is written as null.
    pub(crate) fn list(&self, field: &'static str) -> Result<Option<&Vec<Value>>> {
        if self.is_null(field) { Ok(None) } else { self.value(field, "a list", Value::as_array) }
    }

    /// Names in a list, or in a text with `|` between them; empty if the field is missing or null.
    pub(crate) fn names(&self, field: &'static str) -> Result<Vec<String>> {
        let names = |value: &Value| match value {
            Value::Null => Some(Vec::new()),
            // In lower case, as transformers reads it.
            Value::String(text) => Some(text.split('|').map(|name| name.trim().to_lowercase()).collect()),
            Value::Array(names) => names.iter().map(|name| name.as_str().map(String::from)).collect(),
            _ => None,
        };
        Ok(self.value(field, "a text or a list of texts", names)?.unwrap_or_default())
    }

    /// A config whose fields have their own names in the file, but for one that is given.
    pub(crate) fn config_around<C: Config>(&self, field: &str, value: &impl Config) -> Result<C> {
        let mut fields = self.fields.clone();
        fields.insert(field.into(), serde_json::to_value(value).expect("plain data"));
        serde_json::from_value(fields.into())
            .map_err(|source| Error::Json { path: self.path.clone(), source })
    }

    /// Whether a field is missing or null.
    pub(crate) fn is_null(&self, field: &'static str) -> bool {
        self.fields.get(field).is_none_or(Value::is_null)
    }

    /// A text, or `None` if the field is missing; [`Error::ConfigFile`] if it is not one.
    pub fn text(&self, field: &'static str) -> Result<Option<&str>> {
        self.value(field, "text", Value::as_str)
    }

    /// The value that a text names; `None` if the field is missing, an error if it is none of those `allowed`.
    pub(crate) fn known<T>(
        &self,
        field: &'static str,
        allowed: &str,
        known: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        self.value(field, allowed, |value| known(value.as_str()?))
    }

    /// An error that names the file and the field, which BERT calls `field`.
    pub(crate) fn invalid(&self, field: &'static str, problem: String) -> Error {
        let field = match self.spec.fields.iter().find(|(bert, _)| *bert == field) {
            Some((_, Field::Named(name) | Field::Also(name))) => *name,
            _ => field,
        };
        Error::ConfigFile { path: self.path.clone(), field, problem }
    }

    /// The error of [`invalid`](Self::invalid) if the field is not valid.
    pub(crate) fn ensure(
        &self,
        is_valid: bool,
        field: &'static str,
        problem: impl FnOnce() -> String,
    ) -> Result<()> {
        if is_valid { Ok(()) } else { Err(self.invalid(field, problem())) }
    }

    /// Names the file whose field a config or a module cannot be built from, in JSON's words.
    pub(crate) fn in_file<T>(&self, built: Result<T>) -> Result<T> {
        built.map_err(|error| match error {
            Error::Config { field, problem } => {
                // The file has another name for this field than the config struct.
                let [sequences, tokens, answers] = self.spec.head_dropout;
                let field = match field {
                    "initializer" => "initializer_range",
                    "classifier_dropout" => sequences.or(tokens).unwrap_or(field),
                    "qa_dropout" => answers.unwrap_or(field),
                    _ => field,
                };
                self.invalid(field, problem.replace("use None", "use null").replace("is None", "is null"))
            }
            other => other,
        })
    }
}

/// The `position_embedding_type` of relative positions.
pub(super) const RELATIVE: [(PositionEmbeddingType, &str); 2] = [
    (PositionEmbeddingType::RelativeKey, "relative_key"),
    (PositionEmbeddingType::RelativeKeyQuery, "relative_key_query"),
];

fn as_size(value: &Value) -> Option<usize> {
    // Not `as`: a machine's sizes may have 32 bits, and the number is the file's word.
    value.as_u64().and_then(|value| value.try_into().ok())
}

/// A value for a message: in full if it can be short, else its kind.
fn shortened(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("{:?}", shown(text)),
        short => short.to_string(),
    }
}
