//! How the classifiers are stored.

use super::config::BertModelConfig;
use super::keys::ModelKeys;
use super::labels::numbered;
use super::sequence_classification::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, ProblemType,
};
use super::stored::{Part, Stored, in_file, stored_head};
use super::token_classification::{BertForTokenClassification, BertForTokenClassificationConfig};
use crate::checkpoint::{Fields, StoredParam};
use crate::error::Result;
use serde_json::{Map, Value, json};
use std::path::Path;

/// What the keys of a classifier start with.
const NAMESPACE: &str = "classifier.";

impl BertForSequenceClassificationConfig {
    /// Reads a Hugging Face `config.json`: the file, or the directory that holds it.
    ///
    /// The labels are those of `id2label`, or `num_labels` without names, or two.
    ///
    /// # Errors
    ///
    /// Those of [`BertModelConfig::from_pretrained`]; [`Error::ConfigFile`](crate::Error::ConfigFile), naming the
    /// field, if `id2label` does not name 0, 1, …, `problem_type` is none of transformers', or
    /// [`validate`](Self::validate) refuses a value.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_fields(&Fields::at(path.as_ref())?)
    }

    fn from_fields(fields: &Fields) -> Result<Self> {
        let problem_type = if fields.is_null("problem_type") {
            None
        } else {
            fields.text("problem_type")?.map(|name| problem_type(name, fields)).transpose()?
        };
        let config = Self {
            bert: BertModelConfig::from_fields(fields)?,
            id2label: names_of(fields)?,
            problem_type,
            classifier_dropout: classifier_dropout(fields)?,
            class_weights: None,
        };
        in_file(config.validate(), fields)?;
        Ok(config)
    }
}

impl BertForTokenClassificationConfig {
    /// Reads a Hugging Face `config.json`: the file, or the directory that holds it.
    ///
    /// The labels are those of `id2label`, or `num_labels` without names, or two.
    ///
    /// # Errors
    ///
    /// Those of [`BertModelConfig::from_pretrained`]; [`Error::ConfigFile`](crate::Error::ConfigFile), naming the
    /// field, if `id2label` does not name 0, 1, … or [`validate`](Self::validate) refuses a value.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_fields(&Fields::at(path.as_ref())?)
    }

    fn from_fields(fields: &Fields) -> Result<Self> {
        let config = Self {
            bert: BertModelConfig::from_fields(fields)?,
            id2label: names_of(fields)?,
            classifier_dropout: classifier_dropout(fields)?,
            class_weights: None,
        };
        in_file(config.validate(), fields)?;
        Ok(config)
    }
}

/// The names of a `config.json`: of `id2label`, or `num_labels` names without one, or two.
fn names_of(fields: &Fields) -> Result<Vec<String>> {
    let Some(names) = fields.object("id2label")? else {
        return Ok(numbered(fields.size("num_labels", 2)?));
    };
    let name = |id: usize| match names.get(&id.to_string()) {
        Some(Value::String(name)) => Ok(name.clone()),
        Some(_) => Err(fields.invalid("id2label", format!("has a name of {id} that is not text"))),
        None => Err(fields.invalid("id2label", format!("has {} labels, but none of id {id}", names.len()))),
    };
    (0..names.len()).map(name).collect()
}

/// `id2label` and `label2id` of a `config.json`.
fn name_fields(id2label: &[String]) -> [(&'static str, Value); 2] {
    let names = id2label.iter().enumerate();
    let by_id: Map<_, _> = names.clone().map(|(id, name)| (id.to_string(), name.as_str().into())).collect();
    let by_name: Map<_, _> = names.map(|(id, name)| (name.clone(), id.into())).collect();
    [("id2label", by_id.into()), ("label2id", by_name.into())]
}

fn problem_type(name: &str, fields: &Fields) -> Result<ProblemType> {
    ProblemType::deserialize(name).ok_or_else(|| {
        let allowed = ProblemType::ALL.map(ProblemType::name).join(", ");
        fields.invalid("problem_type", format!("is {name:?}, but must be one of {allowed}"))
    })
}

fn classifier_dropout(fields: &Fields) -> Result<Option<f64>> {
    if fields.is_null("classifier_dropout") {
        return Ok(None);
    }
    fields.number("classifier_dropout", 0.0).map(Some)
}

impl ProblemType {
    const ALL: [Self; 3] =
        [Self::Regression, Self::SingleLabelClassification, Self::MultiLabelClassification];

    /// transformers' name.
    fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::SingleLabelClassification => "single_label_classification",
            Self::MultiLabelClassification => "multi_label_classification",
        }
    }

    fn deserialize(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|problem_type| problem_type.name() == name)
    }
}

impl Stored for BertForSequenceClassification {
    stored_head!(BertForSequenceClassificationConfig);

    const CLASS: Option<&'static str> = Some("ForSequenceClassification");

    fn parts<'a>(&'a self, keys: &ModelKeys) -> Vec<Part<'a>> {
        let out_proj = &self.classifier.out_proj;
        let params: Vec<_> = match &self.classifier.dense {
            Some(dense) => StoredParam::linear("classifier.dense", dense)
                .into_iter()
                .chain(StoredParam::linear("classifier.out_proj", out_proj))
                .collect(),
            None => StoredParam::linear("classifier", out_proj).into(),
        };
        self.bert.pooler_part(keys).into_iter().chain([Part::new(NAMESPACE, params)]).collect()
    }

    fn head_fields(&self) -> Vec<(&'static str, Value)> {
        let config = self.config();
        let [by_id, by_name] = name_fields(&config.id2label);
        let problem_type = ("problem_type", json!(config.problem_type.map(ProblemType::name)));
        vec![by_id, by_name, problem_type, ("classifier_dropout", json!(config.classifier_dropout))]
    }
}

impl Stored for BertForTokenClassification {
    stored_head!(BertForTokenClassificationConfig);

    const CLASS: Option<&'static str> = Some("ForTokenClassification");

    fn parts<'a>(&'a self, _keys: &ModelKeys) -> Vec<Part<'a>> {
        vec![Part::new(NAMESPACE, StoredParam::linear("classifier", &self.classifier))]
    }

    fn head_fields(&self) -> Vec<(&'static str, Value)> {
        let config = self.config();
        let [by_id, by_name] = name_fields(&config.id2label);
        vec![by_id, by_name, ("classifier_dropout", json!(config.classifier_dropout))]
    }
}
