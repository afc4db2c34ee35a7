//! What classifiers have in common: the names of labels, dropout, and the layers before the last one.

use crate::checkpoint::Fields;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::family::{Classified, FamilyDropout};
use crate::layers::{LayerNorm, check_dropout, ensure, linear_activation};
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;
use burn_fused::Activation;
use serde_json::{Map, Value, json};

macro_rules! classifier {
    ($kind:ident, $config:ident, $model:ident, $batch:ident, $output:ident, dropout: $($dropout:ident).+) => {
        head!($config, $model, $batch, $output);

        impl $config {
            /// `count` labels called `LABEL_0`, `LABEL_1`, ….
            pub fn with_num_labels(self, count: usize) -> Self {
                Self { id2label: numbered(count), ..self }
            }

            /// Number of labels, C.
            pub fn num_labels(&self) -> usize {
                self.id2label.len()
            }
        }

        impl $model {
            /// The config that builds a model of this shape.
            pub fn config(&self) -> $config {
                let (bert, was) = (self.bert.config(), self.stated.classifier_dropout);
                let classifier_dropout =
                    bert.stated_dropout(Classified::$kind, &self.$($dropout).+, was);
                $config { bert, classifier_dropout, ..self.stated.clone() }
            }

            /// The name of each label, by id.
            pub fn id2label(&self) -> &[String] {
                &self.stated.id2label
            }

            /// The id of a label; of several of one name the first.
            pub fn label2id(&self, label: &str) -> Option<usize> {
                self.stated.id2label.iter().position(|name| name == label)
            }
        }
    };
}
pub(super) use classifier;

/// `LayerNorm(GELU(x·P))`, between ModernBERT and the last linear layer of its classifiers. Source: `ModernBertPredictionHead`
/// of transformers 5.23. [`BertForTokenClassification`](super::BertForTokenClassification) has an example.
#[derive(Module, Debug)]
pub struct ClassifierTransform {
    /// P, [H, H].
    pub dense: Linear,
    /// γ and β, H values each.
    pub layer_norm: LayerNorm,
}

impl ClassifierTransform {
    /// `None` in a family without.
    pub(super) fn new(bert: &BertModelConfig, device: &Device) -> Option<Self> {
        let embeddings = &bert.embeddings;
        embeddings.family.architecture().classifiers_have_transform.then(|| Self {
            dense: bert.output_linear([embeddings.hidden_size; 2], bert.encoder().biases.of_others, device),
            layer_norm: embeddings.layer_norm(embeddings.hidden_size, device),
        })
    }

    /// `LayerNorm(GELU(x·P))` over the last axis.
    pub(super) fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dims = x.dims();
        let rows = x.reshape([-1, dims[D - 1] as i64]); // which the fused operators take
        self.layer_norm.forward(linear_activation(&self.dense, rows, Activation::Gelu)).reshape(dims)
    }
}

impl BertModelConfig {
    /// The dropout of a head whose config gives none.
    fn classifier_dropout(&self, of: Classified) -> f64 {
        match self.embeddings.family.architecture().head_dropout[of as usize] {
            FamilyDropout::Stated(Some(prob)) => prob,
            FamilyDropout::Stated(None) | FamilyDropout::OfLayers => self.embeddings.hidden_dropout_prob,
            FamilyDropout::Never => 0.0,
        }
    }

    /// The dropout of a head, which its config states or leaves to the family.
    pub(crate) fn head_dropout(&self, of: Classified, stated: Option<f64>) -> Dropout {
        DropoutConfig::new(stated.unwrap_or_else(|| self.classifier_dropout(of))).init()
    }

    /// What a head's config states of its dropout: nothing if it is the family's default and was not stated.
    pub(crate) fn stated_dropout(&self, of: Classified, dropout: &Dropout, was: Option<f64>) -> Option<f64> {
        // A default that was stated stays so: unstated it would follow the layers' dropout when that is set.
        (was.is_some() || dropout.prob != self.classifier_dropout(of)).then_some(dropout.prob)
    }

    /// Checks the dropout of a head: a probability, and the default if a config of the family can state no other.
    pub(crate) fn check_classifier_dropout(&self, of: Classified, stated: Option<f64>) -> Result<()> {
        let field = if matches!(of, Classified::Answers) { "qa_dropout" } else { "classifier_dropout" };
        let default = self.classifier_dropout(of);
        let prob = stated.unwrap_or(default);
        check_dropout(field, prob)?;
        let family = self.embeddings.family;
        let origin = match family.architecture().head_dropout[of as usize] {
            FamilyDropout::OfLayers => ", the dropout of the layers",
            FamilyDropout::Never => "",
            FamilyDropout::Stated(_) => return Ok(()),
        };
        // It could not be written into a config.json of the family, nor read back.
        ensure(prob == default, field, || {
            let name = family.model_type();
            format!("is {prob}, but this head of the family {name} always has {default}{origin}; use None")
        })
    }

    /// The last linear layer of a classifier, which has a bias in every family.
    pub(crate) fn classifier(&self, outputs: usize, device: &Device) -> Linear {
        let hidden_size = self.embeddings.hidden_size;
        let std = self.embeddings.initializer.std();
        // transformers' standard deviation for it is 1 / √H in the families that have the transform.
        let factor = match self.embeddings.family.architecture().classifiers_have_transform {
            true if std > 0.0 => ((hidden_size as f64).sqrt() * std).recip(),
            _ => 1.0,
        };
        self.scaled_linear([hidden_size, outputs], factor, true, device)
    }
}

/// transformers' names of `count` classes without names: `LABEL_0`, `LABEL_1`, ….
pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|id| format!("LABEL_{id}")).collect()
}

/// Refuses an empty list of labels. Two labels may have one name, as in transformers; data with names
/// [cannot be read](crate::data::Examples) for such a model.
pub(super) fn check_names(id2label: &[String]) -> Result<()> {
    ensure(!id2label.is_empty(), "id2label", || "is empty, but a classifier needs at least one label".into())
}

/// Refuses a last layer that has not one output per label, as one that was put in its place by hand.
pub(super) fn check_outputs(name: &'static str, layer: &Linear, num_labels: usize) -> Result<()> {
    let [inputs, found] = layer.weight.lazy_shape().dims();
    let error = || Error::shape(name, [inputs, found], format!("[{inputs}, {num_labels}]"));
    if found == num_labels { Ok(()) } else { Err(error()) }
}

/// Refuses an ε of label smoothing that is not in [0, 1).
pub(super) fn check_smoothing(label_smoothing: f64) -> Result<()> {
    ensure((0.0..1.0).contains(&label_smoothing), "label_smoothing", || {
        format!("is {label_smoothing}, but must lie in [0, 1)")
    })
}

/// Refuses weights that are not one per class, or neither 0 nor summable in f32.
pub(super) fn check_weights(class_weights: Option<&[f64]>, num_labels: usize) -> Result<()> {
    let Some(weights) = class_weights else { return Ok(()) };
    ensure(weights.len() == num_labels, "class_weights", || {
        format!("has {} weights, but there are {num_labels} labels", weights.len())
    })?;
    weights.iter().try_for_each(|weight| {
        ensure(*weight == 0.0 || (1e-30..=1e30).contains(weight), "class_weights", || {
            format!("has {weight:e}, but a weight must be 0 or lie in [1e-30, 1e30]")
        })
    })
}

/// The most labels: the names of more would take gigabytes.
const MAX_LABELS: usize = 1 << 20;

/// The names of a `config.json`: of `id2label`, or `num_labels` names without one, or two.
pub(super) fn read_names(fields: &Fields) -> Result<Vec<String>> {
    let Some(names) = fields.object("id2label")? else {
        let count = fields.size("num_labels", 2)?;
        // A number costs a file a few bytes, and us a name each.
        fields.ensure(count <= MAX_LABELS, "num_labels", || {
            format!("is {count}, but at most {MAX_LABELS} labels can be without names in id2label")
        })?;
        return Ok(numbered(count));
    };
    // From 0 on without gaps, as an id is the index of a logit.
    let name = |id: usize| match names.get(&id.to_string()) {
        Some(Value::String(name)) => Ok(name.clone()),
        Some(Value::Number(name)) => Ok(name.to_string()),
        // As Python writes them.
        Some(Value::Bool(name)) => Ok(if *name { "True" } else { "False" }.into()),
        Some(Value::Null) => {
            let problem = format!("names the id {id} by null; give it a name, such as \"LABEL_{id}\"");
            Err(fields.invalid("id2label", problem))
        }
        Some(_) => {
            Err(fields.invalid("id2label", format!("names the id {id} by something that is not text")))
        }
        None => Err(fields.invalid(
            "id2label",
            format!("has {} labels, but none of id {id}; number them from 0 on", names.len()),
        )),
    };
    (0..names.len()).map(name).collect()
}

/// The dropout of a head that a `config.json` states; `None` where it is the family's default.
pub(super) fn read_dropout(fields: &Fields, of: Classified) -> Result<Option<f64>> {
    let spec = fields.spec;
    let Some(field) = spec.head_dropout[of as usize].filter(|field| !fields.is_null(field)) else {
        return Ok(None);
    };
    let prob = fields.number(field, 0.0)?;
    // `None` means the family's default, as in a config built by hand.
    let default = spec.architecture.head_dropout[of as usize];
    Ok((default != FamilyDropout::Stated(Some(prob))).then_some(prob))
}

/// The fields of a head with these labels and this dropout, where a `config.json` of the family states one.
pub(super) fn head_fields(
    id2label: &[String],
    bert: &BertModelConfig,
    of: Classified,
    dropout: Option<f64>,
) -> Map<String, Value> {
    let names = id2label.iter().enumerate();
    let by_id: Map<_, _> = names.clone().map(|(id, name)| (id.to_string(), name.as_str().into())).collect();
    let by_name: Map<_, _> = names.map(|(id, name)| (name.clone(), id.into())).collect();
    let spec = bert.embeddings.family.spec();
    let default = match spec.architecture.head_dropout[of as usize] {
        FamilyDropout::Stated(default) => default,
        FamilyDropout::OfLayers | FamilyDropout::Never => None,
    };
    // null where it is that of the layers, as transformers writes it.
    let dropout = spec.head_dropout[of as usize].map(|field| (field.into(), json!(dropout.or(default))));
    let labels = [("id2label".into(), by_id.into()), ("label2id".into(), by_name.into())];
    labels.into_iter().chain(dropout).collect()
}
