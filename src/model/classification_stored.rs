//! How the classifiers are stored.

use super::config::{BertModelConfig, Classified};
use super::keys::ModelKeys;
use super::labels::numbered;
use super::prompts::{Prompts, SideConfig};
use super::sequence_classification::{
    BertForSequenceClassification, BertForSequenceClassificationConfig, ProblemType, ScoreActivation,
    SequenceClassificationHead,
};
use super::stored::{Part, Stored, in_file, stored_head};
use super::token_classification::{BertForTokenClassification, BertForTokenClassificationConfig};
use crate::checkpoint::{Fields, JsonFile, StoredParam};
use crate::embeddings::{Family, FamilyKeys, SequenceHead};
use crate::error::Result;
use serde_json::{Map, Value, json};
use std::path::Path;

/// More labels than this would take gigabytes of names.
const MAX_LABELS: usize = 1 << 20;

/// The classifier's name in every family.
const CLASSIFIER: &str = "classifier";

/// Where sentence-transformers keeps the activation of a `CrossEncoder`: in `config.json` since version 4, there before
/// that, and since version 6 in a file of its own.
const CROSS_ENCODER: &str = "sentence_transformers";
const OLD_CROSS_ENCODER: &str = "sbert_ce_default_activation_function";

/// The `model_type` in that file.
const CROSS_ENCODER_KIND: &str = "CrossEncoder";

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
        let own = SideConfig::of_kind(fields.path().parent().unwrap_or(Path::new("")), CROSS_ENCODER_KIND)?;
        let config = Self {
            bert: BertModelConfig::from_fields(fields)?,
            id2label: names_of(fields)?,
            problem_type,
            classifier_dropout: classifier_dropout(fields, Classified::Sequences)?,
            class_weights: None,
            activation: activation_of(fields, &own)?,
            prompts: own.prompts()?,
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
            classifier_dropout: classifier_dropout(fields, Classified::Tokens)?,
            class_weights: None,
        };
        in_file(config.validate(), fields)?;
        Ok(config)
    }
}

/// The names of a `config.json`: of `id2label`, or `num_labels` names without one, or two.
fn names_of(fields: &Fields) -> Result<Vec<String>> {
    let Some(names) = fields.object("id2label")? else {
        let count = fields.size("num_labels", 2)?;
        if count > MAX_LABELS {
            let problem =
                format!("is {count}, but at most {MAX_LABELS} labels can be without names in id2label");
            return Err(fields.invalid("num_labels", problem));
        }
        return Ok(numbered(count));
    };
    let name = |id: usize| match names.get(&id.to_string()) {
        Some(Value::String(name)) => Ok(name.clone()),
        Some(_) => Err(fields.invalid("id2label", format!("has a name of {id} that is not text"))),
        None => Err(fields.invalid("id2label", format!("has {} labels, but none of id {id}", names.len()))),
    };
    (0..names.len()).map(name).collect()
}

/// `id2label` and `label2id` of a `config.json`.
pub(super) fn name_fields(id2label: &[String]) -> [(&'static str, Value); 2] {
    let names = id2label.iter().enumerate();
    let by_id: Map<_, _> = names.clone().map(|(id, name)| (id.to_string(), name.as_str().into())).collect();
    let by_name: Map<_, _> = names.map(|(id, name)| (name.clone(), id.into())).collect();
    [("id2label", by_id.into()), ("label2id", by_name.into())]
}

/// The activation of a `CrossEncoder`, where sentence-transformers 6.2 looks for it.
fn activation_of(fields: &Fields, own: &SideConfig) -> Result<Option<ScoreActivation>> {
    let (stated, field) = match own.fields.get("activation_fn") {
        Some(class) => (Some(class.clone()), "activation_fn"),
        None => match fields.object(CROSS_ENCODER)?.and_then(|object| object.get("activation_fn")) {
            Some(class) => (Some(class.clone()), CROSS_ENCODER),
            None if fields.is_null(OLD_CROSS_ENCODER) => (None, OLD_CROSS_ENCODER),
            None => (fields.text(OLD_CROSS_ENCODER)?.map(Value::from), OLD_CROSS_ENCODER),
        },
    };
    let Some(class) = stated.filter(|class| !class.is_null()) else { return Ok(None) };
    let name = class.as_str().unwrap_or_default().rsplit('.').next();
    let known = [ScoreActivation::Identity, ScoreActivation::Sigmoid];
    match known.into_iter().find(|activation| activation.class().rsplit('.').next() == name) {
        Some(activation) => Ok(Some(activation)),
        None => {
            let allowed = known.map(ScoreActivation::class).join(", ");
            Err(fields.invalid(field, format!("has the activation {class}, but must have one of {allowed}")))
        }
    }
}

impl ScoreActivation {
    /// The name of PyTorch's class.
    fn class(self) -> &'static str {
        match self {
            Self::Identity => "torch.nn.modules.linear.Identity",
            Self::Sigmoid => "torch.nn.modules.activation.Sigmoid",
        }
    }
}

fn problem_type(name: &str, fields: &Fields) -> Result<ProblemType> {
    ProblemType::deserialize(name).ok_or_else(|| {
        let allowed = ProblemType::ALL.map(ProblemType::name).join(", ");
        fields.invalid("problem_type", format!("is {name:?}, but must be one of {allowed}"))
    })
}

pub(super) fn classifier_dropout(fields: &Fields, of: Classified) -> Result<Option<f64>> {
    let dropout = &keys_of(fields.family()?).classifier_dropout[of as usize];
    match dropout.field {
        Some(field) if !fields.is_null(field) => {
            let prob = fields.number(field, 0.0)?;
            Ok(Some(prob).filter(|_| dropout.default != Some(prob)))
        }
        _ => Ok(None),
    }
}

fn keys_of(family: Family) -> &'static FamilyKeys {
    family.spec().keys.as_ref().unwrap_or_else(|| unreachable!("other families have no models"))
}

/// The dropout of a classifier as `config.json` states it, if the family's does.
pub(super) fn dropout_field(
    bert: &BertModelConfig,
    of: Classified,
    stated: Option<f64>,
) -> Option<(&'static str, Value)> {
    let dropout = &keys_of(bert.embeddings.family).classifier_dropout[of as usize];
    dropout.field.map(|field| (field, json!(stated.or(dropout.default))))
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
        let SequenceClassificationHead { dense, out_proj, .. } = &self.classifier;
        let heads = match (dense, &keys.family.classifier) {
            (Some(dense), SequenceHead::Dense { dense: dense_name, out_proj: out_name, .. }) => {
                let linears = [(dense_name, dense), (out_name, out_proj)];
                if *out_name == CLASSIFIER {
                    linears.map(|(name, linear)| Part::linear(name, linear)).into()
                } else {
                    let params = linears.map(|(name, linear)| StoredParam::linear(name, linear));
                    vec![Part::new(
                        format!("{CLASSIFIER}."),
                        params.into_iter().flatten().collect::<Vec<_>>(),
                    )]
                }
            }
            _ => vec![Part::linear(CLASSIFIER, out_proj)],
        };
        self.bert.pooler_part(keys).into_iter().chain(heads).collect()
    }

    fn head_fields(&self) -> Vec<(&'static str, Value)> {
        let config = self.config();
        let [by_id, by_name] = name_fields(&config.id2label);
        let problem_type = ("problem_type", json!(config.problem_type.map(ProblemType::name)));
        let dropout = dropout_field(&config.bert, Classified::Sequences, config.classifier_dropout);
        let mut fields: Vec<_> = [by_id, by_name, problem_type].into_iter().chain(dropout).collect();
        if let Some(activation) = config.activation {
            fields.push((CROSS_ENCODER, json!({ "activation_fn": activation.class() })));
            fields.push((OLD_CROSS_ENCODER, json!(activation.class())));
        }
        fields
    }

    fn files_beside(&self, dir: &Path) -> Result<Vec<JsonFile>> {
        let (config, mut own) = (self.config(), SideConfig::of_kind(dir, CROSS_ENCODER_KIND)?);
        if own.fields.is_empty() && config.prompts == Prompts::new() {
            return Ok(Vec::new());
        }
        own.fields.insert("model_type".into(), CROSS_ENCODER_KIND.into());
        own.set_prompts(&config.prompts);
        if let Some(activation) = config.activation {
            own.fields.insert("activation_fn".into(), json!(activation.class()));
        }
        Ok(vec![JsonFile { path: own.path, value: own.fields.into() }])
    }
}

impl Stored for BertForTokenClassification {
    stored_head!(BertForTokenClassificationConfig);

    const CLASS: Option<&'static str> = Some("ForTokenClassification");

    fn parts<'a>(&'a self, _keys: &ModelKeys) -> Vec<Part<'a>> {
        vec![Part::linear(CLASSIFIER, &self.classifier)]
    }

    fn head_fields(&self) -> Vec<(&'static str, Value)> {
        let config = self.config();
        let [by_id, by_name] = name_fields(&config.id2label);
        let dropout = dropout_field(&config.bert, Classified::Tokens, config.classifier_dropout);
        [by_id, by_name].into_iter().chain(dropout).collect()
    }
}
