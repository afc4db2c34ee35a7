pub(super) mod batch;
mod stored;

use crate::embeddings::BertEmbeddingsInput;
use crate::encoder::Activation;
use crate::encoder::config::BertModelConfig;
use crate::error::{Error, Result};
use crate::family::{Classified, ClassifierPooling, Family, SequenceHead};
use crate::layers::{PaddingMask, check_dropout, drop_out, ensure, linear, linear_activation};
use crate::model::bert::{BertModel, BertModelOutput};
use crate::model::classification::batch::{ProblemType, SequenceClassificationBatch, SequenceLabels};
use crate::model::classifier::{
    ClassifierTransform, check_names, check_outputs, check_smoothing, check_weights, classifier, numbered,
};
use crate::model::labels::check_batch;
use crate::model::loss::{binary_cross_entropy, labelled_cross_entropy, mean_squared_error};
use crate::model::sentence::pooling::Pooling;
use crate::model::sentence_transformers::{Prompts, check_activation};
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;

/// Configuration of [`BertForSequenceClassification`].
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertForSequenceClassificationConfig {
    /// The model below the head.
    pub bert: BertModelConfig,
    /// The name of each label, by id; by default `LABEL_0` and `LABEL_1`.
    #[config(default = "numbered(2)")]
    pub id2label: Vec<String>,
    /// The kind of labels; by default that of the batch. With a single label, a batch of classes is an error.
    pub problem_type: Option<ProblemType>,
    /// Dropout of the classifier's input, in [0, 1); by default `hidden_dropout_prob`, in DistilBERT 0.2, in ALBERT 0.1, in
    /// ModernBERT 0. A `config.json` of MPNet cannot state it.
    pub classifier_dropout: Option<f64>,
    /// DeBERTa: dropout before the first of the two linear layers, in [0, 1).
    #[config(default = 0.0)]
    pub pooler_dropout: f64,
    /// ModernBERT and EuroBERT: what the classifier makes of the tokens' vectors; by default [`ClassifierPooling::Cls`], in EuroBERT
    /// [`ClassifierPooling::Late`].
    pub classifier_pooling: Option<ClassifierPooling>,
    /// The weight of each class in the loss; none in a regression. Not stored in `config.json`.
    pub class_weights: Option<Vec<f64>>,
    /// ε of label smoothing in the loss of single classes, in [0, 1). Not stored in `config.json`.
    #[config(default = 0.0)]
    pub label_smoothing: f64,
    /// The probability of each label, in (0, 1), from which on it is predicted, where a text may have several; by default 0.5.
    /// Stored in `config.json`, where transformers keeps it and does not read it.
    pub label_thresholds: Option<Vec<f64>>,
    /// The activation that `rank` applies to logits, `activation_fn` of sentence-transformers' `CrossEncoder`; by default the
    /// sigmoid.
    pub activation: Option<Activation>,
    /// Prompts, whose default `rank` puts before queries; stored as by sentence-transformers.
    #[config(default = "Prompts::new()")]
    pub prompts: Prompts,
}

impl BertForSequenceClassificationConfig {
    /// Checks that a model can be built from this config. Errors are those of [`BertModelConfig::validate`], and
    /// [`Error::Config`], naming the field, for no labels, `SingleLabelClassification` of one label, a missing default
    /// prompt, a dropout not in [0, 1), a pooling that the family has not, weights of a regression or that are not one per class,
    /// each 0 or in [1e-30, 1e30], or thresholds that are not one in (0, 1) per label of `MultiLabelClassification`.
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        self.prompts.validate()?;
        check_names(&self.id2label)?;
        self.activation.map_or(Ok(()), |activation| check_activation("activation", activation))?;
        self.bert.check_classifier_dropout(Classified::Sequences, self.classifier_dropout)?;
        check_dropout("pooler_dropout", self.pooler_dropout)?;
        check_weights(self.class_weights.as_deref(), self.num_labels())?;
        check_smoothing(self.label_smoothing)?;
        let (family, pooler_dropout) = (self.bert.embeddings.family, self.pooler_dropout);
        let (name, problem_type) = (family.model_type(), self.problem_type);
        if let Some(pooling) = self.classifier_pooling {
            let all = family.architecture().sequence_poolings;
            ensure(all.iter().any(|(own, _)| *own == pooling), "classifier_pooling", || {
                format!("is {pooling:?}, which the family {name} does not have; use None")
            })?;
        }
        ensure(pooler_dropout == 0.0 || has_context_pooler(family), "pooler_dropout", || {
            format!("is {pooler_dropout}, but the family {name} has none")
        })?;
        let is_single = problem_type == Some(ProblemType::SingleLabelClassification);
        ensure(!is_single || self.num_labels() > 1, "problem_type", || {
            "is SingleLabelClassification, but with one label there is nothing to choose; use two labels, or Regression"
                .into()
        })?;
        let is_regression = problem_type == Some(ProblemType::Regression);
        ensure(!is_regression || self.class_weights.is_none(), "class_weights", || {
            "are given, but a regression has no classes".into()
        })?;
        let Some(thresholds) = &self.label_thresholds else { return Ok(()) };
        let are_several = problem_type == Some(ProblemType::MultiLabelClassification);
        let are_probabilities = thresholds.iter().all(|threshold| 0.0 < *threshold && *threshold < 1.0);
        let is_valid = are_several && are_probabilities && thresholds.len() == self.num_labels();
        ensure(is_valid, "label_thresholds", || {
            format!(
                "are {thresholds:?}, but must be a probability in (0, 1) for each of the {} labels of \
                 MultiLabelClassification; leave them out for 0.5",
                self.num_labels()
            )
        })
    }

    /// What is pooled: the family's default, or position 0, where nothing is stated.
    fn pooling(&self) -> ClassifierPooling {
        let default = self.bert.encoder().sequence_poolings.first().map(|(pooling, _)| *pooling);
        self.classifier_pooling.or(default).unwrap_or(ClassifierPooling::Cls)
    }

    fn build(&self, device: &Device) -> BertForSequenceClassification {
        let head = self.bert.embeddings.family.architecture().sequence_head;
        let has_dense = matches!(head, SequenceHead::Dense { .. } | SequenceHead::ContextPooler);
        let dense = || self.bert.linear(self.bert.embeddings.hidden_size, device);
        let classifier = SequenceClassificationHead {
            dense: has_dense.then(dense),
            transform: ClassifierTransform::new(&self.bert, device),
            pooler_dropout: DropoutConfig::new(self.pooler_dropout).init(),
            dropout: self.bert.head_dropout(Classified::Sequences, self.classifier_dropout),
            out_proj: self.bert.classifier(self.num_labels(), device),
        };
        // A pooler that no head reads would be trained for nothing, and be missing in the family's files.
        let bert = self.bert.build(head == SequenceHead::Pooled, device);
        BertForSequenceClassification { bert, classifier, stated: self.clone() }
    }
}

/// Whether classifiers have a `pooler_dropout`.
fn has_context_pooler(family: Family) -> bool {
    family.architecture().sequence_head == SequenceHead::ContextPooler
}

/// The head of [`BertForSequenceClassification`]:
///
/// ```text
/// BERT, ALBERT:   logits = Dropout(pooler_output)·W + b            NomicBERT and GTE too
/// RoBERTa, MPNet: logits = Dropout(tanh(Dropout(x₀)·P + p))·W + b  Jina embeddings v3 too
/// ELECTRA:        logits = Dropout(GELU(Dropout(x₀)·P + p))·W + b
/// DeBERTa:        logits = Dropout(GELU(Dropout'(x₀)·P + p))·W + b
/// DistilBERT:     logits = Dropout(ReLU(x₀·P + p))·W + b
/// ModernBERT:     logits = Dropout(LayerNorm(GELU(x·P)))·W + b     x that of position 0, or the mean over tokens
/// EuroBERT:       logits = GELU(x·P + p)·W + b                     the same, or the mean of the logits of all tokens
/// ```
///
/// Source: `BertForSequenceClassification`, `RobertaClassificationHead` and so on of transformers 5.23.
#[derive(Module, Debug)]
pub struct SequenceClassificationHead {
    /// P and p, [H, H]; `None` where the pooler takes this part.
    pub dense: Option<Linear>,
    /// The layers before the dropout, in ModernBERT.
    pub transform: Option<ClassifierTransform>,
    pub(crate) pooler_dropout: Dropout,
    pub(crate) dropout: Dropout,
    /// W and b, [H, C].
    pub out_proj: Linear,
}

classifier!(
    Sequences,
    BertForSequenceClassificationConfig,
    BertForSequenceClassification,
    SequenceClassificationBatch,
    SequenceClassifierOutput,
    dropout: classifier.dropout
);

/// BERT with a classifier of sequences.
///
/// ```
/// # use burn_bert::{BertEmbeddingsInput, Result, model::{BertForSequenceClassification, SequenceClassificationBatch}};
/// # fn example(model: BertForSequenceClassification, input: BertEmbeddingsInput) -> Result<()> {
/// let batch = SequenceClassificationBatch::single_label(input, None, &[0, 2])?; // a class for each sequence
/// let _gradients = model.forward(&batch).loss.backward();
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct BertForSequenceClassification {
    /// The model below the head; with a pooler where the classifier reads it.
    pub bert: BertModel,
    /// The head.
    pub classifier: SequenceClassificationHead,
    /// The config that the model was built from.
    #[module(skip)]
    stated: BertForSequenceClassificationConfig,
}

/// The output of [`BertForSequenceClassification::forward`].
#[derive(Debug)]
pub struct SequenceClassifierOutput {
    /// The loss, `[1]`.
    pub loss: Tensor<1>,
    /// Logits of each class, [B, C].
    pub logits: Tensor<2>,
}

impl BertForSequenceClassification {
    /// Sets the [`label_thresholds`](BertForSequenceClassificationConfig::label_thresholds), which training with validation data
    /// chooses itself (`metrics::best_threshold`). [`Error::Config`] if
    /// [`validate`](BertForSequenceClassificationConfig::validate) refuses them.
    pub fn with_label_thresholds(mut self, label_thresholds: Option<Vec<f64>>) -> Result<Self> {
        let config = self.config().with_label_thresholds(label_thresholds);
        config.validate()?;
        self.stated.label_thresholds = config.label_thresholds;
        Ok(self)
    }

    /// Logits of each class for every sequence, [B, C]. Errors are those of [`BertModel::try_forward`], [`Error::ShapeMismatch`]
    /// if the head has not one output per label, [`Error::Data`] if a sequence is padded at its start, and [`Error::Config`] if
    /// the pooler was removed.
    pub fn logits(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<Tensor<2>> {
        let (embeddings, head) = (&self.bert.embeddings, &self.classifier);
        let pooling = self.stated.pooling();
        // Position 0 has no token in a sequence padded on the left.
        padding.filter(|_| pooling == ClassifierPooling::Cls).map_or(Ok(()), PaddingMask::check_first)?;
        check_outputs("classifier.out_proj.weight", &head.out_proj, self.stated.num_labels())?;
        let BertModelOutput { last_hidden_state: all, pooler_output, .. } =
            self.bert.try_forward(input, padding)?;
        let (dims, mean) = (all.dims(), |x| Pooling::Mean.try_forward(x, padding));
        let read: Tensor<2> = match pooling {
            ClassifierPooling::Cls => all.narrow(1, 0, 1).squeeze_dim(1),
            ClassifierPooling::Mean => mean(all)?,
            ClassifierPooling::Late => all.flatten(0, 1), // [B · S, H]
        };
        let pooled = match (&head.transform, &head.dense, pooler_output) {
            (Some(transform), ..) => transform.forward(read),
            (None, Some(dense), _) => {
                let (activation, dropout) = match embeddings.family().architecture().sequence_head {
                    SequenceHead::Dense { activation, drops_input } => {
                        (activation, drops_input.then_some(&head.dropout))
                    }
                    SequenceHead::ContextPooler => (Activation::Gelu, Some(&head.pooler_dropout)),
                    // A module whose `dense` was set by hand.
                    SequenceHead::Pooled | SequenceHead::Transformed => {
                        (Activation::Tanh, Some(&head.dropout))
                    }
                };
                let read = dropout.iter().fold(read, |read, drop| drop_out(drop, &dense.weight, read));
                let read = linear_activation(dense, read, activation);
                // The mean of what the classifier reads gives that of its logits, as it is linear.
                if pooling == ClassifierPooling::Late { mean(read.reshape(dims))? } else { read }
            }
            (None, None, Some(pooled)) => pooled,
            (None, None, None) => {
                let problem = "is missing, but the classifier reads its output; set bert.pooler";
                return Err(Error::config("pooler", problem));
            }
        };
        Ok(linear(&head.out_proj, drop_out(&head.dropout, &head.out_proj.weight, pooled)))
    }

    /// Classifies the sequences of a batch and returns the loss of its [`ProblemType`]; 0 if no sequence has a class. Errors
    /// are those of [`logits`](Self::logits), [`Error::LabelOutOfRange`] if a class is not in 0..C, [`Error::ShapeMismatch`]
    /// if a sequence does not have C numbers, [`Error::Config`] if the labels are not of the model's `problem_type`, or are
    /// classes of a model with one label, and another shape or device if `batch.input` was replaced.
    pub fn try_forward(&self, batch: &SequenceClassificationBatch) -> Result<SequenceClassifierOutput> {
        let (input, num_labels) = (&batch.input, self.stated.num_labels());
        self.check_problem_type(&batch.labels)?;
        match &batch.labels {
            SequenceLabels::Classes(labels) => labels.check_classes(input, num_labels)?,
            SequenceLabels::Numbers(_, labels) => {
                let expected = [input.dims()[0], num_labels];
                check_batch(input, &labels.dims(), &expected, "one number per label", labels.device())?;
            }
        }
        let logits = self.logits(input, batch.padding.as_ref())?;
        let (scores, weights) = (logits.clone(), self.stated.class_weights.as_deref());
        let loss = match &batch.labels {
            SequenceLabels::Classes(labels) => {
                labelled_cross_entropy(scores, labels, weights, self.stated.label_smoothing)
            }
            SequenceLabels::Numbers(ProblemType::Regression, labels) => {
                mean_squared_error(scores, labels.clone())
            }
            SequenceLabels::Numbers(_, labels) => binary_cross_entropy(scores, labels.clone(), weights),
        };
        Ok(SequenceClassifierOutput { loss, logits })
    }

    /// What the loss of a batch is a mean over: the number of sequences that have labels, or, with class weights and one class
    /// per sequence, Σ w of their classes. Gradients of several batches are averaged by it, on ranks by
    /// [`mean_gradients`](crate::distributed::Ranks::mean_gradients). Panics on a class that has no weight, which
    /// [`try_forward`](Self::try_forward) refuses.
    pub fn loss_count(&self, batch: &SequenceClassificationBatch) -> f64 {
        match &batch.labels {
            SequenceLabels::Classes(labels) => labels.total_weight(self.stated.class_weights.as_deref()),
            // The mean of a binary cross-entropy is over entries, whatever they weigh.
            _ => batch.num_labelled() as f64,
        }
    }

    fn check_problem_type(&self, labels: &SequenceLabels) -> Result<()> {
        let found = match labels {
            SequenceLabels::Classes(_) => ProblemType::SingleLabelClassification,
            SequenceLabels::Numbers(problem_type, _) => *problem_type,
        };
        let expected = self.stated.problem_type.unwrap_or(found);
        ensure(expected == found, "problem_type", || {
            format!("is {expected:?}, but the batch has labels of {found:?}")
        })?;
        // As in `validate`, of a model that leaves the kind to the batch.
        let is_single = found == ProblemType::SingleLabelClassification;
        ensure(!is_single || self.stated.num_labels() > 1, "id2label", || {
            "has one label, but the batch has labels of SingleLabelClassification, which needs two".into()
        })?;
        let is_regression = found == ProblemType::Regression;
        ensure(!is_regression || self.stated.class_weights.is_none(), "class_weights", || {
            "are given, but the batch has labels of Regression".into()
        })
    }
}
