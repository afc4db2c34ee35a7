//! `BertForTokenClassification`: the model.

use super::bert::BertModel;
use super::classification_batch::TokenClassificationBatch;
use super::config::BertModelConfig;
use super::labels::{check_names, check_weights, numbered};
use super::loss::{cross_entropy, zero_loss};
use crate::embeddings::{BertEmbeddingsInput, PaddingMask, check_dropout, drop_out};
use crate::error::{Error, Result};
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
    /// Probability that dropout zeroes an input of the classifier, in [0, 1); by default `hidden_dropout_prob`.
    pub classifier_dropout: Option<f64>,
    /// The weight of each class in the loss. Not stored in `config.json`.
    pub class_weights: Option<Vec<f64>>,
}

impl BertForTokenClassificationConfig {
    /// `count` labels called `LABEL_0`, `LABEL_1`, ….
    pub fn with_num_labels(self, count: usize) -> Self {
        Self { id2label: numbered(count), ..self }
    }

    /// Number of labels, C.
    pub fn num_labels(&self) -> usize {
        self.id2label.len()
    }

    /// Checks that a model can be built from this config.
    ///
    /// # Errors
    ///
    /// Those of [`BertModelConfig::validate`]; [`Error::Config`] if there is no label, two have
    /// one name, the dropout is not in [0, 1), or the weights are not one finite number of at least 0 a class.
    pub fn validate(&self) -> Result<()> {
        self.bert.validate()?;
        check_names(&self.id2label)?;
        check_dropout("classifier_dropout", self.dropout_prob())?;
        check_weights(self.class_weights.as_deref(), self.num_labels())
    }

    /// Builds the model on `device`.
    ///
    /// # Panics
    ///
    /// Where [`try_init`](Self::try_init) returns an error, with the same message.
    pub fn init(&self, device: &Device) -> BertForTokenClassification {
        self.try_init(device).unwrap_or_else(|error| panic!("{error}"))
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
        })
    }

    fn dropout_prob(&self) -> f64 {
        self.classifier_dropout.unwrap_or(self.bert.embeddings.hidden_dropout_prob)
    }
}

/// BERT or RoBERTa with a classifier of tokens: `logits = Dropout(last_hidden_state)·W + b`.
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
/// Source: `BertForTokenClassification` and `RobertaForTokenClassification` of transformers 5.23.
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
        BertForTokenClassificationConfig {
            classifier_dropout: (prob != bert.embeddings.hidden_dropout_prob).then_some(prob),
            bert,
            id2label: self.id2label.clone(),
            class_weights: self.class_weights.clone(),
        }
    }

    /// The name of each label, by id.
    pub fn id2label(&self) -> &[String] {
        &self.id2label
    }

    /// The id of a label.
    pub fn label2id(&self, label: &str) -> Option<usize> {
        self.id2label.iter().position(|name| name == label)
    }

    /// Scores of each class for every token, [B, S, C].
    ///
    /// # Panics
    ///
    /// Where [`try_logits`](Self::try_logits) returns an error, with the same message.
    pub fn logits(&self, input: &BertEmbeddingsInput, padding: Option<&PaddingMask>) -> Tensor<3> {
        self.try_logits(input, padding).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`logits`](Self::logits), with bad input as an error.
    ///
    /// # Errors
    ///
    /// Those of [`BertModel::try_forward`].
    pub fn try_logits(
        &self,
        input: &BertEmbeddingsInput,
        padding: Option<&PaddingMask>,
    ) -> Result<Tensor<3>> {
        let hidden = self.bert.try_forward(input, padding)?.last_hidden_state;
        Ok(self.classifier.forward(drop_out(&self.dropout, &self.classifier.weight, hidden)))
    }

    /// Classifies the tokens of a batch and returns the loss.
    ///
    /// # Panics
    ///
    /// Where [`try_forward`](Self::try_forward) returns an error, with the same message.
    pub fn forward(&self, batch: &TokenClassificationBatch) -> TokenClassifierOutput {
        self.try_forward(batch).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`forward`](Self::forward), with bad input as an error.
    ///
    /// The loss of a batch without labels is 0, and its gradients are zeros.
    ///
    /// # Errors
    ///
    /// Those of [`try_logits`](Self::try_logits), and [`Error::LabelOutOfRange`] if a
    /// label is neither one of C nor −100.
    pub fn try_forward(&self, batch: &TokenClassificationBatch) -> Result<TokenClassifierOutput> {
        let num_labels = self.id2label.len();
        if let Some(labels) = &batch.labels
            && let Some((index, label)) = labels.first_not_below(num_labels)?
        {
            return Err(Error::LabelOutOfRange { index, label, num_labels });
        }
        let logits = self.try_logits(&batch.input, batch.padding.as_ref())?;
        let loss = match &batch.labels {
            Some(labels) => {
                let places: Vec<i64> = labels.places().iter().map(|&place| place as i64).collect();
                let places = Tensor::<1, Int>::from_data(places.as_slice(), &logits.device());
                let scores = logits.clone().flatten::<2>(0, 1).select(0, places); // [N, C]
                cross_entropy(scores, labels.labels(), self.class_weights.as_deref())
            }
            None => zero_loss(logits.clone()),
        };
        Ok(TokenClassifierOutput { loss, logits })
    }
}
