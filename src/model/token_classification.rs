//! `BertForTokenClassification`: the model.

use super::bert::BertModel;
use super::classification_batch::TokenClassificationBatch;
use super::config::{BertModelConfig, Classified};
use super::labels::{check_names, check_weights, numbered};
use super::loss::labelled_cross_entropy;
use crate::embeddings::{BertEmbeddingsInput, PaddingMask, check_dropout, check_linear, drop_out};
use crate::encoder::linear;
use crate::error::Result;
use burn::config::Config;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear};
use burn::prelude::*;

/// Configuration of [`BertForTokenClassification`].
#[derive(Config, Debug, PartialEq)]
pub struct BertForTokenClassificationConfig {
    /// The model below the head.
    pub bert: BertModelConfig,
    /// The name of each label, by id; by default `LABEL_0` and `LABEL_1`.
    #[config(default = "numbered(2)")]
    pub id2label: Vec<String>,
    /// Probability that dropout zeroes an input of the classifier, in [0, 1); by default `hidden_dropout_prob`, in
    /// ALBERT 0.1. DistilBERT and MPNet have none of their own to save.
    pub classifier_dropout: Option<f64>,
    /// The weight of each class in the loss. Not stored in `config.json`.
    pub class_weights: Option<Vec<f64>>,
}

impl BertForTokenClassificationConfig {
    /// Checks that a model can be built from this config.
    ///
    /// # Errors
    ///
    /// Those of [`BertModelConfig::validate`]; [`Error::Config`](crate::Error::Config) if there is no label, two have
    /// one name, the dropout is not in [0, 1), or the weights are not one number per class that is 0 or in
    /// [1e-30, 1e30].
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        check_names(&self.id2label)?;
        self.bert.check_classifier_dropout(Classified::Tokens, self.classifier_dropout)?;
        check_weights(self.class_weights.as_deref(), self.num_labels())
    }

    /// Builds the model on `device`, or says what is wrong with the config.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn try_init(&self, device: &Device) -> Result<BertForTokenClassification> {
        self.validate()?;
        Ok(BertForTokenClassification {
            bert: self.bert.try_init_without_pooler(device)?,
            dropout: DropoutConfig::new(self.dropout_prob()).init(),
            classifier: self.bert.linear(self.num_labels(), device),
            id2label: self.id2label.clone(),
            class_weights: self.class_weights.clone(),
            states_dropout: self.classifier_dropout.is_some(),
        })
    }
}

classifier!(
    Tokens,
    BertForTokenClassificationConfig,
    BertForTokenClassification,
    TokenClassificationBatch,
    TokenClassifierOutput
);

/// A model with a classifier of tokens: `logits = Dropout(last_hidden_state)·W + b`.
///
/// Made by [`BertForTokenClassificationConfig::init`], or read by
/// [`from_pretrained`](super::PretrainedModel::from_pretrained) from a directory with any head or none.
///
/// ```
/// use burn::prelude::*;
/// use burn_bert::model::{BertForTokenClassificationConfig, BertModelConfig, TokenClassificationBatch};
/// use burn_bert::{BertEmbeddingsConfig, BertEmbeddingsInput};
///
/// let device = Device::default().autodiff();
/// let bert = BertModelConfig::new(BertEmbeddingsConfig::new().with_vocab_size(20).with_hidden_size(8))
///     .with_num_hidden_layers(1)
///     .with_num_attention_heads(2)
///     .with_intermediate_size(16);
/// let model = BertForTokenClassificationConfig::new(bert).with_num_labels(3).init(&device);
/// let input = BertEmbeddingsInput::from_rows(&[[2, 7, 9, 3]], &device)?;
/// let batch = TokenClassificationBatch::new(input, None, &[[-100, 2, 0, -100]])?;
/// let output = model.forward(&batch);
/// assert_eq!(output.logits.dims(), [1, 4, 3]);
/// let gradients = output.loss.backward();
/// # let _ = gradients;
/// # Ok::<(), burn_bert::Error>(())
/// ```
///
/// Source: `BertForTokenClassification` of transformers 5.23 and its like in the other [families](crate::Family).
#[derive(Module, Debug)]
pub struct BertForTokenClassification {
    /// The model below the head; without a pooler.
    pub bert: BertModel,
    /// Dropout of what the classifier reads.
    pub dropout: Dropout,
    /// W and b, [H, C].
    pub classifier: Linear,
    #[module(skip)]
    id2label: Vec<String>,
    #[module(skip)]
    class_weights: Option<Vec<f64>>,
    /// Whether the config had a `classifier_dropout`, and not that of the other layers.
    states_dropout: bool,
}

/// What [`BertForTokenClassification::forward`] returns.
#[derive(Debug)]
pub struct TokenClassifierOutput {
    /// Mean cross-entropy over the tokens that have a label, `[1]`; 0 for a batch without any.
    pub loss: Tensor<1>,
    /// Scores of each class for every token, [B, S, C].
    pub logits: Tensor<3>,
}

impl BertForTokenClassification {
    /// The config that builds a model of this shape.
    pub fn config(&self) -> BertForTokenClassificationConfig {
        let bert = self.bert.config();
        let prob = self.dropout.prob;
        let is_stated = self.states_dropout || prob != bert.classifier_dropout(Classified::Tokens);
        BertForTokenClassificationConfig {
            classifier_dropout: is_stated.then_some(prob),
            bert,
            id2label: self.id2label.clone(),
            class_weights: self.class_weights.clone(),
        }
    }

    /// Scores of each class for every token, [B, S, C].
    ///
    /// # Errors
    ///
    /// Those of [`BertModel::try_forward`]; [`Error::ShapeMismatch`](crate::Error::ShapeMismatch), [`Error::DTypeMismatch`](crate::Error::DTypeMismatch) or
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) if the classifier is not [H, C], of the word table's dtype and on its device;
    /// [`Error::Config`](crate::Error::Config) if its dropout is not in [0, 1).
    pub fn logits(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Result<Tensor<3>> {
        let words = &self.bert.embeddings.word_embeddings;
        check_dropout("classifier_dropout", self.dropout.prob)?;
        check_linear(
            "classifier",
            &self.classifier,
            [self.bert.embeddings.hidden_size(), self.id2label.len()],
            words,
        )?;
        let hidden = self.bert.try_forward(input, padding)?.last_hidden_state;
        Ok(linear(&self.classifier, drop_out(&self.dropout, &self.classifier.weight, hidden)))
    }

    /// Classifies the tokens of a batch and returns the loss.
    ///
    /// The loss of a batch without labels is 0, and its gradients are zeros.
    ///
    /// # Errors
    ///
    /// Those of [`logits`](Self::logits); [`Error::LabelOutOfRange`](crate::Error::LabelOutOfRange) if a label is not in 0..C or −100;
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) or [`Error::DeviceMismatch`](crate::Error::DeviceMismatch) if `batch.input` was replaced by one of another shape or
    /// device than the labels.
    pub fn try_forward(&self, batch: &TokenClassificationBatch) -> Result<TokenClassifierOutput> {
        let labels = batch.labels.as_ref();
        labels.map_or(Ok(()), |labels| labels.check_classes(&batch.input, self.id2label.len()))?;
        let logits = self.logits(&batch.input, batch.padding.as_ref())?;
        let loss = labelled_cross_entropy(logits.clone(), labels, self.class_weights.as_deref());
        Ok(TokenClassifierOutput { loss, logits })
    }
}
