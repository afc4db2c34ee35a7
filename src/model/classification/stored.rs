//! How a classifier of sequences is stored, and what sentence-transformers' `CrossEncoder` adds.

use super::*;
use crate::checkpoint::Fields;
use crate::error::shown;
use crate::layers::LayerNorm;
use crate::model::classifier::{head_fields, read_dropout, read_names};
use crate::model::sentence_transformers::{SideConfig, torch_activation, torch_class, torch_classes};
use crate::model::stored::{Stored, stored_head};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Where sentence-transformers keeps the activation of a `CrossEncoder`: in `config.json` since version 4, there before
/// that, and since version 6 in a file of its own.
const CROSS_ENCODER: &str = "sentence_transformers";
const OLD_CROSS_ENCODER: &str = "sbert_ce_default_activation_function";

const CROSS_ENCODER_KIND: &str = "CrossEncoder";

/// The activation of a `CrossEncoder`, where sentence-transformers 6.2 looks for it.
fn read_activation(fields: &Fields, own: &SideConfig) -> Result<Option<Activation>> {
    let (stated, field) = match own.fields.get("activation_fn") {
        Some(class) => (Some(class.clone()), "activation_fn"),
        None => match fields.object(CROSS_ENCODER)?.and_then(|object| object.get("activation_fn")) {
            Some(class) => (Some(class.clone()), CROSS_ENCODER),
            None if fields.is_null(OLD_CROSS_ENCODER) => (None, OLD_CROSS_ENCODER),
            None => (fields.text(OLD_CROSS_ENCODER)?.map(Value::from), OLD_CROSS_ENCODER),
        },
    };
    let Some(class) = stated.filter(|class| !class.is_null()) else { return Ok(None) };
    torch_activation(&class).map(Some).ok_or_else(|| {
        let (class, allowed) = (shown(&class.to_string()), torch_classes());
        fields.invalid(field, format!("has the activation {class}, but must have one of {allowed}"))
    })
}

fn read_problem_type(fields: &Fields) -> Result<Option<ProblemType>> {
    // transformers writes null where nothing was said.
    if fields.is_null("problem_type") {
        return Ok(None);
    }
    let allowed = "one of regression, single_label_classification, multi_label_classification";
    // serde's names of the variants are transformers'.
    fields.known("problem_type", allowed, |name| serde_json::from_value(name.into()).ok())
}

/// The thresholds of a `config.json`; `None` if they are not those of its labels, as transformers keeps the field of a model that
/// it trains to another head.
fn read_label_thresholds(
    fields: &Fields,
    config: &BertForSequenceClassificationConfig,
) -> Result<Option<Vec<f64>>> {
    let is_of_labels = |list: &&Vec<Value>| {
        let are_several = config.problem_type == Some(ProblemType::MultiLabelClassification);
        are_several && list.len() == config.num_labels()
    };
    let list = fields.list("label_thresholds")?.filter(is_of_labels);
    let numbers = list.map(|list| list.iter().map(Value::as_f64).collect::<Option<_>>());
    let problem = || fields.invalid("label_thresholds", "has an entry that is not a number".into());
    numbers.map(|numbers| numbers.ok_or_else(problem)).transpose()
}

/// The pooling that a `config.json` states; `None` for the family's default, or if the family has none.
fn read_classifier_pooling(fields: &Fields) -> Result<Option<ClassifierPooling>> {
    let all = fields.spec.architecture.sequence_poolings;
    let Some((default, _)) = all.first() else { return Ok(None) };
    let allowed = format!("one of {}", all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", "));
    let known = |stated: &str| all.iter().find(|(_, name)| *name == stated).map(|(pooling, _)| *pooling);
    // The default is none, as in a config built by hand.
    Ok(fields.known("classifier_pooling", &allowed, known)?.filter(|pooling| pooling != default))
}

impl Stored for BertForSequenceClassification {
    stored_head!(BertForSequenceClassificationConfig, Some("ForSequenceClassification"), bert, heads);

    fn config_of(fields: &Fields) -> Result<BertForSequenceClassificationConfig> {
        // Beside a classifier that is not a CrossEncoder there is no such file, and nothing to read.
        let own = SideConfig::read_kind(fields.dir(), CROSS_ENCODER_KIND)?;
        let config = BertForSequenceClassificationConfig {
            bert: BertModelConfig::from_fields(fields)?,
            id2label: read_names(fields)?,
            problem_type: read_problem_type(fields)?,
            classifier_dropout: read_dropout(fields, Classified::Sequences)?,
            classifier_pooling: read_classifier_pooling(fields)?,
            pooler_dropout: match has_context_pooler(fields.spec.family) {
                true => fields.number("pooler_dropout", 0.0)?,
                false => 0.0,
            },
            class_weights: None,
            label_smoothing: 0.0,
            label_thresholds: None,
            activation: read_activation(fields, &own)?,
            prompts: own.prompts()?,
        };
        let label_thresholds = read_label_thresholds(fields, &config)?;
        Ok(config.with_label_thresholds(label_thresholds))
    }

    fn head_norms(&self) -> Vec<&LayerNorm> {
        self.classifier.transform.iter().map(|transform| &transform.layer_norm).collect()
    }

    fn head_fields(&self) -> Map<String, Value> {
        let config = self.config();
        let (names, dropout) = (&config.id2label, config.classifier_dropout);
        let mut fields = head_fields(names, &config.bert, Classified::Sequences, dropout);
        fields.insert("problem_type".into(), json!(config.problem_type));
        // null too, in place of those of a model that was there.
        fields.insert("label_thresholds".into(), json!(config.label_thresholds));
        let mut poolings = config.bert.encoder().sequence_poolings.iter();
        if let Some((_, name)) = poolings.find(|(pooling, _)| *pooling == config.pooling()) {
            fields.insert("classifier_pooling".into(), json!(name));
        }
        if has_context_pooler(config.bert.embeddings.family) {
            fields.insert("pooler_dropout".into(), json!(config.pooler_dropout));
        }
        if let Some(class) = config.activation.and_then(torch_class) {
            // Both, as each version of sentence-transformers reads one of them.
            fields.insert(CROSS_ENCODER.into(), json!({ "activation_fn": class }));
            fields.insert(OLD_CROSS_ENCODER.into(), json!(class));
        }
        fields
    }

    fn files_beside(&self, dir: &Path) -> Result<Vec<(PathBuf, Value)>> {
        let (config, mut own) = (self.config(), SideConfig::read_kind(dir, CROSS_ENCODER_KIND)?);
        // Without prompts, `config.json` says everything.
        if own.fields.is_empty() && config.prompts == Prompts::new() {
            return Ok(Vec::new());
        }
        own.fields.insert("model_type".into(), CROSS_ENCODER_KIND.into());
        own.set_prompts(&config.prompts);
        if let Some(class) = config.activation.and_then(torch_class) {
            own.fields.insert("activation_fn".into(), json!(class));
        }
        Ok(vec![(own.path, own.fields.into())])
    }
}
