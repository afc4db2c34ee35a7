use crate::checkpoint::Fields;
use crate::embeddings::BertEmbeddingsInput;
use crate::encoder::config::BertModelConfig;
use crate::error::Result;
use crate::family::Classified;
use crate::layers::{LayerNorm, PaddingMask, drop_out, linear};
use crate::model::bert::BertModel;
use crate::model::classifier::{
    ClassifierTransform, check_names, check_outputs, check_smoothing, check_weights, classifier, head_fields,
    numbered, read_dropout, read_names,
};
use crate::model::labels::{Labels, check_padding};
use crate::model::loss::labelled_cross_entropy;
use crate::model::stored::{Stored, stored_head};
use burn::nn::{Dropout, Linear};
use burn::prelude::*;
use serde_json::{Map, Value};

/// Configuration of [`BertForTokenClassification`].
#[derive(Config, Debug, PartialEq)]
#[non_exhaustive]
pub struct BertForTokenClassificationConfig {
    /// The model below the head.
    pub bert: BertModelConfig,
    /// The name of each label, by id; by default `LABEL_0` and `LABEL_1`.
    #[config(default = "numbered(2)")]
    pub id2label: Vec<String>,
    /// Dropout of the classifier's input, in [0, 1); by default `hidden_dropout_prob`, in ALBERT 0.1. A `config.json` of
    /// DistilBERT or MPNet cannot state it.
    pub classifier_dropout: Option<f64>,
    /// The weight of each class in the loss. Not stored in `config.json`.
    pub class_weights: Option<Vec<f64>>,
    /// ε of label smoothing in the loss of single classes, in [0, 1). Not stored in `config.json`.
    #[config(default = 0.0)]
    pub label_smoothing: f64,
}

impl BertForTokenClassificationConfig {
    /// Checks that a model can be built from this config. Errors are those of [`BertModelConfig::validate`], and
    /// [`Error::Config`](crate::Error::Config), naming the field, for no labels or two of one name, a dropout not in [0, 1), or
    /// weights that are not one per class, each 0 or in [1e-30, 1e30].
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        check_names(&self.id2label)?;
        self.bert.check_classifier_dropout(Classified::Tokens, self.classifier_dropout)?;
        check_smoothing(self.label_smoothing)?;
        check_weights(self.class_weights.as_deref(), self.num_labels())
    }

    fn build(&self, device: &Device) -> BertForTokenClassification {
        BertForTokenClassification {
            bert: self.bert.build(false, device),
            dropout: self.bert.head_dropout(Classified::Tokens, self.classifier_dropout),
            transform: ClassifierTransform::new(&self.bert, device),
            classifier: self.bert.classifier(self.num_labels(), device),
            stated: self.clone(),
        }
    }
}

/// A batch for [`BertForTokenClassification`].
#[derive(Clone, Debug)]
pub struct TokenClassificationBatch {
    /// The tokens, padded at the end to one length.
    pub input: BertEmbeddingsInput,
    /// The padding of the sequences, [B, S]; `None` if none is padded.
    pub padding: Option<PaddingMask>,
    pub(super) labels: Labels,
}

impl TokenClassificationBatch {
    /// One label per token, one row per sequence. Tokens with the label −100 are ignored, as in transformers.
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if there is not one label per token, or `padding` is not [B, S];
    /// [`Error::Data`](crate::Error::Data) if a label does not fit an `i32`.
    pub fn new(
        input: BertEmbeddingsInput,
        padding: Option<PaddingMask>,
        labels: &[impl AsRef<[i64]>],
    ) -> Result<Self> {
        check_padding(&input, padding.as_ref())?;
        let labels = Labels::for_tokens(&input, labels)?;
        Ok(Self { input, padding, labels })
    }

    /// Number of tokens that have a label, N.
    pub fn num_labelled(&self) -> usize {
        self.positions().len()
    }

    /// Row and column of the tokens that have a label; empty if there are none.
    pub fn positions(&self) -> &[[usize; 2]] {
        &self.labels.positions
    }

    /// The labels of the N tokens that have one, `[N]`; `None` if there are none.
    pub fn labels(&self) -> Option<Tensor<1, Int>> {
        self.labels.tensor.clone()
    }

    /// The logits of the N tokens that have a label, [B, S, C] → [N, C], and their labels; `None` if there are none.
    pub fn labelled(&self, logits: Tensor<3>) -> Option<(Tensor<2>, Tensor<1, Int>)> {
        self.labels.labelled(logits)
    }
}

classifier!(
    Tokens,
    BertForTokenClassificationConfig,
    BertForTokenClassification,
    TokenClassificationBatch,
    TokenClassifierOutput,
    dropout: dropout
);

/// BERT with a token classifier: `logits = Dropout(last_hidden_state)·W + b`.
///
/// ```
/// # use burn_bert::{BertEmbeddingsInput, Result, model::{BertForTokenClassification, TokenClassificationBatch}};
/// # fn example(model: BertForTokenClassification, input: BertEmbeddingsInput) -> Result<()> {
/// let batch = TokenClassificationBatch::new(input, None, &[[-100, 2, 0, -100]])?; // −100: no label
/// let _gradients = model.forward(&batch).loss.backward();
/// # Ok(())
/// # }
/// ```
///
/// Source: `BertForTokenClassification` of transformers 5.23 and its like in the other [families](crate::Family).
#[derive(Module, Debug)]
pub struct BertForTokenClassification {
    /// The model below the head; without a pooler.
    pub bert: BertModel,
    /// The layers before the dropout, in ModernBERT.
    pub transform: Option<ClassifierTransform>,
    pub(crate) dropout: Dropout,
    /// W and b, [H, C].
    pub classifier: Linear,
    /// The config that the model was built from.
    #[module(skip)]
    stated: BertForTokenClassificationConfig,
}

/// The output of [`BertForTokenClassification::forward`].
#[derive(Debug)]
pub struct TokenClassifierOutput {
    /// Mean cross-entropy over the tokens that have a label, `[1]`; 0 for a batch without any.
    pub loss: Tensor<1>,
    /// Logits of each class for every token, [B, S, C].
    pub logits: Tensor<3>,
}

impl BertForTokenClassification {
    /// Logits of each class for every token, [B, S, C]. Errors are those of [`BertModel::try_forward`], and
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if the classifier has not one output per label.
    pub fn logits(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<Tensor<3>> {
        check_outputs("classifier.weight", &self.classifier, self.stated.num_labels())?;
        let hidden = self.bert.try_forward(input, padding)?.last_hidden_state;
        let hidden = self.transform.iter().fold(hidden, |hidden, transform| transform.forward(hidden));
        Ok(linear(&self.classifier, drop_out(&self.dropout, &self.classifier.weight, hidden)))
    }

    /// Classifies the tokens of a batch and returns the loss. Without labels it is 0, and its gradients are zeros. Errors are
    /// those of [`logits`](Self::logits), [`Error::LabelOutOfRange`](crate::Error::LabelOutOfRange) if a label is not in 0..C
    /// or −100, and another shape or device if `batch.input` was replaced.
    pub fn try_forward(&self, batch: &TokenClassificationBatch) -> Result<TokenClassifierOutput> {
        batch.labels.check_classes(&batch.input, self.stated.num_labels())?;
        let logits = self.logits(&batch.input, batch.padding.as_ref())?;
        let loss = labelled_cross_entropy(
            logits.clone(),
            &batch.labels,
            self.stated.class_weights.as_deref(),
            self.stated.label_smoothing,
        );
        Ok(TokenClassifierOutput { loss, logits })
    }

    /// As [`BertForSequenceClassification::loss_count`](crate::model::BertForSequenceClassification::loss_count).
    pub fn loss_count(&self, batch: &TokenClassificationBatch) -> f64 {
        batch.labels.total_weight(self.stated.class_weights.as_deref())
    }
}

impl Stored for BertForTokenClassification {
    stored_head!(BertForTokenClassificationConfig, Some("ForTokenClassification"), bert, heads);

    fn config_of(fields: &Fields) -> Result<BertForTokenClassificationConfig> {
        Ok(BertForTokenClassificationConfig {
            bert: BertModelConfig::from_fields(fields)?,
            id2label: read_names(fields)?,
            classifier_dropout: read_dropout(fields, Classified::Tokens)?,
            class_weights: None,
            label_smoothing: 0.0,
        })
    }

    fn head_norms(&self) -> Vec<&LayerNorm> {
        self.transform.iter().map(|transform| &transform.layer_norm).collect()
    }

    fn head_fields(&self) -> Map<String, Value> {
        let config = self.config();
        head_fields(&config.id2label, &config.bert, Classified::Tokens, config.classifier_dropout)
    }
}
